package llm

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

const (
	// maxFailures is the number of consecutive retryable failures that open a breaker.
	maxFailures = 5
	// openDuration is how long a breaker stays open before one probe may be sent.
	openDuration = 30 * time.Second
)

// WithCircuitBreaker returns a provider that does not call p while p is down. After five consecutive calls that ended
// in a retryable [*Error], it fails with such an error itself for 30 s. Then one call (the probe) is sent: its success
// closes the breaker, its failure keeps it open for another 30 s. Calls that their caller ended do not count. [WithRetry]
// around it repeats no call that failed with an open breaker.
func WithCircuitBreaker(p Provider) Provider { return &circuitBreaker{next: p} }

// openBreakerError is the failure of a call after which the breaker is open.
type openBreakerError struct {
	failure *Error
	// sent reports that a request was sent: it opened the breaker, or was the probe.
	sent bool
}

// Error implements [error].
func (e *openBreakerError) Error() string { return e.failure.Error() }

// Unwrap returns the failure as callers know it.
func (e *openBreakerError) Unwrap() error { return e.failure }

// circuitBreaker implements WithCircuitBreaker. It has three states: closed (failures < maxFailures), open (until
// openUntil), and half open (probing).
type circuitBreaker struct {
	next Provider

	// mu guards the fields below. It is not held during a call.
	mu sync.Mutex
	// failures counts consecutive failed calls.
	failures int
	// openUntil is when a probe may be sent, if failures has reached maxFailures.
	openUntil time.Time
	// probing reports that the probe is in progress.
	probing bool
	// lastErr is the failure that was counted last.
	lastErr Error
}

// Stream implements [Provider].
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
				if b.recordFailure(failed) {
					err = &openBreakerError{failed, true}
				}
			case failed != nil && failed.Status != 0:
				b.recordSuccess() // the server answers, even if it refuses the request
			// A normal call counts when it is complete. For the probe the first chunk suffices, so that others need not
			// wait for its end.
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

// allowCall returns whether the call is the probe, or the error with which it must fail.
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
	return false, &openBreakerError{failure: &Error{
		Provider: b.lastErr.Provider, Retryable: true, RetryAfter: max(wait, time.Second),
		Reason: "it failed several times in a row and is not asked for a while; last: " + b.lastErr.Reason,
	}}
}

// endProbe lets another probe start. It also runs if the probe's caller ended it without an outcome.
func (b *circuitBreaker) endProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// recordFailure counts a failed call and restarts the time until the next probe. It reports whether the breaker is open.
func (b *circuitBreaker) recordFailure(err *Error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.openUntil = time.Now().Add(openDuration)
	b.lastErr = *err
	return b.failures >= maxFailures
}

// recordSuccess closes the breaker.
func (b *circuitBreaker) recordSuccess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}
