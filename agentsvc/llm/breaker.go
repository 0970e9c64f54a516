package llm

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

const (
	// maxFailures is how many retryable failures in a row open a breaker.
	maxFailures = 5
	// openDuration is how long a breaker stays open before one call may try again.
	openDuration = 30 * time.Second
)

// WithCircuitBreaker returns a provider that spares p while p is down: after five calls in a row that ended in a retryable [*Error]
// it answers with one itself, for 30 s. Then one call goes through, and its outcome opens the way for all or closes it
// for another 30 s. Calls that their caller ended count for nothing.
func WithCircuitBreaker(p Provider) Provider { return &circuitBreaker{next: p} }

type circuitBreaker struct {
	next Provider

	mu        sync.Mutex
	failures  int       // in a row
	openUntil time.Time // no call goes through before, where failures are many
	probing   bool      // the one call that may try is on its way
	lastErr   Error     // what opened it
}

func (b *circuitBreaker) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		probe, err := b.allowCall()
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		if probe {
			defer b.endProbe()
		}
		started := false
		for c, err := range b.next.Stream(ctx, req) {
			var failed *Error
			switch {
			case errors.As(err, &failed) && failed.Retryable:
				b.recordFailure(failed)
			case failed != nil && failed.Status != 0:
				b.recordSuccess() // it is up, and refuses
			case err == nil && (c.Stop != "" || !started && probe):
				b.recordSuccess()
			}
			started = true
			if !yield(c, err) {
				return
			}
		}
	}
}

// allowCall reports whether a call may go through, and whether it is the one that tries.
func (b *circuitBreaker) allowCall() (probe bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < maxFailures {
		return false, nil
	}
	wait := time.Until(b.openUntil)
	if wait <= 0 && !b.probing {
		b.probing = true
		return true, nil
	}
	return false, &Error{
		Provider: b.lastErr.Provider, Retryable: true, RetryAfter: max(wait, time.Second),
		Reason: "it failed several times in a row and is not asked for a while; last: " + b.lastErr.Reason,
	}
}

// endProbe ends the call that tried.
func (b *circuitBreaker) endProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

func (b *circuitBreaker) recordFailure(err *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.openUntil = time.Now().Add(openDuration)
	b.lastErr = *err
}

func (b *circuitBreaker) recordSuccess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}
