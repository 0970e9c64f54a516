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

// RuleSet is rules whose counts are kept in one place.
type RuleSet struct {
	Backend Backend
	Rules   []Rule
}

// Limiter holds the rules of one app. It is safe for concurrent use, and a nil one allows everything.
type Limiter struct {
	tenant       db.ID
	ruleSets     []RuleSet
	countsTokens bool // some rule is about them
}

// New returns a limiter of a tenant, nil where there are no rules. Sets of one place are counted in one step; those of
// several places in their order.
func New(tenant db.ID, sets ...RuleSet) *Limiter {
	l := &Limiter{tenant: tenant}
	for _, s := range sets {
		if len(s.Rules) == 0 {
			continue
		}
		i := slices.IndexFunc(l.ruleSets, func(x RuleSet) bool { return x.Backend == s.Backend })
		if i < 0 {
			i = len(l.ruleSets)
			l.ruleSets = append(l.ruleSets, RuleSet{Backend: s.Backend})
		}
		l.ruleSets[i].Rules = append(l.ruleSets[i].Rules, s.Rules...)
	}
	if len(l.ruleSets) == 0 {
		return nil
	}
	for _, s := range l.ruleSets {
		slices.SortFunc(s.Rules, func(a, b Rule) int { return cmp.Compare(a.Name(), b.Name()) }) // all lock in one order
		for _, r := range s.Rules {
			l.countsTokens = l.countsTokens || r.Unit == Tokens
		}
	}
	return l
}

// CountedCall is a call that was counted.
type CountedCall struct {
	States      []State
	Reservation Reservation
}

// ReserveCall counts a call, and reserves tokens for what will be made of it, but of no rule more than its limit: so a window in
// which nothing was used has room for any one call. It returns an [ExhaustedError] if a rule has no room left,
// and has counted nothing then; the grant tells how the rules stand in any case.
func (l *Limiter) ReserveCall(ctx context.Context, caller Caller, tokens int64) (CountedCall, error) {
	var g CountedCall
	if l == nil {
		return g, nil
	}
	if !l.countsTokens {
		tokens = 0
	}
	var applied []appliedIncrement
	for _, s := range l.ruleSets {
		m := l.newIncrement(s, caller, func(r Rule, _, _ time.Time) int64 {
			if r.Unit == Tokens {
				return r.reservedTokens(tokens)
			}
			return 1
		})
		if len(m.rules) == 0 {
			continue
		}
		m.bounded = true
		out, err := s.Backend.addCounters(ctx, l.tenant, m.countersAt)
		if err == nil {
			err = m.exhaustedError(out)
		}
		if err != nil {
			g.States = l.undoIncrements(ctx, applied)
			if out.counters != nil {
				g.States = append(g.States, m.ruleStates(out)...)
			}
			return g, err
		}
		applied = append(applied, appliedIncrement{m, out})
		g.States = append(g.States, m.ruleStates(out)...)
		if tokens > 0 {
			g.Reservation = Reservation{Tokens: tokens, At: out.now, Session: caller.Session}
		}
	}
	return g, nil
}

// appliedIncrement is a move and what came of it.
type appliedIncrement struct {
	*increment
	outcome
}

// undoIncrements gives back what one place took before another refused, and returns how the rules stand there.
func (l *Limiter) undoIncrements(ctx context.Context, applied []appliedIncrement) (states []State) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, t := range applied {
		reversal := *t.increment
		reversal.bounded = false
		reversal.amount = func(r Rule, start, end time.Time) int64 {
			if isInWindow(t.now, start, end) {
				return -t.amount(r, start, end)
			}
			return 0
		}
		_, _ = t.backend.addCounters(ctx, l.tenant, reversal.countersAt) // else it lapses with its window
		t.fits = false
		states = append(states, t.ruleStates(t.outcome)...)
	}
	return states
}

// undoTimeout bounds how long a refused caller waits until what another place had taken is given back.
const undoTimeout = time.Second

// SettleTokens counts the tokens that were used and gives back what was reserved for them, as far as the windows last in which
// it was; what was reserved in others has lapsed with them. It refuses nothing: what was used is used.
func (l *Limiter) SettleTokens(ctx context.Context, caller Caller, used int64, r Reservation) error {
	if l == nil || !l.countsTokens || used == 0 && r.Tokens == 0 {
		return nil
	}
	if r.Tokens > 0 {
		caller.Session = r.Session
	}
	var errs []error
	for _, s := range l.ruleSets {
		m := l.newIncrement(s, caller, func(rule Rule, start, end time.Time) int64 {
			if isInWindow(r.At, start, end) {
				return used - rule.reservedTokens(r.Tokens)
			}
			return used
		})
		m.rules = slices.DeleteFunc(m.rules, func(c countedRule) bool { return c.Unit != Tokens })
		if len(m.rules) == 0 {
			continue
		}
		_, err := s.Backend.addCounters(ctx, l.tenant, m.countersAt)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func isInWindow(t, start, end time.Time) bool { return !t.Before(start) && t.Before(end) }

// countedRule is a rule and the count that a caller belongs to.
type countedRule struct {
	Rule
	counterName string
}

// increment is what is to be added for a caller in one place.
type increment struct {
	backend Backend
	rules   []countedRule
	amount  func(r Rule, start, end time.Time) int64
	bounded bool // by the limits
}

func (l *Limiter) newIncrement(s RuleSet, caller Caller, amount func(r Rule, start, end time.Time) int64) *increment {
	m := &increment{backend: s.Backend, amount: amount, rules: make([]countedRule, 0, len(s.Rules))}
	for _, r := range s.Rules {
		if name, ok := r.counterFor(caller); ok {
			m.rules = append(m.rules, countedRule{r, name})
		}
	}
	return m
}

func (m *increment) countersAt(now time.Time) []counter {
	cs := make([]counter, len(m.rules))
	for i, r := range m.rules {
		start, end := r.Window.BoundsAt(now)
		cs[i] = counter{key: r.counterName + ":" + strconv.FormatInt(start.Unix(), 36), start: start, end: end, amount: m.amount(r.Rule, start, end), limit: unlimited}
		if m.bounded {
			cs[i].limit = r.Limit
		}
	}
	return cs
}

// ruleStates returns how the rules stand after out.
func (m *increment) ruleStates(out outcome) []State {
	states := make([]State, len(m.rules))
	for i, c := range out.counters {
		states[i] = State{Rule: m.rules[i].Rule, Used: out.used[i], Start: c.start, Reset: c.end, Now: out.now}
		if out.fits {
			states[i].Used += c.amount
		}
	}
	return states
}

// exhaustedError returns the error of the rule that refuses longest, nil where none does.
func (m *increment) exhaustedError(out outcome) error {
	if out.fits {
		return nil
	}
	var last *State
	for i, s := range m.ruleStates(out) {
		if s.Used+out.counters[i].amount > s.Limit && (last == nil || s.Reset.After(last.Reset)) {
			last = &s
		}
	}
	return &ExhaustedError{RetryAfter: last.RetryAfter(), State: last}
}
