package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"stoa/agentsvc"
	"stoa/ratelimit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// forEachBackend runs f with a constructor of backends that count together, as those of several processes do.
func forEachBackend(t *testing.T, f func(t *testing.T, newBackend func() ratelimit.Backend)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		m := ratelimit.NewMemory()
		f(t, func() ratelimit.Backend { return m })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, func() ratelimit.Backend { return ratelimit.NewRedis(newRedisClient(t)) })
	})
	for engine, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.NewSQLite, "postgres": dbtest.NewPostgres} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			f(t, func() ratelimit.Backend { return newSQLBackend(d) })
		})
	}
}

func newSQLBackend(d *db.DB) ratelimit.Backend {
	return ratelimit.NewSQL(func(context.Context) (*db.DB, error) { return d, nil })
}

func newRedisClient(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(redisOptions(t))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redisOptions(t *testing.T) *redis.Options {
	t.Helper()
	o, err := redis.ParseURL(dbtest.RequireRedisURL(t))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// newTenantID returns an id that no other test uses.
func newTenantID() db.ID { return db.ID(agentsvc.NewID()) }

func callRule(s ratelimit.Scope, w ratelimit.Window, limit int64) ratelimit.Rule {
	return ratelimit.Rule{Scope: s, Unit: ratelimit.Calls, Window: w, Limit: limit}
}

func tokenRule(s ratelimit.Scope, w ratelimit.Window, limit int64) ratelimit.Rule {
	return ratelimit.Rule{Scope: s, Unit: ratelimit.Tokens, Window: w, Limit: limit}
}

func callerAna(session string) ratelimit.Caller { return newCaller("ana", session) }

func newCaller(subject, session string) ratelimit.Caller {
	return ratelimit.Caller{Agent: "helper", Owner: agentsvc.Owner{Issuer: "here", Subject: subject}, Session: agentsvc.ContextID(session)}
}

// reserveCall returns what is left of each rule, and whether the call was counted.
func reserveCall(t *testing.T, l *ratelimit.Limiter, caller ratelimit.Caller, n int64) (left map[string]int64, ok bool, r ratelimit.TokenReservation) {
	t.Helper()
	g, err := l.ReserveCall(t.Context(), caller, n)
	if err != nil && !errors.Is(err, agentsvc.CodeExhausted) {
		t.Fatal(err)
	}
	left = map[string]int64{}
	for _, s := range g.States {
		left[s.Name()] = s.Remaining()
	}
	return left, err == nil, g.Reservation
}

func TestReserveCallIsAllOrNothing(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: newBackend(), Rules: []ratelimit.Rule{
			callRule(ratelimit.PerUser, ratelimit.Day, 3), callRule(ratelimit.PerApp, ratelimit.Month, 5), tokenRule(ratelimit.PerUser, ratelimit.Week, 100),
		}})
		const user, app, week = "user-count-day", "app-count-month", "user-token-week"
		for i, step := range []struct {
			who    string
			tokens int64
			ok     bool
			left   map[string]int64
		}{
			{"ana", 10, true, map[string]int64{user: 2, app: 4, week: 90}},
			{"ana", 91, false, map[string]int64{user: 2, app: 4, week: 90}},
			{"ana", 90, true, map[string]int64{user: 1, app: 3, week: 0}},
			{"ana", 1, false, map[string]int64{user: 1, app: 3, week: 0}},
			{"ben", 1000, true, map[string]int64{user: 2, app: 2, week: 0}}, // more than the limit fits into an unused window
			{"cleo", 1, true, map[string]int64{user: 2, app: 1, week: 99}},
			{"cleo", 1, true, map[string]int64{user: 1, app: 0, week: 98}},
			{"cleo", 1, false, map[string]int64{user: 1, app: 0, week: 98}},
		} {
			left, ok, _ := reserveCall(t, l, newCaller(step.who, ""), step.tokens)
			if diff := cmp.Diff(step.left, left); ok != step.ok || diff != "" {
				t.Errorf("step %d: let in: %v, want %v; left (-want +got):\n%s", i, ok, step.ok, diff)
			}
		}
	})
}

func TestRefusalNamesTheRule(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: newBackend(), Rules: []ratelimit.Rule{
			callRule(ratelimit.PerUser, ratelimit.Day, 1), callRule(ratelimit.PerUser, ratelimit.Month, 1), callRule(ratelimit.PerApp, ratelimit.Month, 5),
		}})
		reserveCall(t, l, callerAna(""), 0)
		_, err := l.ReserveCall(t.Context(), callerAna(""), 0)
		state := agentsvc.DetailOf[*ratelimit.State](err)
		var e *agentsvc.Error
		if !errors.As(err, &e) || e.Code != agentsvc.CodeExhausted || state == nil {
			t.Fatalf("got %v, want a refusal with a state", err)
		}
		_, end := ratelimit.Month.BoundsAt(time.Now())
		if state.Name() != "user-count-month" || !state.Reset.Equal(end) || e.RetryAfter < time.Until(end) || e.RetryAfter > time.Until(end)+2*time.Second {
			t.Errorf("refused by %s until %v, after %v; want the month until %v", state.Name(), state.Reset, e.RetryAfter, end)
		}
		if want := "limit reached: 1 call a month per user, try again in"; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("it says %q, want %q and the seconds", err, want)
		}
	})
}

// TestExactUnderLoad sends 200 calls through two limiters at once: exactly as many pass as the tightest rule allows,
// and refused ones are not counted.
func TestExactUnderLoad(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		id := newTenantID()
		rules := []ratelimit.Rule{
			callRule(ratelimit.PerApp, ratelimit.Day, 37), tokenRule(ratelimit.PerApp, ratelimit.Month, 1000), callRule(ratelimit.PerUser, ratelimit.Month, 30),
		}
		limiters := []*ratelimit.Limiter{
			ratelimit.New(id, ratelimit.RuleSet{Backend: newBackend(), Rules: rules}), ratelimit.New(id, ratelimit.RuleSet{Backend: newBackend(), Rules: rules}),
		}
		var in atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				_, err := limiters[i%2].ReserveCall(t.Context(), newCaller([]string{"ana", "ben"}[i/2%2], ""), 10)
				switch {
				case err == nil:
					in.Add(1)
				case !errors.Is(err, agentsvc.CodeExhausted):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if in.Load() != 37 {
			t.Errorf("%d were let in, want 37", in.Load())
		}
		left, ok, _ := reserveCall(t, limiters[0], newCaller("cleo", ""), 1)
		if want := map[string]int64{"app-count-day": 0, "app-token-month": 1000 - 370, "user-count-month": 30}; ok || cmp.Diff(want, left) != "" {
			t.Errorf("let in: %v, left %v; want %v", ok, left, want)
		}
	})
}

// TestSettleTokens checks that a reservation is given back once and the used tokens are counted.
func TestSettleTokens(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: newBackend(), Rules: []ratelimit.Rule{
			tokenRule(ratelimit.PerUser, ratelimit.Month, 1000), callRule(ratelimit.PerUser, ratelimit.Month, 10),
		}})
		left := func() int64 {
			t.Helper()
			seen, ok, r := reserveCall(t, l, callerAna(""), 1)
			if !ok {
				t.Fatal("refused")
			}
			if err := l.SettleTokens(t.Context(), callerAna(""), 0, r); err != nil {
				t.Fatal(err)
			}
			return seen["user-token-month"] + 1
		}
		_, _, r := reserveCall(t, l, callerAna(""), 100)
		if r = ratelimit.ParseTokenReservation(r.EncodeText()); left() != 900 {
			t.Fatalf("%d are left after 100 were reserved", left())
		}
		for i, step := range []struct {
			used    int64
			reserve ratelimit.TokenReservation
			left    int64
		}{
			{250, r, 750},
			{50, ratelimit.TokenReservation{}, 700},
			{0, ratelimit.TokenReservation{Tokens: 100, At: r.At.AddDate(0, -1, 0)}, 700}, // its month has ended
			{0, ratelimit.TokenReservation{Tokens: 5000, At: r.At}, 1000},                 // a count is never negative
			{999, ratelimit.TokenReservation{}, 1},
		} {
			if err := l.SettleTokens(t.Context(), callerAna(""), step.used, step.reserve); err != nil {
				t.Fatal(err)
			}
			if n := left(); n != step.left {
				t.Errorf("step %d: %d are left, want %d", i, n, step.left)
			}
		}
		if err := l.SettleTokens(t.Context(), callerAna(""), 9000, ratelimit.TokenReservation{}); err != nil {
			t.Fatal(err)
		}
		if seen, ok, _ := reserveCall(t, l, callerAna(""), 1); ok || seen["user-token-month"] != 0 {
			t.Errorf("let in: %v, left %v, although far more was used than is allowed", ok, seen)
		}
	})
}

// TestRulesReserveByThemselves checks that a call reserves its estimate of each rule up to that rule's own limit, and
// gives the same back; also for stored reservations of no more than the smallest limit.
func TestRulesReserveByThemselves(t *testing.T) {
	t.Parallel()
	const app, each, other = "app-token-day", "agent-token-day", "agent-other-token-day"
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		named := tokenRule(ratelimit.PerAgent, ratelimit.Day, 10)
		named.Agent = "other"
		l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: newBackend(), Rules: []ratelimit.Rule{
			tokenRule(ratelimit.PerApp, ratelimit.Day, 1000), tokenRule(ratelimit.PerAgent, ratelimit.Day, 300), named,
		}})
		otherCaller := callerAna("")
		otherCaller.Agent = "other"
		var reservations []ratelimit.TokenReservation
		for i, step := range []struct {
			who    ratelimit.Caller
			tokens int64
			ok     bool
			left   map[string]int64
		}{
			{callerAna(""), 400, true, map[string]int64{app: 600, each: 0}}, // an unused window
			{callerAna(""), 1, false, map[string]int64{app: 600, each: 0}},
			{otherCaller, 200, true, map[string]int64{app: 400, each: 100, other: 0}},
			{otherCaller, 1, false, map[string]int64{app: 400, each: 100, other: 0}},
		} {
			left, ok, r := reserveCall(t, l, step.who, step.tokens)
			if diff := cmp.Diff(step.left, left); ok != step.ok || diff != "" {
				t.Errorf("step %d: let in: %v, want %v; left (-want +got):\n%s", i, ok, step.ok, diff)
			}
			if ok {
				reservations = append(reservations, ratelimit.ParseTokenReservation(r.EncodeText()))
			}
		}
		settleTokens := func(caller ratelimit.Caller, used int64, r ratelimit.TokenReservation) {
			t.Helper()
			if err := l.SettleTokens(t.Context(), caller, used, r); err != nil {
				t.Fatal(err)
			}
		}
		settleTokens(callerAna(""), 50, reservations[0])
		settleTokens(otherCaller, 4, reservations[1])
		left, ok, r := reserveCall(t, l, otherCaller, 6)
		if diff := cmp.Diff(map[string]int64{app: 1000 - 50 - 4 - 6, each: 300 - 4 - 6, other: 0}, left); !ok || diff != "" {
			t.Errorf("let in: %v; left once both are settled (-want +got):\n%s", ok, diff)
		}
		settleTokens(otherCaller, 0, r) // no more than the smallest limit of all
		if left, ok, _ = reserveCall(t, l, callerAna(""), 100); !ok || left[app] != 1000-50-4-100 || left[each] != 300-50-100 {
			t.Errorf("let in: %v; left %v", ok, left)
		}
	})
}

// TestScopes checks which callers share a counter.
func TestScopes(t *testing.T) {
	t.Parallel()
	agent := func(caller ratelimit.Caller, name string) ratelimit.Caller { caller.Agent = name; return caller }
	otherCaller := callerAna("")
	otherCaller.Owner.Issuer = "elsewhere"
	named := callRule(ratelimit.PerAgent, ratelimit.Day, 1)
	named.Agent = "helper"
	for _, tt := range []struct {
		name  string
		rule  ratelimit.Rule
		first ratelimit.Caller
		then  ratelimit.Caller
		ok    bool
	}{
		{"one session", callRule(ratelimit.PerSession, ratelimit.Day, 1), callerAna("s"), callerAna("s"), false},
		{"two sessions", callRule(ratelimit.PerSession, ratelimit.Day, 1), callerAna("s"), callerAna("t"), true},
		{"another's session of the same name", callRule(ratelimit.PerSession, ratelimit.Day, 1), callerAna("s"), newCaller("ben", "s"), true},
		{"one user", callRule(ratelimit.PerUser, ratelimit.Day, 1), callerAna("s"), callerAna("t"), false},
		{"two users", callRule(ratelimit.PerUser, ratelimit.Day, 1), callerAna(""), newCaller("ben", ""), true},
		{"two issuers", callRule(ratelimit.PerUser, ratelimit.Day, 1), callerAna(""), otherCaller, true},
		{"one key", callRule(ratelimit.PerKey, ratelimit.Day, 1), newCaller("key:1", ""), newCaller("key:1", ""), false},
		{"two keys", callRule(ratelimit.PerKey, ratelimit.Day, 1), newCaller("key:1", ""), newCaller("key:2", ""), true},
		{"no key", callRule(ratelimit.PerKey, ratelimit.Day, 1), callerAna(""), callerAna(""), true},
		{"one agent", callRule(ratelimit.PerAgent, ratelimit.Day, 1), callerAna(""), newCaller("ben", ""), false},
		{"two agents", callRule(ratelimit.PerAgent, ratelimit.Day, 1), callerAna(""), agent(callerAna(""), "other"), true},
		{"the agent that is named", named, callerAna(""), callerAna(""), false},
		{"an agent that is not", named, agent(callerAna(""), "other"), agent(callerAna(""), "other"), true},
		{"an app", callRule(ratelimit.PerApp, ratelimit.Day, 1), callerAna(""), agent(newCaller("ben", "s"), "other"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: ratelimit.NewMemory(), Rules: []ratelimit.Rule{tt.rule}})
			if _, ok, _ := reserveCall(t, l, tt.first, 0); !ok {
				t.Fatal("the first call is refused")
			}
			if _, ok, _ := reserveCall(t, l, tt.then, 0); ok != tt.ok {
				t.Errorf("the second call is let in: %v, want %v", ok, tt.ok)
			}
		})
	}
}

// TestIsolation exhausts the limits of one tenant: another with the same rules, users and sessions is not affected.
func TestIsolation(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		p := newBackend()
		rules := []ratelimit.Rule{callRule(ratelimit.PerApp, ratelimit.Day, 2), tokenRule(ratelimit.PerSession, ratelimit.Day, 10)}
		alice, bob := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: p, Rules: rules}), ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: p, Rules: rules})
		before, _, _ := reserveCall(t, alice, callerAna("s"), 3)
		for range 5 {
			reserveCall(t, bob, callerAna("s"), 9)
		}
		if err := bob.SettleTokens(t.Context(), callerAna("s"), -50, ratelimit.TokenReservation{}); err != nil {
			t.Fatal(err)
		}
		after, ok, _ := reserveCall(t, alice, callerAna("s"), 3)
		want := map[string]int64{"app-count-day": before["app-count-day"] - 1, "session-token-day": before["session-token-day"] - 3}
		if diff := cmp.Diff(want, after); !ok || diff != "" {
			t.Errorf("let in: %v; left (-want +got):\n%s", ok, diff)
		}
	})
}

// TestTwoBackends lets the second backend refuse: the first one's counts are taken back.
func TestTwoBackends(t *testing.T) {
	t.Parallel()
	individual, shared := ratelimit.NewMemory(), ratelimit.NewMemory()
	l := ratelimit.New(newTenantID(),
		ratelimit.RuleSet{Backend: individual, Rules: []ratelimit.Rule{callRule(ratelimit.PerUser, ratelimit.Day, 5), tokenRule(ratelimit.PerUser, ratelimit.Day, 50)}},
		ratelimit.RuleSet{Backend: shared, Rules: []ratelimit.Rule{callRule(ratelimit.PerApp, ratelimit.Day, 1)}})
	want := map[string]int64{"user-count-day": 4, "user-token-day": 43, "app-count-day": 0}
	for i := range 3 {
		left, ok, _ := reserveCall(t, l, callerAna(""), 7)
		if diff := cmp.Diff(want, left); ok != (i == 0) || diff != "" {
			t.Errorf("call %d is let in: %v; left (-want +got):\n%s", i, ok, diff)
		}
	}
}

func TestNoRules(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: ratelimit.NewMemory()})
	if l != nil {
		t.Fatal("a limiter without rules is not nil")
	}
	g, err := l.ReserveCall(t.Context(), callerAna(""), 5)
	if err != nil || len(g.States) != 0 || g.Reservation.EncodeText() != "" || l.SettleTokens(t.Context(), callerAna(""), 5, g.Reservation) != nil {
		t.Errorf("a nil limiter returns %+v and %v", g, err)
	}
}

// TestWindowsPass lets time pass: an ended window has no effect, whenever its first call came.
func TestWindowsPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // synctest starts at midnight UTC on 2000-01-01
		time.Sleep(30*24*time.Hour + 23*time.Hour + 59*time.Minute + 50*time.Second) // the last ten seconds of January, a Monday
		l := ratelimit.New("acme", ratelimit.RuleSet{Backend: ratelimit.NewMemory(), Rules: []ratelimit.Rule{
			callRule(ratelimit.PerUser, ratelimit.Minute, 2), callRule(ratelimit.PerUser, ratelimit.Week, 4), callRule(ratelimit.PerUser, ratelimit.Month, 3),
			tokenRule(ratelimit.PerUser, ratelimit.Minute, 10),
		}})
		const minute, week, month = "user-count-minute", "user-count-week", "user-count-month"
		var reserved ratelimit.TokenReservation
		for i, step := range []struct {
			wait time.Duration
			ok   bool
			left map[string]int64
		}{
			{0, true, map[string]int64{minute: 1, week: 3, month: 2}},
			{0, true, map[string]int64{minute: 0, week: 2, month: 1}},
			{9 * time.Second, false, map[string]int64{minute: 0, week: 2, month: 1}},
			{time.Second, true, map[string]int64{minute: 1, week: 1, month: 2}}, // midnight, the first of February
			{time.Minute, true, map[string]int64{minute: 1, week: 0, month: 1}},
			{time.Hour, false, map[string]int64{minute: 2, week: 0, month: 1}},
			{6 * 24 * time.Hour, true, map[string]int64{minute: 1, week: 3, month: 0}}, // the next Monday
			{24 * time.Hour, false, map[string]int64{minute: 2, week: 3, month: 0}},
		} {
			time.Sleep(step.wait)
			left, ok, r := reserveCall(t, l, callerAna(""), 2)
			if i == 0 {
				reserved = r
			}
			delete(left, "user-token-minute")
			if diff := cmp.Diff(step.left, left); ok != step.ok || diff != "" {
				t.Errorf("step %d, %v: let in: %v, want %v; left (-want +got):\n%s", i, time.Now(), ok, step.ok, diff)
			}
		}
		if err := l.SettleTokens(t.Context(), callerAna(""), 4, reserved); err != nil { // reserved in a minute that has ended
			t.Fatal(err)
		}
		g, _ := l.ReserveCall(t.Context(), callerAna(""), 1)
		if i := len(g.States) - 1; g.States[i].Name() != "user-token-minute" || g.States[i].Used != 4 {
			t.Errorf("%+v, want 4 tokens used", g.States[i])
		}
	})
}

// TestMemoryIsBounded invents sessions without end: the tenant loses counters of its own, another tenant none.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := ratelimit.NewMemory()
	rules := ratelimit.RuleSet{Backend: m, Rules: []ratelimit.Rule{callRule(ratelimit.PerSession, ratelimit.Day, 1), callRule(ratelimit.PerApp, ratelimit.Month, 1<<40)}}
	quiet, noisy := ratelimit.New("quiet", rules), ratelimit.New("noisy", rules)
	reserveCall(t, quiet, callerAna("s"), 0)
	for i := range 30_000 {
		if _, ok, _ := reserveCall(t, noisy, callerAna(fmt.Sprint(i)), 0); !ok {
			t.Fatalf("session %d is refused its first call", i)
		}
	}
	if _, ok, _ := reserveCall(t, quiet, callerAna("s"), 0); ok {
		t.Error("another tenant's count is gone")
	}
	if n := m.CountCounters("noisy"); n > 10_000 || n < 9_000 {
		t.Errorf("%d counters are kept, want no more than 10,000", n)
	}
	if left, _, _ := reserveCall(t, noisy, callerAna("x"), 0); left["app-count-month"] != 1<<40-30_001 {
		t.Errorf("%d are left of the month's: the count whose window ends last is gone", left["app-count-month"])
	}
}

// TestMemoryForgets checks that ended counters are dropped, also of tenants that no longer call.
func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := ratelimit.NewMemory()
		rules := ratelimit.RuleSet{Backend: m, Rules: []ratelimit.Rule{callRule(ratelimit.PerSession, ratelimit.Minute, 1)}}
		gone := ratelimit.New("gone", rules)
		for i := range 100 {
			reserveCall(t, gone, callerAna(fmt.Sprint(i)), 0)
		}
		time.Sleep(5 * time.Minute)
		for i := range 1000 {
			reserveCall(t, ratelimit.New(db.ID(fmt.Sprint(i)), rules), callerAna("s"), 0)
		}
		if n := m.CountCounters("gone"); n != 0 {
			t.Errorf("%d counters of windows that are over are kept", n)
		}
	})
}
