package queue_test

import (
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"stoa/agentsvc/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRetry: a delay is in the upper half of its bound, which doubles from the initial delay to the maximum, and
// there are as many retries as the policy allows.
func TestRetry(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := queue.Retry{
			MaxRetries:   rapid.IntRange(0, 1000).Draw(t, "max"),
			InitialDelay: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")),
			MaxDelay:     time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "limit")),
		}
		attempts := rapid.Int64Range(1, 1100).Draw(t, "attempts")
		delay, again := r.NextDelay(attempts)
		if again != (attempts <= int64(r.MaxRetries)) {
			t.Fatalf("after attempt %d of 1+%d: again %v", attempts, r.MaxRetries, again)
		}
		if r.IsExhausted(attempts+1) == again {
			t.Fatalf("attempt %d is exhausted: %v, though there is one: %v", attempts+1, !again, again)
		}
		bound := float64(r.InitialDelay) * math.Pow(2, float64(attempts-1))
		bound = min(bound, float64(r.MaxDelay))
		if !again {
			bound = 0
		}
		// A float64 of this size has no more precision.
		if d := float64(delay); d > bound*(1+1e-9) || d < bound/2*(1-1e-9)-1 {
			t.Fatalf("delay %v, want between half of %v and all of it", delay, time.Duration(bound))
		}
	})
}

// TestRetryDefault: the delays of the default policy.
func TestRetryDefault(t *testing.T) {
	t.Parallel()
	r := queue.Retry{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 5 * time.Minute}
	for attempt, bound := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second} {
		if attempt == 0 {
			continue
		}
		if d, ok := r.NextDelay(int64(attempt)); !ok || d > bound || d < bound/2 {
			t.Errorf("after attempt %d: %v, %v", attempt, d, ok)
		}
	}
	if _, ok := r.NextDelay(4); ok {
		t.Error("a fifth attempt")
	}
	if r.IsExhausted(4) || !r.IsExhausted(5) {
		t.Error("the fourth attempt is the last one that may begin")
	}
}
