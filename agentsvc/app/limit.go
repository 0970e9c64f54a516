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

// Limits are the rules that calls of an app's agents are counted by.
type Limits struct {
	rules *ratelimit.Limiter
	usual map[string]*atomic.Int64 // by agent: the tokens that its turns have used lately
	log   *slog.Logger
}

// ownPatience is how long a call waits for the database of an app's own to count it.
const ownPatience = 2 * time.Second

// limits returns the rules of the app's configuration and of its operator, nil where there are none.
func (b *builder) limits(h House) *Limits {
	r := b.cfg.RateLimiting
	own := ratelimit.Set{}
	if r.Enabled {
		for _, l := range r.Limits {
			own.Rules = append(own.Rules, ratelimit.Rule{
				Scope: ratelimit.Scope(r.Scope), Unit: ratelimit.Unit(l.Type), Window: ratelimit.Window(l.Window), Limit: int64(l.Limit),
			})
		}
	}
	operators := ratelimit.Set{}
	for _, l := range b.tenant.Limits.Rates {
		operators.Rules = append(operators.Rules, ratelimit.Rule{
			Scope: ratelimit.Scope(l.Per), Agent: l.Agent, Unit: ratelimit.Unit(l.Type), Window: ratelimit.Window(l.Window), Limit: l.Limit,
		})
	}
	if len(own.Rules)+len(operators.Rules) == 0 {
		return nil
	}
	counts := h.Counts
	if counts == nil {
		counts = ratelimit.NewCounts(h.DB, nil, b.log)
	}
	operators.Place, own.Place = counts.Shared, b.countsIn(counts)
	l := &Limits{rules: ratelimit.New(b.tenant.ID, own, operators), usual: map[string]*atomic.Int64{}, log: b.log}
	for name := range b.cfg.Agents {
		l.usual[name] = new(atomic.Int64)
	}
	return l
}

// countsIn is where the configuration has its own rules counted.
func (b *builder) countsIn(c *ratelimit.Counts) ratelimit.Place {
	r := b.cfg.RateLimiting
	own := b.cfg.Databases[r.SQLDatabase]
	switch {
	case r.Backend == "memory":
		return c.Memory
	case own == nil:
		return c.Platform
	}
	d := b.borrow(own)
	return ratelimit.OrElse(ratelimit.NewSQL(d.soon), c.Platform, ownPatience, "databases."+r.SQLDatabase, b.log)
}

// Admit counts a call, which holds what its turn will use at a guess. It returns a [ratelimit.ExhaustedError] if it may
// not be made. A nil Limits allows everything.
func (l *Limits) Admit(ctx context.Context, who ratelimit.Caller, m agentsvc.Message) (ratelimit.Grant, error) {
	if l == nil {
		return ratelimit.Grant{}, nil
	}
	return l.rules.Take(ctx, who, l.guess(who.Agent, m))
}

// bytesPerToken is what a token of English text has, more or less.
const bytesPerToken = 4

// guess returns how many tokens a turn will use: as many as those before it, but no fewer than its message has.
func (l *Limits) guess(agent string, m agentsvc.Message) int64 {
	n := int64(1)
	for _, said := range append(slices.Clip(m.Earlier), m) {
		for _, p := range said.Parts {
			n += int64(len(p.Text)) / bytesPerToken
		}
	}
	if u := l.usual[agent]; u != nil {
		n = max(n, u.Load())
	}
	return n
}

// settleTime bounds how long a worker waits until tokens are counted.
const settleTime = 3 * time.Second

// Release gives back what was reserved for a call that came to nothing.
func (l *Limits) Release(who ratelimit.Caller, r ratelimit.Reserve) {
	l.settle(context.Background(), who, 0, r)
}

// unhold gives back what turns hold that are cancelled, nil where there are no limits.
func (l *Limits) unhold() func(t agentsvc.Task, note string) {
	if l == nil {
		return nil
	}
	return l.Unhold
}

// Unhold gives back what the turn of a task holds by its note, which nobody will settle. A nil Limits holds nothing.
func (l *Limits) Unhold(t agentsvc.Task, note string) {
	if l != nil {
		l.Release(ratelimit.Caller{Agent: t.Agent, Owner: t.Owner}, ratelimit.ReserveOf(note))
	}
}

// spent counts what a run has used.
func (l *Limits) spent(ctx context.Context, run store.Run, s runner.Spent) {
	var r ratelimit.Reserve
	if s.First {
		r = ratelimit.ReserveOf(run.Reserved)
	}
	who := ratelimit.Caller{Agent: run.Agent, Owner: run.Owner, Session: run.Context}
	if kept := ratelimit.ReserveOf(run.Reserved); kept.Tokens > 0 {
		who.Session = kept.Session
	} else if run.Context == store.FreshContext(run.Task) {
		who.Session = "" // nobody has named it
	}
	if u := l.usual[run.Agent]; u != nil && s.Over && s.Turn > 0 { // before it is counted: who sees the count guesses by it
		if before := u.Load(); before == 0 {
			u.Store(s.Turn)
		} else {
			u.Store(before + (s.Turn-before)/4)
		}
	}
	l.settle(ctx, who, s.Tokens, r)
}

func (l *Limits) settle(ctx context.Context, who ratelimit.Caller, used int64, r ratelimit.Reserve) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := l.rules.Spend(ctx, who, used, r); err != nil {
		l.log.Warn("the tokens of a turn could not be counted against its limits", "agent", who.Agent, "tokens", used, "error", err)
	}
}

// Limits are the rules that calls of the app's agents are counted by; nil = there are none.
func (a *App) Limits() *Limits { return a.limits }
