package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordFailures counts failures of address, of which none may be refused.
func recordFailures(t *testing.T, th *Throttle, address string, times int) {
	t.Helper()
	for i := range times {
		if err := th.CountFailure(t.Context(), address); err != nil {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
}

func TestThrottleRefusesAfterTooManyFailuresUntilTheWindowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleOptions{})
		recordFailures(t, th, "192.0.2.1:4000", 9)
		time.Sleep(20 * time.Second)
		recordFailures(t, th, "192.0.2.1:4002", 1)

		err := th.CountFailure(t.Context(), "192.0.2.1:4003")
		if !errors.Is(err, agentsvc.CodeExhausted) {
			t.Fatalf("after 10 failures: got %v, want agentsvc.CodeExhausted", err)
		}
		var e *agentsvc.Error
		if !errors.As(err, &e) || e.RetryAfter < 40*time.Second || e.RetryAfter > 41*time.Second {
			t.Fatalf("got %v, want a wait of 40 to 41 seconds", err)
		}
		recordFailures(t, th, "192.0.2.2:4000", 1) // another address

		for range 50 { // failures during the refusal do not extend it
			_ = th.CountFailure(t.Context(), "192.0.2.1")
		}
		time.Sleep(e.RetryAfter)
		recordFailures(t, th, "192.0.2.1", 1)
	})
}

func TestThrottleDistinguishesClients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		failed, next string
		refused      bool
	}{
		{"192.0.2.1", "192.0.2.1:80", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.9", false},
		{"[2001:db8::1]:443", "2001:db8::ffff:1", true},
		{"2001:db8::1%eth0", "2001:db8::1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"", "", true},
		{"a pipe", "a pipe", true},
		{"a pipe", "another", false},
	} {
		t.Run(tt.failed+" then "+tt.next, func(t *testing.T) {
			t.Parallel()
			th := NewThrottle(ThrottleOptions{Failures: 1, Window: time.Hour, Key: []byte("without collisions of these addresses")})
			recordFailures(t, th, tt.failed, 1)
			if got := errors.Is(th.CountFailure(t.Context(), tt.next), agentsvc.CodeExhausted); got != tt.refused {
				t.Errorf("refused = %v, want %v", got, tt.refused)
			}
		})
	}
}

func TestThrottleCountsConcurrentFailures(t *testing.T) {
	t.Parallel()
	th := NewThrottle(ThrottleOptions{Failures: 100, Window: time.Hour})
	var refused atomic.Int64
	var wg sync.WaitGroup
	for range 150 {
		wg.Go(func() {
			if errors.Is(th.CountFailure(t.Context(), "192.0.2.1"), agentsvc.CodeExhausted) {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if n := refused.Load(); n != 50 {
		t.Fatalf("%d of 150 were refused, want 50", n)
	}
}

// sharedWindow is so long that a test does not meet its end.
const sharedWindow = 100 * 365 * 24 * time.Hour

// TestThrottleShares checks that throttles on one backend share a count if they have the same key.
func TestThrottleShares(t *testing.T) {
	t.Parallel()
	shared := NewMemory()
	newThrottle := func(key string) *Throttle {
		return NewThrottle(ThrottleOptions{Failures: 4, Window: sharedWindow, Shared: shared, Tenant: "acme", Key: []byte(key)})
	}
	one, two, other := newThrottle("key"), newThrottle("key"), newThrottle("another key")
	recordFailures(t, one, "192.0.2.1", 2)
	recordFailures(t, two, "192.0.2.1", 2)
	for i, th := range []*Throttle{one, two} {
		if err := th.CountFailure(t.Context(), "192.0.2.1"); !errors.Is(err, agentsvc.CodeExhausted) {
			t.Errorf("throttle %d: got %v, want agentsvc.CodeExhausted", i+1, err)
		}
	}
	recordFailures(t, two, "192.0.2.2", 2)
	recordFailures(t, other, "192.0.2.1", 4)
}

// brokenBackend fails, or with wait waits for the end of the context.
type brokenBackend struct{ wait bool }

func (b brokenBackend) addCounters(ctx context.Context, _ db.ID, _ func(time.Time) []counter) (outcome, error) {
	if b.wait {
		<-ctx.Done()
	}
	return outcome{}, errors.New("down")
}

// TestThrottleWithoutBackend checks that the count of the process bounds while the shared backend fails or hangs, and
// that a hanging one delays few failures.
func TestThrottleWithoutBackend(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			th := NewThrottle(ThrottleOptions{Window: time.Hour, Shared: brokenBackend{wait}, Tenant: "acme"})
			var refused, delayed atomic.Int64
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() {
					began := time.Now()
					if errors.Is(th.CountFailure(t.Context(), "192.0.2.1"), agentsvc.CodeExhausted) {
						refused.Add(1)
					}
					if time.Since(began) > 0 {
						delayed.Add(1)
					}
				})
			}
			wg.Wait()
			if refused.Load() != 20 || delayed.Load() > maxSharedCounts {
				t.Errorf("hanging %t: %d of 30 were refused, want 20; %d waited, want %d at most", wait, refused.Load(), delayed.Load(), maxSharedCounts)
			}
		})
	}
}

func TestThrottleMemoryIsBounded(t *testing.T) {
	t.Parallel()
	th := NewThrottle(ThrottleOptions{})
	seen := map[string]bool{}
	for i := range 4 * throttleCounters {
		seen[th.counterKey(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))] = true
	}
	if len(seen) > throttleCounters || len(seen) < throttleCounters/2 {
		t.Errorf("%d addresses share %d counters, want at most %d and most of them used", 4*throttleCounters, len(seen), throttleCounters)
	}
}
