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

// call asks p once and returns the error.
func call(t *testing.T, p llm.Provider) error {
	t.Helper()
	var last error
	for _, err := range p.Stream(t.Context(), llm.Request{}) {
		last = err
	}
	return last
}

func repeat(n int, s step) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = s
	}
	return steps
}

var (
	down    = step{err: &llm.Error{Provider: "p", Status: 503, Retryable: true, Reason: "is down"}}
	refuses = step{err: &llm.Error{Provider: "p", Status: 401}}
	up      = step{chunks: []llm.Chunk{{Text: "hi"}, {Stop: llm.StopEnd}}}
	half    = step{chunks: []llm.Chunk{{Text: "hi"}}, err: &llm.Error{Provider: "p", Retryable: true}}
)

func TestBreak(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []step // the last is repeated
		calls int
		tries int
	}{
		{"opens after five", repeat(9, down), 9, 5},
		{"an answer in between", append(append(repeat(4, down), up), repeat(5, down)...), 10, 10},
		{"a refusal in between", append(append(repeat(4, down), refuses), repeat(5, down)...), 10, 10},
		{"refusals", repeat(9, refuses), 9, 9},
		{"halves", repeat(9, half), 9, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &provider{steps: tt.steps}
			b := llm.Break(p)
			for range tt.calls {
				_ = call(t, b)
			}
			if p.tries != tt.tries {
				t.Errorf("%d calls went through, want %d", p.tries, tt.tries)
			}
		})
	}
}

func TestBreakHalfOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{steps: append(repeat(6, down), up, up, down)}
		b := llm.Break(p)
		for range 5 {
			_ = call(t, b)
		}
		time.Sleep(10 * time.Second)
		var e *llm.Error
		if err := call(t, b); !errors.As(err, &e) || !e.Retryable || e.RetryAfter != 20*time.Second || !strings.Contains(e.Reason, "is down") || p.tries != 5 {
			t.Errorf("open: error %+v after %d tries", err, p.tries)
		}
		time.Sleep(20 * time.Second)
		if _ = call(t, b); p.tries != 6 {
			t.Errorf("%d tries after the pause, want one more", p.tries)
		}
		if _ = call(t, b); p.tries != 6 {
			t.Error("a failed try does not close the way again")
		}
		time.Sleep(30 * time.Second)
		for range 3 {
			_ = call(t, b)
		}
		if p.tries != 9 {
			t.Errorf("%d tries after an answer, want all to go through", p.tries)
		}
	})
}

// gated is a provider that is down until it opens; then its calls wait until their caller goes.
type gated struct {
	open  bool
	tries int
}

func (g *gated) Stream(ctx context.Context, _ llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		g.tries++
		if !g.open {
			yield(llm.Chunk{}, down.err)
			return
		}
		<-ctx.Done()
		yield(llm.Chunk{}, ctx.Err())
	}
}

// TestBreakLetsOneTry holds the one call that tries: no other goes through meanwhile. When its caller gives up, which
// tells nothing of the model, the next may try.
func TestBreakLetsOneTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gated{}
		b := llm.Break(g)
		for range 5 {
			_ = call(t, b)
		}
		time.Sleep(time.Minute)
		g.open = true
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
			if err := call(t, b); err == nil || g.tries != want {
				t.Errorf("%d tries, error %v; want %d and an error: one call tries already", g.tries, err, want)
			}
			cancel()
			<-done
		}
	})
}
