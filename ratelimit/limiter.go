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

// RuleSet is a list of rules whose counters are kept in one backend.
type RuleSet struct {
	Backend Backend
	Rules   []Rule
}

// Limiter applies the rules of one app. It is immutable and safe for concurrent use. A nil Limiter allows everything.
type Limiter struct {
	tenant db.ID
	// ruleSets has one element per backend, whose rules are sorted by name.
	ruleSets []RuleSet
	// countsTokens is set if a rule limits tokens.
	countsTokens bool
}

// New returns a limiter for a tenant, nil if there are no rules. Sets with the same backend are merged and counted in
// one step; different backends are counted in the order given.
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
		slices.SortFunc(s.Rules, func(a, b Rule) int { return cmp.Compare(a.Name(), b.Name()) }) // the order in which rows are locked, the same in all processes
		for _, r := range s.Rules {
			l.countsTokens = l.countsTokens || r.Unit == Tokens
		}
	}
	return l
}

// CountedCall is the result of [Limiter.ReserveCall]: the state of the rules, and what was reserved.
type CountedCall struct {
	States      []State
	Reservation TokenReservation
}

// ReserveCall counts a call and reserves tokens for it. A rule reserves at most its limit, so that any single call fits
// into an unused window. If a rule is used up it returns an [agentsvc.CodeExhausted] and nothing is counted: what other
// backends have counted before is undone. The states are returned in every case. tokens is the caller's estimate.
func (l *Limiter) ReserveCall(ctx context.Context, caller Caller, tokens int64) (CountedCall, error) {
	var g CountedCall
	if l == nil {
		return g, nil
	}
	if !l.countsTokens {
		tokens = 0
	}
	var applied []appliedIncrement
	times := make([]time.Time, len(l.ruleSets))
	for i, s := range l.ruleSets {
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
		times[i] = out.now
		if tokens > 0 {
			g.Reservation = TokenReservation{Tokens: tokens, At: out.now}
		}
	}
	if tokens > 0 && len(times) > 1 && len(applied) > 0 {
		g.Reservation.Times = times
	}
	return g, nil
}

// appliedIncrement is an increment with its outcome.
type appliedIncrement struct {
	*increment
	outcome
}

// undoIncrements takes back, after a backend refused, what the backends before it counted, and returns the states of
// their rules. A failure is ignored: the surplus ends with its window. Only windows that still last are changed.
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
		_, _ = t.backend.addCounters(ctx, l.tenant, reversal.countersAt) // on failure the count stays until the window ends
		t.fits = false
		states = append(states, t.ruleStates(t.outcome)...)
	}
	return states
}

// undoTimeout bounds how long undoIncrements delays the refusal.
const undoTimeout = time.Second

// SettleTokens counts the tokens that a turn used and gives back the reservation r, in one step for each backend. A
// reservation is given back only in the windows in which it was made; in later ones it does not exist. It never
// refuses, because the tokens are used already. caller must be the one that was counted.
func (l *Limiter) SettleTokens(ctx context.Context, caller Caller, used int64, r TokenReservation) error {
	if l == nil || !l.countsTokens || used == 0 && r.Tokens == 0 {
		return nil
	}
	var errs []error
	for i, s := range l.ruleSets {
		at := r.timeAt(i, len(l.ruleSets))
		m := l.newIncrement(s, caller, func(rule Rule, start, end time.Time) int64 {
			if isInWindow(at, start, end) {
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

// isInWindow reports whether t is in the window; end is exclusive.
func isInWindow(t, start, end time.Time) bool { return !t.Before(start) && t.Before(end) }

// countedRule is a rule with the name of the counter that a caller belongs to.
type countedRule struct {
	Rule
	counterName string
}

// increment is a change to the counters of one caller in one backend.
type increment struct {
	backend Backend
	rules   []countedRule
	// isAnonymous says that the caller has no credential.
	isAnonymous bool
	// amount returns what to add to a rule's counter in the window from start to end.
	amount func(r Rule, start, end time.Time) int64
	// bounded makes the limits apply; without it everything is added.
	bounded bool
}

// newIncrement returns the increment for those rules of s that concern caller.
func (l *Limiter) newIncrement(s RuleSet, caller Caller, amount func(r Rule, start, end time.Time) int64) *increment {
	m := &increment{backend: s.Backend, isAnonymous: caller.isAnonymous(), amount: amount, rules: make([]countedRule, 0, len(s.Rules))}
	for _, r := range s.Rules {
		if name, ok := r.counterFor(caller); ok {
			m.rules = append(m.rules, countedRule{r, name})
		}
	}
	return m
}

// countersAt returns the counters of the windows that contain now. The start of the window is part of the key, so that
// a new window begins with a new counter.
func (inc *increment) countersAt(now time.Time) []counter {
	cs := make([]counter, len(inc.rules))
	for i, r := range inc.rules {
		start, end := r.Window.BoundsAt(now)
		cs[i] = counter{key: r.counterName + ":" + strconv.FormatInt(start.Unix(), 36), start: start, end: end, amount: inc.amount(r.Rule, start, end), limit: unlimited}
		if inc.bounded {
			cs[i].limit = r.Limit
		}
	}
	return cs
}

// ruleStates returns the states of the rules after out.
func (inc *increment) ruleStates(out outcome) []State {
	states := make([]State, len(inc.rules))
	for i, c := range out.counters {
		states[i] = State{Rule: inc.rules[i].Rule, Used: out.used[i], Start: c.start, Reset: c.end, Now: out.now}
		if out.fits {
			states[i].Used += c.amount
		}
	}
	return states
}

// exhaustedError returns the error of the refusing rule whose window ends last, nil if the amounts were
// added.
func (inc *increment) exhaustedError(out outcome) error {
	if out.fits {
		return nil
	}
	var last *State
	for i, s := range inc.ruleStates(out) {
		if s.Used+out.counters[i].amount > s.Limit && (last == nil || s.Reset.After(last.Reset)) {
			last = &s
		}
	}
	return last.newExhaustedError(inc.isAnonymous)
}
