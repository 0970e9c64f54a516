package llm

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

const (
	// breakAfter is how many retryable failures in a row open a breaker.
	breakAfter = 5
	// breakPause is how long a breaker stays open before one call may try again.
	breakPause = 30 * time.Second
)

// Break returns a provider that spares p while p is down: after five calls in a row that ended in a retryable [*Error]
// it answers with one itself, for 30 s. Then one call goes through, and its outcome opens the way for all or closes it
// for another 30 s. Calls that their caller ended count for nothing.
func Break(p Provider) Provider { return &breaker{next: p} }

type breaker struct {
	next Provider

	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // no call goes through before, where failures are many
	probing  bool      // the one call that may try is on its way
	last     Error     // what opened it
}

func (b *breaker) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		probe, err := b.enter()
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		if probe {
			defer b.leave()
		}
		begun := false
		for c, err := range b.next.Stream(ctx, req) {
			var failed *Error
			switch {
			case errors.As(err, &failed) && failed.Retryable:
				b.failed(failed)
			case failed != nil && failed.Status != 0:
				b.succeeded() // it is up, and refuses
			case err == nil && (c.Stop != "" || !begun && probe):
				b.succeeded()
			}
			begun = true
			if !yield(c, err) {
				return
			}
		}
	}
}

// enter reports whether a call may go through, and whether it is the one that tries.
func (b *breaker) enter() (probe bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakAfter {
		return false, nil
	}
	wait := time.Until(b.until)
	if wait <= 0 && !b.probing {
		b.probing = true
		return true, nil
	}
	return false, &Error{
		Provider: b.last.Provider, Retryable: true, RetryAfter: max(wait, time.Second),
		Reason: "it failed several times in a row and is not asked for a while; last: " + b.last.Reason,
	}
}

// leave ends the call that tried.
func (b *breaker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

func (b *breaker) failed(err *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.until = time.Now().Add(breakPause)
	b.last = *err
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}
