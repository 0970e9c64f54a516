package surface

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/ratelimit"
)

// reserveUsage counts a call that has an agent work against budgets and limits, notes in it what is held for its turn, and tells
// the client how its limits stand. It returns an [*agentsvc.BudgetExhaustedError] or a [ratelimit.ExhaustedError].
func (v *Request) reserveUsage(ctx context.Context, sub *task.Submission) (err error) {
	if v.runtime.RateLimits() != nil {
		in, span := trail.StartSpan(ctx, "limits")
		ctx = in
		defer func() { trail.EndSpan(span, err) }()
	}
	states, cancelReservation, err := v.runtime.ReserveUsage(ctx, sub)
	if v.record != nil && len(states) > 0 {
		writeLimitHeaders(v.record.Header(), states, err)
	}
	if err == nil {
		v.releaseReservation()
		v.cancelReservation = cancelReservation
	}
	if rule := exhaustedRule(err); rule != "" && v.server.options.OnRefused != nil {
		v.server.options.OnRefused(v.App.Name, rule)
	}
	return err
}

// exhaustedRule names what refuses a call with err: a rule of a limit, without the agent that it may be about, or [BudgetRule].
// It is "" for any other error.
func exhaustedRule(err error) string {
	var limit *ratelimit.ExhaustedError
	var budget *agentsvc.BudgetExhaustedError
	switch {
	case errors.As(err, &limit) && limit.State != nil:
		rule := limit.State.Rule
		rule.Agent = ""
		return rule.Name()
	case errors.As(err, &budget):
		return BudgetRule
	}
	return ""
}

// BudgetRule stands for every budget where what refuses a call is counted.
const BudgetRule = "budget"

// releaseReservation gives back what is reserved for a call that came to nothing.
func (v *Request) releaseReservation() {
	if cancelReservation := v.cancelReservation; cancelReservation != nil {
		v.cancelReservation = nil
		cancelReservation()
	}
}

// writeLimitHeaders writes how rules stand: all of them in the fields of the IETF's draft (draft-ietf-httpapi-ratelimit-headers),
// and the tightest, or the one that refuses with err, in those that many clients know.
func writeLimitHeaders(h http.Header, states []ratelimit.State, err error) {
	var policies, now []string
	for _, s := range states {
		name := strconv.Quote(s.Name())
		policy := name + ";q=" + formatInt(s.Limit) + ";w=" + formatInt(int64(s.Reset.Sub(s.Start).Seconds()))
		if s.Unit == ratelimit.Tokens {
			policy += `;qu="tokens"`
		}
		policies = append(policies, policy)
		now = append(now, name+";r="+formatInt(s.Remaining())+";t="+formatInt(int64(s.RetryAfter().Seconds())))
	}
	h["Ratelimit-Policy"] = []string{strings.Join(policies, ", ")}
	h["Ratelimit"] = []string{strings.Join(now, ", ")}
	tightest := ratelimit.TightestState(states)
	var e *ratelimit.ExhaustedError
	if errors.As(err, &e) && e.State != nil {
		tightest = *e.State
	}
	h["X-Ratelimit-Limit"] = []string{formatInt(tightest.Limit)}
	h["X-Ratelimit-Remaining"] = []string{formatInt(tightest.Remaining())}
	h["X-Ratelimit-Reset"] = []string{formatInt(tightest.Reset.Unix())}
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// limitDetails is what the caller is told of the rule that refuses.
func limitDetails(s *ratelimit.State) map[string]any {
	d := map[string]any{
		"rule": s.Name(), "scope": string(s.Scope), "type": string(s.Unit), "window": string(s.Window), "limit": s.Limit, "reset": FormatTime(s.Reset),
	}
	if s.Agent != "" {
		d["agent"] = s.Agent
	}
	return d
}
