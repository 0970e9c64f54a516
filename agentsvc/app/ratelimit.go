package app

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/store"
	"stoa/ratelimit"
)

// RateLimits are the rules that calls of an app's agents are counted by.
type RateLimits struct {
	limiter       *ratelimit.Limiter
	typicalTokens map[string]*atomic.Int64 // by agent: the tokens that its turns have used lately
	log           *slog.Logger
}

// externalCountTimeout is how long a call waits for the database of an app's own to count it.
const externalCountTimeout = 2 * time.Second

// newRateLimits returns the rules of the app's configuration and of its operator, nil where there are none.
func (b *builder) newRateLimits(h Dependencies) *RateLimits {
	r := b.cfg.RateLimiting
	configured := ratelimit.RuleSet{}
	if r.Enabled {
		for _, l := range r.Limits {
			configured.Rules = append(configured.Rules, ratelimit.Rule{
				Scope: ratelimit.Scope(r.Scope), Unit: ratelimit.Unit(l.Type), Window: ratelimit.Window(l.Window), Limit: int64(l.Limit),
			})
		}
	}
	operators := ratelimit.RuleSet{}
	for _, l := range b.tenant.Limits.Rates {
		operators.Rules = append(operators.Rules, ratelimit.Rule{
			Scope: ratelimit.Scope(l.Per), Agent: l.Agent, Unit: ratelimit.Unit(l.Type), Window: ratelimit.Window(l.Window), Limit: l.Limit,
		})
	}
	if len(configured.Rules)+len(operators.Rules) == 0 {
		return nil
	}
	counts := h.RateCounts
	if counts == nil {
		counts = ratelimit.NewBackends(h.DB, nil, b.log)
	}
	operators.Backend, configured.Backend = counts.Shared, b.countBackend(counts)
	l := &RateLimits{limiter: ratelimit.New(b.tenant.ID, configured, operators), typicalTokens: map[string]*atomic.Int64{}, log: b.log}
	for name := range b.cfg.Agents {
		l.typicalTokens[name] = new(atomic.Int64)
	}
	return l
}

// countBackend is where the configuration has its own rules counted.
func (b *builder) countBackend(c *ratelimit.Backends) ratelimit.Backend {
	r := b.cfg.RateLimiting
	configured := b.cfg.Databases[r.SQLDatabase]
	switch {
	case r.Backend == "memory":
		return c.Memory
	case configured == nil:
		return c.Platform
	}
	d := b.acquireExternalDatabase(configured)
	return ratelimit.NewFallback(ratelimit.NewSQL(d.awaitOpen), c.Platform, externalCountTimeout, "databases."+r.SQLDatabase, b.log)
}

// ReserveUsage counts a call, which holds what its turn will use at a guess. It returns a [ratelimit.ExhaustedError] if it may
// not be made. A nil Limits allows everything.
func (l *RateLimits) ReserveUsage(ctx context.Context, caller ratelimit.Caller, m agentsvc.Message) (ratelimit.CountedCall, error) {
	if l == nil {
		return ratelimit.CountedCall{}, nil
	}
	return l.limiter.ReserveCall(ctx, caller, l.estimateTokens(caller.Agent, m))
}

// bytesPerToken is what a token of English text has, more or less.
const bytesPerToken = 4

// estimateTokens returns how many tokens a turn will use: as many as those before it, but no fewer than its message has.
func (l *RateLimits) estimateTokens(agent string, m agentsvc.Message) int64 {
	n := int64(1)
	for _, content := range append(slices.Clip(m.PriorMessages), m) {
		for _, p := range content.Parts {
			n += int64(len(p.Text)) / bytesPerToken
		}
	}
	if u := l.typicalTokens[agent]; u != nil {
		n = max(n, u.Load())
	}
	return n
}

// commitTimeout bounds how long a worker waits until tokens are counted.
const commitTimeout = 3 * time.Second

// ReleaseReservation gives back what was reserved for a call that came to nothing.
func (l *RateLimits) ReleaseReservation(caller ratelimit.Caller, r ratelimit.Reservation) {
	l.commitReservation(context.Background(), caller, 0, r)
}

// releaseFunc gives back what turns hold that are cancelled, nil where there are no limits.
func (l *RateLimits) releaseFunc() func(t agentsvc.Task, note string) {
	if l == nil {
		return nil
	}
	return l.ReleaseTask
}

// ReleaseTask gives back what the turn of a task holds by its note, which nobody will settle. A nil Limits holds nothing.
func (l *RateLimits) ReleaseTask(t agentsvc.Task, note string) {
	if l != nil {
		l.ReleaseReservation(ratelimit.Caller{Agent: t.Agent, Owner: t.Owner}, ratelimit.ParseReservation(note))
	}
}

// recordRunUsage counts what a run has used.
func (l *RateLimits) recordRunUsage(ctx context.Context, run store.Run, s runner.UsageUpdate) {
	var r ratelimit.Reservation
	if s.First {
		r = ratelimit.ParseReservation(run.Reservation)
	}
	caller := ratelimit.Caller{Agent: run.Agent, Owner: run.Owner, Session: run.Context}
	if stored := ratelimit.ParseReservation(run.Reservation); stored.Tokens > 0 {
		caller.Session = stored.Session
	} else if run.Context == store.ContextIDForTask(run.Task) {
		caller.Session = "" // nobody has named it
	}
	if u := l.typicalTokens[run.Agent]; u != nil && s.Ended && s.TurnTokens > 0 { // before it is counted: who sees the count guesses by it
		if before := u.Load(); before == 0 {
			u.Store(s.TurnTokens)
		} else {
			u.Store(before + (s.TurnTokens-before)/4)
		}
	}
	l.commitReservation(ctx, caller, s.Tokens, r)
}

func (l *RateLimits) commitReservation(ctx context.Context, caller ratelimit.Caller, used int64, r ratelimit.Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := l.limiter.SettleTokens(ctx, caller, used, r); err != nil {
		l.log.Warn("the tokens of a turn could not be counted against its limits", "agent", caller.Agent, "tokens", used, "error", err)
	}
}

// RateLimits are the rules that calls of the app's agents are counted by; nil = there are none.
func (a *App) RateLimits() *RateLimits { return a.rateLimits }
