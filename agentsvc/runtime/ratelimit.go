package runtime

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

// RateLimits enforces the limits on calls of an app's agents: those of its configuration and those of its operator. A
// nil RateLimits allows everything.
type RateLimits struct {
	limiter *ratelimit.Limiter
	// typicalTokens is, by agent, a moving average of the tokens that a turn uses. The map is read-only, its values are
	// atomic. It starts at 0 in each process.
	typicalTokens map[string]*atomic.Int64
	// countsSessions says that calls are counted by session.
	countsSessions bool
	log            *slog.Logger
}

// externalCountTimeout bounds how long a call waits for the app's own database to count it. After that it is counted in
// the platform's.
const externalCountTimeout = 2 * time.Second

// newRateLimits returns the app's limits, nil if it has none. Operator limits are counted in the platform's backend,
// whatever the configuration says.
func (b *databaseBuilder) newRateLimits(h Dependencies) *RateLimits {
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
	l := &RateLimits{limiter: ratelimit.New(b.tenant.ID, configured, operators), typicalTokens: map[string]*atomic.Int64{}, countsSessions: r.Enabled && r.Scope == "session", log: b.log}
	for name := range b.cfg.Agents {
		l.typicalTokens[name] = new(atomic.Int64)
	}
	return l
}

// countBackend returns the backend that counts the limits of the configuration: this process's memory, the platform's,
// or a database of the app's own with the platform's as a fallback.
func (b *databaseBuilder) countBackend(c *ratelimit.Backends) ratelimit.Backend {
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

// CountCall counts a call and reserves an estimate of the tokens that its turn will use. If a limit is exhausted it
// returns an error with [agentsvc.CodeExhausted].
func (l *RateLimits) CountCall(ctx context.Context, caller ratelimit.Caller, m agentsvc.Message) (ratelimit.CountedCall, error) {
	if l == nil {
		return ratelimit.CountedCall{}, nil
	}
	return l.limiter.ReserveCall(ctx, caller, l.estimateTokens(caller.Agent, m))
}

// bytesPerToken is a rough average for English text.
const bytesPerToken = 4

// estimateTokens returns an estimate of the tokens that a turn will use: the average of earlier turns, but at least the
// size of its message.
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

// ReleaseTokens returns what was reserved for a call whose turn was not accepted.
func (l *RateLimits) ReleaseTokens(caller ratelimit.Caller, r ratelimit.TokenReservation) {
	l.settleTokens(context.Background(), caller, 0, r)
}

// releaseFunc returns the function that releases what cancelled turns have reserved, nil if there are no limits.
func (l *RateLimits) releaseFunc() func(t agentsvc.Task, note string) {
	if l == nil {
		return nil
	}
	return l.ReleaseTask
}

// ReleaseTask returns what the turn of a task has reserved, which note encodes. It is for a turn that will not be
// settled. It does nothing for a nil receiver.
func (l *RateLimits) ReleaseTask(t agentsvc.Task, note string) {
	if l != nil {
		l.ReleaseTokens(ratelimit.Caller{Agent: t.Agent, Owner: t.Owner, Session: t.Context}, ratelimit.ParseTokenReservation(note))
	}
}

// recordRunUsage counts what a run has used. The first update of a turn also settles its reservation.
func (l *RateLimits) recordRunUsage(ctx context.Context, run store.Run, s runner.UsageUpdate) {
	var r ratelimit.TokenReservation
	if s.First {
		r = ratelimit.ParseTokenReservation(run.LimitReservation)
	}
	caller := ratelimit.Caller{Agent: run.Agent, Owner: run.Owner, Session: run.Context}
	// The average is updated before the tokens are counted: a caller that sees the new count must also get the new
	// estimate. It moves by a quarter of the difference.
	if u := l.typicalTokens[run.Agent]; u != nil && s.Ended && s.TurnTokens > 0 {
		if before := u.Load(); before == 0 {
			u.Store(s.TurnTokens)
		} else {
			u.Store(before + (s.TurnTokens-before)/4)
		}
	}
	l.settleTokens(ctx, caller, s.Tokens, r)
}

// settleTokens replaces a reservation by the tokens that were used. A failure is logged: the reservation expires
// with its window.
func (l *RateLimits) settleTokens(ctx context.Context, caller ratelimit.Caller, used int64, r ratelimit.TokenReservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := l.limiter.SettleTokens(ctx, caller, used, r); err != nil {
		l.log.Warn("the tokens of a turn could not be counted against its limits", "agent", caller.Agent, "tokens", used, "error", err)
	}
}

// RateLimits returns the app's limits; nil if it has none.
func (rt *Runtime) RateLimits() *RateLimits { return rt.rateLimits }
