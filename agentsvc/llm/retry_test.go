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

// step is one try: the chunks it gives, and the error it ends with after a while.
type step struct {
	chunks []llm.Chunk
	err    error
	after  time.Duration
}

// provider plays its steps one after the other, the last again and again, and counts them.
type provider struct {
	steps []step
	tries int
}

func (p *provider) Stream(context.Context, llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		s := p.steps[min(p.tries, len(p.steps)-1)]
		p.tries++
		time.Sleep(s.after)
		for _, c := range s.chunks {
			if !yield(c, nil) {
				return
			}
		}
		if s.err != nil {
			yield(llm.Chunk{}, s.err)
		}
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	busy := &llm.Error{Provider: "p", Status: 503, Retryable: true}
	later := &llm.Error{Provider: "p", Status: 429, Retryable: true, RetryAfter: 20 * time.Second}
	tooLate := &llm.Error{Provider: "p", Status: 429, Retryable: true, RetryAfter: time.Hour}
	refused := &llm.Error{Provider: "p", Status: 401}
	good := step{chunks: []llm.Chunk{{Text: "hi"}, {Stop: llm.StopEnd}}}
	tests := []struct {
		name     string
		steps    []step
		tries    int
		text     string
		want     error
		min, max time.Duration
	}{
		{"at once", []step{good}, 1, "hi", nil, 0, 0},
		{"second try", []step{{err: busy}, good}, 2, "hi", nil, 250 * time.Millisecond, 750 * time.Millisecond},
		{"third try", []step{{err: busy}, {err: busy}, good}, 3, "hi", nil, 600 * time.Millisecond, 2 * time.Second},
		{"no fourth", []step{{err: busy}, {err: busy}, {err: busy}, good}, 3, "", busy, 600 * time.Millisecond, 2 * time.Second},
		{"as asked", []step{{err: later}, good}, 2, "hi", nil, 20 * time.Second, 20 * time.Second},
		{"asked for too long", []step{{err: tooLate}, good}, 1, "", tooLate, 0, 0},
		{"failed too slowly", []step{{err: busy, after: 2 * time.Minute}, good}, 1, "", busy, 2 * time.Minute, 2 * time.Minute},
		{"not retryable", []step{{err: refused}, good}, 1, "", refused, 0, 0},
		{"foreign error", []step{{err: errors.ErrUnsupported}, good}, 1, "", errors.ErrUnsupported, 0, 0},
		{"after the first chunk", []step{{chunks: []llm.Chunk{{Text: "half"}}, err: busy}, good}, 1, "half", busy, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &provider{steps: tt.steps}
				start := time.Now()
				var text string
				var got error
				for c, err := range llm.Retry(p).Stream(t.Context(), llm.Request{}) {
					text += c.Text
					got = err
				}
				if !errors.Is(got, tt.want) || text != tt.text || p.tries != tt.tries {
					t.Errorf("text %q, error %v, %d tries; want %q, %v, %d", text, got, p.tries, tt.text, tt.want, tt.tries)
				}
				if d := time.Since(start); d < tt.min || d > tt.max {
					t.Errorf("took %v, want %v to %v", d, tt.min, tt.max)
				}
			})
		})
	}
}

func TestRetryStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := &llm.Error{Provider: "p", Status: 503, Retryable: true, RetryAfter: 10 * time.Second}
		p := &provider{steps: []step{{err: busy}, {err: busy}, {err: busy}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var got error
		for _, err := range llm.Retry(p).Stream(ctx, llm.Request{}) {
			got = err
		}
		if !errors.Is(got, context.DeadlineExceeded) || p.tries != 1 || time.Since(start) != time.Second {
			t.Errorf("error %v after %d tries and %v; want the context's error when it ends", got, p.tries, time.Since(start))
		}
	})
	p := &provider{steps: []step{{chunks: []llm.Chunk{{Text: "a"}, {Text: "b"}}}}}
	for range llm.Retry(p).Stream(t.Context(), llm.Request{}) {
		break
	}
	if p.tries != 1 {
		t.Errorf("%d tries after break", p.tries)
	}
}

func TestRetryableStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{400: false, 401: false, 403: false, 404: false, 408: true, 409: true, 422: false, 429: true, 500: true, 503: true, 529: true} {
		if got := llm.RetryableStatus(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}
