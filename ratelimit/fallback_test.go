package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy/db"
)

// flakyBackend is a backend that fails or hangs when the test wants it.
type flakyBackend struct {
	*Memory
	down, hangs bool
	attempts    int
}

func (b *flakyBackend) addCounters(ctx context.Context, tenant db.ID, at func(time.Time) []counter) (outcome, error) {
	b.attempts++
	switch {
	case b.hangs:
		<-ctx.Done()
		return outcome{}, ctx.Err()
	case b.down:
		return outcome{}, errors.New("down")
	}
	return b.Memory.addCounters(ctx, tenant, at)
}

// TestFallback checks that a failed backend is not used for the pause, is then tried by one call at a time, and is used
// again.
func TestFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := &flakyBackend{Memory: NewMemory()}
		p := NewFallback(first, NewMemory(), 50*time.Millisecond, "first", slog.New(slog.DiscardHandler))
		l := New("acme", RuleSet{Backend: p, Rules: []Rule{{Scope: PerApp, Unit: Calls, Window: Day, Limit: 1000}}})
		for i, step := range []struct {
			wait        time.Duration
			down, hangs bool
			asked       int   // calls of three that reached the first backend
			left        int64 // remaining after the last call
			took        time.Duration
		}{
			{0, false, false, 3, 997, 0},
			{0, true, false, 1, 997, 0},
			{time.Second, true, false, 0, 994, 0},
			{5 * time.Second, false, true, 1, 991, 50 * time.Millisecond},
			{4 * time.Second, true, false, 0, 988, 0},
			{time.Second, false, false, 3, 994, 0},
		} {
			time.Sleep(step.wait)
			first.down, first.hangs, first.attempts = step.down, step.hangs, 0
			began, left := time.Now(), int64(0)
			for range 3 {
				g, err := l.ReserveCall(t.Context(), Caller{}, 0)
				if err != nil {
					t.Fatal(err)
				}
				left = g.States[0].Remaining()
			}
			if took := time.Since(began); first.attempts != step.asked || left != step.left || took != step.took {
				t.Errorf("step %d: asked %d times, %d left, %v; want %d, %d, %v", i, first.attempts, left, took, step.asked, step.left, step.took)
			}
		}
	})
}

// TestFallbackOfCanceledCaller checks that a cancelled caller is not taken for a failed backend.
func TestFallbackOfCanceledCaller(t *testing.T) {
	t.Parallel()
	first := &flakyBackend{Memory: NewMemory()}
	l := New("acme", RuleSet{
		Backend: NewFallback(first, NewMemory(), time.Second, "first", slog.New(slog.DiscardHandler)),
		Rules:   []Rule{{Scope: PerApp, Unit: Calls, Window: Day, Limit: 10}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.ReserveCall(ctx, Caller{}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if g, err := l.ReserveCall(t.Context(), Caller{}, 0); err != nil || g.States[0].Remaining() != 9 || first.attempts != 1 {
		t.Errorf("%+v, %v; asked %d times", g, err, first.attempts)
	}
}
