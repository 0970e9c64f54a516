package llm_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc/llm"
)

// callProvider makes one call and returns its error.
func callProvider(t *testing.T, p llm.Provider) error {
	t.Helper()
	var last error
	for _, err := range p.Stream(t.Context(), llm.Request{}) {
		last = err
	}
	return last
}

func repeatAttempt(n int, s scriptedAttempt) []scriptedAttempt {
	steps := make([]scriptedAttempt, n)
	for i := range steps {
		steps[i] = s
	}
	return steps
}

var (
	downAttempt    = scriptedAttempt{err: &llm.Error{Provider: "p", Status: 503, Retryable: true, Reason: "is down"}}
	refusedAttempt = scriptedAttempt{err: &llm.Error{Provider: "p", Status: 401}}
	goodAttempt    = scriptedAttempt{chunks: []llm.Chunk{{Text: "hi"}, {Stop: llm.StopEnd}}}
	brokenAttempt  = scriptedAttempt{chunks: []llm.Chunk{{Text: "hi"}}, err: &llm.Error{Provider: "p", Retryable: true}}
)

func TestBreak(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []scriptedAttempt // the last is repeated
		calls int
		tries int
	}{
		{"opens after five", repeatAttempt(9, downAttempt), 9, 5},
		{"an answer in between", append(append(repeatAttempt(4, downAttempt), goodAttempt), repeatAttempt(5, downAttempt)...), 10, 10},
		{"a refusal in between", append(append(repeatAttempt(4, downAttempt), refusedAttempt), repeatAttempt(5, downAttempt)...), 10, 10},
		{"refusals", repeatAttempt(9, refusedAttempt), 9, 9},
		{"halves", repeatAttempt(9, brokenAttempt), 9, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &scriptedProvider{attempts: tt.steps}
			b := llm.WithCircuitBreaker(p)
			for range tt.calls {
				_ = callProvider(t, b)
			}
			if p.calls != tt.tries {
				t.Errorf("%d calls went through, want %d", p.calls, tt.tries)
			}
		})
	}
}

func TestBreakHalfOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &scriptedProvider{attempts: append(repeatAttempt(6, downAttempt), goodAttempt, goodAttempt, downAttempt)}
		b := llm.WithCircuitBreaker(p)
		for range 5 {
			_ = callProvider(t, b)
		}
		time.Sleep(10 * time.Second)
		var e *llm.Error
		if err := callProvider(t, b); !errors.As(err, &e) || !e.Retryable || e.RetryAfter != 20*time.Second || !strings.Contains(e.Reason, "is down") || p.calls != 5 {
			t.Errorf("open: error %+v after %d tries", err, p.calls)
		}
		time.Sleep(20 * time.Second)
		if _ = callProvider(t, b); p.calls != 6 {
			t.Errorf("%d tries after the pause, want one more", p.calls)
		}
		if _ = callProvider(t, b); p.calls != 6 {
			t.Error("a failed try does not close the way again")
		}
		time.Sleep(30 * time.Second)
		for range 3 {
			_ = callProvider(t, b)
		}
		if p.calls != 9 {
			t.Errorf("%d tries after an answer, want all to go through", p.calls)
		}
	})
}

// blockingProvider fails until it is opened; then its calls wait until their caller ends them.
type blockingProvider struct {
	recovered bool
	calls     int
}

func (p *blockingProvider) Stream(ctx context.Context, _ llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		p.calls++
		if !p.recovered {
			yield(llm.Chunk{}, downAttempt.err)
			return
		}
		<-ctx.Done()
		yield(llm.Chunk{}, ctx.Err())
	}
}

// TestBreakLetsOneTry blocks the probe: no other call is sent meanwhile. When the probe's caller ends it, which says
// nothing about the model, the next call becomes the probe.
func TestBreakLetsOneTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &blockingProvider{}
		b := llm.WithCircuitBreaker(g)
		for range 5 {
			_ = callProvider(t, b)
		}
		time.Sleep(time.Minute)
		g.recovered = true
		for want := 6; want < 8; want++ {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range b.Stream(ctx, llm.Request{}) {
					continue
				}
			}()
			synctest.Wait()
			if err := callProvider(t, b); err == nil || g.calls != want {
				t.Errorf("%d tries, error %v; want %d and an error: one call tries already", g.calls, err, want)
			}
			cancel()
			<-done
		}
	})
}
