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

// reserve counts a call that has an agent work against budgets and limits, notes in it what is held for its turn, and tells
// the client how its limits stand. It returns an [*agentsvc.ExhaustedError] or a [ratelimit.ExhaustedError].
func (v *Visit) reserve(ctx context.Context, sub *task.Submission) (err error) {
	if v.house.Limits() != nil {
		in, span := trail.Start(ctx, "limits")
		ctx = in
		defer func() { trail.End(span, err) }()
	}
	states, settle, err := v.house.Reserve(ctx, sub)
	if v.rec != nil && len(states) > 0 {
		tellLimits(v.rec.Header(), states, err)
	}
	if err == nil {
		v.unhold()
		v.settle = settle
	}
	if rule := ruleOf(err); rule != "" && v.server.options.Refused != nil {
		v.server.options.Refused(v.App.Name, rule)
	}
	return err
}

// ruleOf names what refuses a call with err: a rule of a limit, without the agent that it may be about, or [BudgetRule].
// It is "" for any other error.
func ruleOf(err error) string {
	var limit *ratelimit.ExhaustedError
	var budget *agentsvc.ExhaustedError
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

// unhold gives back what is reserved for a call that came to nothing.
func (v *Visit) unhold() {
	if settle := v.settle; settle != nil {
		v.settle = nil
		settle()
	}
}

// tellLimits writes how rules stand: all of them in the fields of the IETF's draft (draft-ietf-httpapi-ratelimit-headers),
// and the tightest, or the one that refuses with err, in those that many clients know.
func tellLimits(h http.Header, states []ratelimit.State, err error) {
	var policies, now []string
	for _, s := range states {
		name := strconv.Quote(s.Name())
		policy := name + ";q=" + number(s.Limit) + ";w=" + number(int64(s.Reset.Sub(s.Start).Seconds()))
		if s.Unit == ratelimit.Tokens {
			policy += `;qu="tokens"`
		}
		policies = append(policies, policy)
		now = append(now, name+";r="+number(s.Remaining())+";t="+number(int64(s.Wait().Seconds())))
	}
	h["Ratelimit-Policy"] = []string{strings.Join(policies, ", ")}
	h["Ratelimit"] = []string{strings.Join(now, ", ")}
	tightest := ratelimit.Tightest(states)
	var e *ratelimit.ExhaustedError
	if errors.As(err, &e) && e.State != nil {
		tightest = *e.State
	}
	h["X-Ratelimit-Limit"] = []string{number(tightest.Limit)}
	h["X-Ratelimit-Remaining"] = []string{number(tightest.Remaining())}
	h["X-Ratelimit-Reset"] = []string{number(tightest.Reset.Unix())}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// limitDetails is what the caller is told of the rule that refuses.
func limitDetails(s *ratelimit.State) map[string]any {
	d := map[string]any{
		"rule": s.Name(), "scope": string(s.Scope), "type": string(s.Unit), "window": string(s.Window), "limit": s.Limit, "reset": Timestamp(s.Reset),
	}
	if s.Agent != "" {
		d["agent"] = s.Agent
	}
	return d
}
