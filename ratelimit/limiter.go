package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"stoa/tenancy/db"
)

// Set is rules whose counts are kept in one place.
type Set struct {
	Place Place
	Rules []Rule
}

// Limiter holds the rules of one app. It is safe for concurrent use, and a nil one allows everything.
type Limiter struct {
	tenant db.ID
	sets   []Set
	tokens bool // some rule is about them
}

// New returns a limiter of a tenant, nil where there are no rules. Sets of one place are counted in one step; those of
// several places in their order.
func New(tenant db.ID, sets ...Set) *Limiter {
	l := &Limiter{tenant: tenant}
	for _, s := range sets {
		if len(s.Rules) == 0 {
			continue
		}
		i := slices.IndexFunc(l.sets, func(x Set) bool { return x.Place == s.Place })
		if i < 0 {
			i = len(l.sets)
			l.sets = append(l.sets, Set{Place: s.Place})
		}
		l.sets[i].Rules = append(l.sets[i].Rules, s.Rules...)
	}
	if len(l.sets) == 0 {
		return nil
	}
	for _, s := range l.sets {
		slices.SortFunc(s.Rules, func(a, b Rule) int { return cmp.Compare(a.Name(), b.Name()) }) // all lock in one order
		for _, r := range s.Rules {
			l.tokens = l.tokens || r.Unit == Tokens
		}
	}
	return l
}

// Grant is a call that was counted.
type Grant struct {
	States  []State
	Reserve Reserve
}

// Take counts a call, and reserves tokens for what will be made of it, but of no rule more than its limit: so a window in
// which nothing was used has room for any one call. It returns an [ExhaustedError] if a rule has no room left,
// and has counted nothing then; the grant tells how the rules stand in any case.
func (l *Limiter) Take(ctx context.Context, who Caller, tokens int64) (Grant, error) {
	var g Grant
	if l == nil {
		return g, nil
	}
	if !l.tokens {
		tokens = 0
	}
	var taken []made
	for _, s := range l.sets {
		m := l.move(s, who, func(r Rule, _, _ time.Time) int64 {
			if r.Unit == Tokens {
				return r.reserves(tokens)
			}
			return 1
		})
		if len(m.rules) == 0 {
			continue
		}
		m.bounded = true
		out, err := s.Place.add(ctx, l.tenant, m.counters)
		if err == nil {
			err = m.refusal(out)
		}
		if err != nil {
			g.States = l.undo(ctx, taken)
			if out.counters != nil {
				g.States = append(g.States, m.states(out)...)
			}
			return g, err
		}
		taken = append(taken, made{m, out})
		g.States = append(g.States, m.states(out)...)
		if tokens > 0 {
			g.Reserve = Reserve{Tokens: tokens, At: out.now, Session: who.Session}
		}
	}
	return g, nil
}

// made is a move and what came of it.
type made struct {
	*move
	outcome
}

// undo gives back what one place took before another refused, and returns how the rules stand there.
func (l *Limiter) undo(ctx context.Context, taken []made) (states []State) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	for _, t := range taken {
		back := *t.move
		back.bounded = false
		back.amount = func(r Rule, start, end time.Time) int64 {
			if within(t.now, start, end) {
				return -t.amount(r, start, end)
			}
			return 0
		}
		_, _ = t.place.add(ctx, l.tenant, back.counters) // else it lapses with its window
		t.fits = false
		states = append(states, t.states(t.outcome)...)
	}
	return states
}

// undoTime bounds how long a refused caller waits until what another place had taken is given back.
const undoTime = time.Second

// Spend counts the tokens that were used and gives back what was reserved for them, as far as the windows last in which
// it was; what was reserved in others has lapsed with them. It refuses nothing: what was used is used.
func (l *Limiter) Spend(ctx context.Context, who Caller, used int64, r Reserve) error {
	if l == nil || !l.tokens || used == 0 && r.Tokens == 0 {
		return nil
	}
	if r.Tokens > 0 {
		who.Session = r.Session
	}
	var errs []error
	for _, s := range l.sets {
		m := l.move(s, who, func(rule Rule, start, end time.Time) int64 {
			if within(r.At, start, end) {
				return used - rule.reserves(r.Tokens)
			}
			return used
		})
		m.rules = slices.DeleteFunc(m.rules, func(c counted) bool { return c.Unit != Tokens })
		if len(m.rules) == 0 {
			continue
		}
		_, err := s.Place.add(ctx, l.tenant, m.counters)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func within(t, start, end time.Time) bool { return !t.Before(start) && t.Before(end) }

// counted is a rule and the count that a caller belongs to.
type counted struct {
	Rule
	name string
}

// move is what is to be added for a caller in one place.
type move struct {
	place   Place
	rules   []counted
	amount  func(r Rule, start, end time.Time) int64
	bounded bool // by the limits
}

func (l *Limiter) move(s Set, who Caller, amount func(r Rule, start, end time.Time) int64) *move {
	m := &move{place: s.Place, amount: amount, rules: make([]counted, 0, len(s.Rules))}
	for _, r := range s.Rules {
		if name, ok := r.counts(who); ok {
			m.rules = append(m.rules, counted{r, name})
		}
	}
	return m
}

func (m *move) counters(now time.Time) []counter {
	cs := make([]counter, len(m.rules))
	for i, r := range m.rules {
		start, end := r.Window.Around(now)
		cs[i] = counter{key: r.name + ":" + strconv.FormatInt(start.Unix(), 36), start: start, end: end, amount: m.amount(r.Rule, start, end), limit: unlimited}
		if m.bounded {
			cs[i].limit = r.Limit
		}
	}
	return cs
}

// states returns how the rules stand after out.
func (m *move) states(out outcome) []State {
	states := make([]State, len(m.rules))
	for i, c := range out.counters {
		states[i] = State{Rule: m.rules[i].Rule, Used: out.used[i], Start: c.start, Reset: c.end, Now: out.now}
		if out.fits {
			states[i].Used += c.amount
		}
	}
	return states
}

// refusal returns the error of the rule that refuses longest, nil where none does.
func (m *move) refusal(out outcome) error {
	if out.fits {
		return nil
	}
	var last *State
	for i, s := range m.states(out) {
		if s.Used+out.counters[i].amount > s.Limit && (last == nil || s.Reset.After(last.Reset)) {
			last = &s
		}
	}
	return &ExhaustedError{RetryAfter: last.Wait(), State: last}
}
