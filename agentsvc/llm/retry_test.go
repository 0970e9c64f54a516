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

// scriptedAttempt is one attempt: its chunks, and the error with which it ends after a delay.
type scriptedAttempt struct {
	chunks []llm.Chunk
	err    error
	delay  time.Duration
}

// scriptedProvider plays its attempts one after the other, the last one repeatedly, and counts them.
type scriptedProvider struct {
	attempts []scriptedAttempt
	calls    int
}

func (p *scriptedProvider) Stream(context.Context, llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		s := p.attempts[min(p.calls, len(p.attempts)-1)]
		p.calls++
		time.Sleep(s.delay)
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
	good := scriptedAttempt{chunks: []llm.Chunk{{Text: "hi"}, {Stop: llm.StopEnd}}}
	tests := []struct {
		name     string
		steps    []scriptedAttempt
		tries    int
		text     string
		want     error
		min, max time.Duration
	}{
		{"at once", []scriptedAttempt{good}, 1, "hi", nil, 0, 0},
		{"second try", []scriptedAttempt{{err: busy}, good}, 2, "hi", nil, 250 * time.Millisecond, 750 * time.Millisecond},
		{"third try", []scriptedAttempt{{err: busy}, {err: busy}, good}, 3, "hi", nil, 600 * time.Millisecond, 2 * time.Second},
		{"no fourth", []scriptedAttempt{{err: busy}, {err: busy}, {err: busy}, good}, 3, "", busy, 600 * time.Millisecond, 2 * time.Second},
		{"as asked", []scriptedAttempt{{err: later}, good}, 2, "hi", nil, 20 * time.Second, 20 * time.Second},
		{"asked for too long", []scriptedAttempt{{err: tooLate}, good}, 1, "", tooLate, 0, 0},
		{"failed too slowly", []scriptedAttempt{{err: busy, delay: 2 * time.Minute}, good}, 1, "", busy, 2 * time.Minute, 2 * time.Minute},
		{"not retryable", []scriptedAttempt{{err: refused}, good}, 1, "", refused, 0, 0},
		{"foreign error", []scriptedAttempt{{err: errors.ErrUnsupported}, good}, 1, "", errors.ErrUnsupported, 0, 0},
		{"after the first chunk", []scriptedAttempt{{chunks: []llm.Chunk{{Text: "half"}}, err: busy}, good}, 1, "half", busy, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &scriptedProvider{attempts: tt.steps}
				start := time.Now()
				var text string
				var got error
				for c, err := range llm.WithRetry(p).Stream(t.Context(), llm.Request{}) {
					text += c.Text
					got = err
				}
				if !errors.Is(got, tt.want) || text != tt.text || p.calls != tt.tries {
					t.Errorf("text %q, error %v, %d tries; want %q, %v, %d", text, got, p.calls, tt.text, tt.want, tt.tries)
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
		p := &scriptedProvider{attempts: []scriptedAttempt{{err: busy}, {err: busy}, {err: busy}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var got error
		for _, err := range llm.WithRetry(p).Stream(ctx, llm.Request{}) {
			got = err
		}
		if !errors.Is(got, context.DeadlineExceeded) || p.calls != 1 || time.Since(start) != time.Second {
			t.Errorf("error %v after %d tries and %v; want the context's error when it ends", got, p.calls, time.Since(start))
		}
	})
	p := &scriptedProvider{attempts: []scriptedAttempt{{chunks: []llm.Chunk{{Text: "a"}, {Text: "b"}}}}}
	for range llm.WithRetry(p).Stream(t.Context(), llm.Request{}) {
		break
	}
	if p.calls != 1 {
		t.Errorf("%d tries after break", p.calls)
	}
}

func TestRetryableStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{400: false, 401: false, 403: false, 404: false, 408: true, 409: true, 422: false, 429: true, 500: true, 503: true, 529: true} {
		if got := llm.IsRetryableStatus(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}
