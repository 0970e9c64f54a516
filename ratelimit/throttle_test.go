package ratelimit

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recordFailures(t *testing.T, th *Throttle, address string, times int) {
	t.Helper()
	for range times {
		if err := th.CountFailure(address); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThrottleRefusesAfterTooManyFailuresUntilTheWindowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleOptions{})
		recordFailures(t, th, "192.0.2.1:4000", 9)
		if err := th.AllowAttempt("192.0.2.1:4001"); err != nil {
			t.Fatalf("after 9 failures: %v", err)
		}
		time.Sleep(20 * time.Second)
		recordFailures(t, th, "192.0.2.1:4002", 1)

		err := th.AllowAttempt("192.0.2.1:4003")
		if !errors.Is(err, agentsvc.CodeExhausted) {
			t.Fatalf("after 10 failures: got %v, want agentsvc.CodeExhausted", err)
		}
		var e *agentsvc.Error
		if !errors.As(err, &e) || e.RetryAfter < 40*time.Second || e.RetryAfter > 41*time.Second {
			t.Fatalf("got %v, want a wait of 40 to 41 seconds", err)
		}
		if err := th.AllowAttempt("192.0.2.2:4000"); err != nil {
			t.Fatalf("another address: %v", err)
		}

		recordFailures(t, th, "192.0.2.1", 50) // failures during the refusal do not extend it
		time.Sleep(e.RetryAfter)
		if err := th.AllowAttempt("192.0.2.1"); err != nil {
			t.Fatalf("after the window: %v", err)
		}
	})
}

func TestThrottleDistinguishesClients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		failed, asks string
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
		t.Run(tt.failed+" then "+tt.asks, func(t *testing.T) {
			t.Parallel()
			th := NewThrottle(ThrottleOptions{Failures: 1, Window: time.Hour})
			recordFailures(t, th, tt.failed, 1)
			if got := errors.Is(th.AllowAttempt(tt.asks), agentsvc.CodeExhausted); got != tt.refused {
				t.Errorf("refused = %v, want %v", got, tt.refused)
			}
		})
	}
}

func TestThrottleCountsConcurrentFailures(t *testing.T) {
	t.Parallel()
	th := NewThrottle(ThrottleOptions{Failures: 100, Window: time.Hour})
	var wg sync.WaitGroup
	for range 99 {
		wg.Go(func() {
			if err := th.AllowAttempt("192.0.2.1"); err != nil {
				t.Error(err)
			}
			_ = th.CountFailure("192.0.2.1")
		})
	}
	wg.Wait()
	recordFailures(t, th, "192.0.2.1", 1)
	if err := th.AllowAttempt("192.0.2.1"); !errors.Is(err, agentsvc.CodeExhausted) {
		t.Fatalf("got %v, want agentsvc.CodeExhausted", err)
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
