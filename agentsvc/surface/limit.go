package surface

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/ratelimit"
)

// AdmitCall counts a call to an agent against the app's budgets and limits, sets sub.LimitReservation to what is reserved
// for its turn, and sets the rate limit headers of the response. It returns the errors of
// [runtime.Runtime.AdmitCall]; then nothing is reserved.
//
// What is reserved here are tokens of rate limits, an estimate. Once a turn is written it owns the reservation, and the
// worker that runs it settles it with what the models report. Until then req owns it: [Request.ReleaseApp] gives it back.
// Budgets are only checked here; each model call reserves its own cost from them.
func (req *Request) AdmitCall(ctx context.Context, sub *task.Submission) (err error) {
	if req.Runtime.RateLimits() != nil {
		in, span := trail.StartSpan(ctx, "limits")
		ctx = in
		defer func() { trail.EndSpan(span, err) }()
	}
	states, releaseTokens, err := req.Runtime.AdmitCall(ctx, sub)
	if req.requestRecord != nil && len(states) > 0 {
		writeLimitHeaders(req.requestRecord.writer.Header(), states, err)
	}
	if err == nil {
		req.releaseReservedTokens()
		req.releaseTokens = releaseTokens
	}
	if rule := exhaustedRule(err); rule != "" && req.server.options.OnRefused != nil {
		req.server.options.OnRefused(req.App.Name, rule)
	}
	return err
}

// exhaustedRule returns the name for metrics of the rule that refused a call with err: of a limit, without the agent,
// whose name would make too many labels, or [BudgetRule]. It returns "" for any other error.
func exhaustedRule(err error) string {
	if limit := agentsvc.DetailOf[*ratelimit.State](err); limit != nil {
		rule := limit.Rule
		rule.Agent = ""
		return rule.Name()
	}
	if agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) != nil {
		return BudgetRule
	}
	return ""
}

// BudgetRule is the name that stands for every budget where refused calls are counted.
const BudgetRule = "budget"

// releaseReservedTokens releases what limits reserved for the call, unless a turn was written that carries it. It may be
// called more than once.
func (req *Request) releaseReservedTokens() {
	if releaseTokens := req.releaseTokens; releaseTokens != nil {
		req.releaseTokens = nil
		releaseTokens()
	}
}

// writeLimitHeaders sets the rate limit headers: RateLimit-Policy and RateLimit with every rule
// (draft-ietf-httpapi-ratelimit-headers; q and r are amounts, w and t seconds), and X-RateLimit-* with one rule, the
// one that refused the call with err or else the tightest. X-RateLimit-Reset is in seconds since 1970. See
// docs/limits.md.
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
	// The keys are in canonical form: assigning them saves Set's canonicalization and its copy.
	h["Ratelimit-Policy"] = []string{strings.Join(policies, ", ")}
	h["Ratelimit"] = []string{strings.Join(now, ", ")}
	tightest := ratelimit.TightestState(states)
	if refusing := agentsvc.DetailOf[*ratelimit.State](err); refusing != nil {
		tightest = *refusing
	}
	h["X-Ratelimit-Limit"] = []string{formatInt(tightest.Limit)}
	h["X-Ratelimit-Remaining"] = []string{formatInt(tightest.Remaining())}
	h["X-Ratelimit-Reset"] = []string{formatInt(tightest.Reset.Unix())}
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
