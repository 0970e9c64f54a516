package llm_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc/llm"
)

// silentProvider sends nothing until the time of its request has passed, as package upstream does.
type silentProvider struct{ calls int }

func (p *silentProvider) Stream(_ context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		p.calls++
		time.Sleep(req.Attempts.TimeLeft())
		yield(llm.Chunk{}, downAttempt.err)
	}
}

// TestFailingCallIsBounded calls chains of models that all fail. Retries, fallbacks and breakers together send a bounded
// number of requests in a bounded time.
func TestFailingCallIsBounded(t *testing.T) {
	t.Parallel()
	slow := scriptedAttempt{err: &llm.Error{Provider: "p", Status: 429, Retryable: true, RetryAfter: 25 * time.Second}}
	for _, tt := range []struct {
		name     string
		attempt  *scriptedAttempt // nil: the models are silent
		models   int
		requests []int
		most     time.Duration
	}{
		{"one model", &downAttempt, 1, []int{3}, 3 * time.Second},
		{"two models", &downAttempt, 2, []int{3, 3}, 6 * time.Second},
		{"four models", &downAttempt, 4, []int{3, 1, 1, 1}, 3 * time.Second},
		{"eight models", &downAttempt, 8, []int{1, 1, 1, 1, 1, 1, 0, 0}, 0},
		{"models that ask for a pause", &slow, 3, []int{3, 2, 1}, 75 * time.Second},
		{"a silent model", nil, 1, []int{1}, 10 * time.Minute},
		{"three silent models", nil, 3, []int{1, 1, 1}, 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var chain []llm.Provider
				calls := make([]func() int, tt.models)
				for i := range tt.models {
					if tt.attempt == nil {
						p := &silentProvider{}
						calls[i], chain = func() int { return p.calls }, append(chain, llm.WithRetry(llm.WithCircuitBreaker(p)))
						continue
					}
					p := &scriptedProvider{attempts: []scriptedAttempt{*tt.attempt}}
					calls[i], chain = func() int { return p.calls }, append(chain, llm.WithRetry(llm.WithCircuitBreaker(p)))
				}
				start := time.Now()
				err := callProvider(t, llm.WithFallback(chain[0], chain[1:]...))
				took := time.Since(start)
				if e := (*llm.Error)(nil); !errors.As(err, &e) {
					t.Errorf("error = %v", err)
				}
				for i, want := range tt.requests {
					if got := calls[i](); got != want {
						t.Errorf("model %d got %d requests, want %d", i, got, want)
					}
				}
				if took > tt.most {
					t.Errorf("failed after %v, want %v at most", took, tt.most)
				}
			})
		})
	}
}

// TestOpenBreakersAnswerAtOnce opens the breakers of two models: a call then sends nothing and waits for nothing. The
// request that opens a breaker, and a probe that fails, are not repeated either.
func TestOpenBreakersAnswerAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &scriptedProvider{attempts: []scriptedAttempt{downAttempt}}, &scriptedProvider{attempts: []scriptedAttempt{downAttempt}}
		p := llm.WithFallback(llm.WithRetry(llm.WithCircuitBreaker(first)), llm.WithRetry(llm.WithCircuitBreaker(second)))
		for range 2 {
			_ = callProvider(t, p)
		}
		if first.calls != 5 || second.calls != 5 {
			t.Fatalf("%d and %d requests in two calls, want 5 each: the fifth opens the breaker", first.calls, second.calls)
		}
		start := time.Now()
		var e *llm.Error
		if err := callProvider(t, p); !errors.As(err, &e) || !e.Retryable || time.Since(start) != 0 || first.calls+second.calls != 10 {
			t.Errorf("error %v after %v and %d requests, want one at once without a request", err, time.Since(start), first.calls+second.calls-10)
		}
		time.Sleep(31 * time.Second)
		start = time.Now()
		if err := callProvider(t, p); err == nil || time.Since(start) != 0 || first.calls+second.calls != 12 {
			t.Errorf("error %v after %v and %d requests, want one probe of each model", err, time.Since(start), first.calls+second.calls-10)
		}
	})
}
