package llm

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"stoa/agentsvc"
)

// Bounds of retries. maxRetryTime bounds the time since the first attempt after which no further one starts;
// maxRetryAfter the wait that a server may ask for.
const (
	maxAttempts   = 3
	maxRetryTime  = time.Minute
	maxRetryAfter = 30 * time.Second
)

// WithRetry returns a provider that calls p up to three times, as long as p fails with a retryable [*Error] before its
// first chunk and the [AttemptLimit] of the call allows it. It waits as long as the server asked for, at least an
// exponential backoff from half a second with jitter, and returns the error at once if the server asked for more than
// 30 s, a minute has passed, or p's circuit breaker is open. An answer that has begun is never requested again: its text
// has been shown.
func WithRetry(p Provider) Provider { return retryingProvider{p} }

// retryingProvider implements WithRetry. It has no state between calls.
type retryingProvider struct {
	next Provider
}

// Stream implements [Provider].
func (r retryingProvider) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if req.Attempts == nil {
			req.Attempts = newAttemptLimit()
			req.Attempts.startModel(0)
		}
		retryBackoff, startedAt := backoff.NewExponentialBackOff(), time.Now()
		for attempt := 1; ; attempt++ {
			req.Attempts.requests--
			forward := yield
			if attempt > 1 {
				forward = changeUsage(yield, func(u *agentsvc.Usage) { u.Retries = int64(attempt - 1) })
			}
			err := forwardAnswer(r.next.Stream(ctx, req), forward)
			if err == nil {
				return
			}
			var open *openBreakerError
			if errors.As(err, &open) {
				if !open.sent {
					req.Attempts.requests++
				}
				yield(Chunk{}, open.failure)
				return
			}
			wait, ok := retryDelay(err, retryBackoff)
			if !ok || !req.Attempts.allowsRetry(wait) || attempt == maxAttempts || time.Since(startedAt) > maxRetryTime {
				yield(Chunk{}, err)
				return
			}
			if err := sleepContext(ctx, wait); err != nil {
				yield(Chunk{}, err)
				return
			}
		}
	}
}

// forwardAnswer yields an answer. If the answer fails before its first chunk, it yields nothing and returns the error;
// a later error is yielded, and nil returned.
func forwardAnswer(answer iter.Seq2[Chunk, error], yield func(Chunk, error) bool) error {
	started := false
	for c, err := range answer {
		if err != nil && !started {
			return err
		}
		started = true
		if !yield(c, err) || err != nil {
			return nil
		}
	}
	return nil
}

// changeUsage returns yield with change applied to the usage that chunks report, for a decorator that knows more about
// the call than the model. The usage of the chunk is not changed in place: its producer may keep it.
func changeUsage(yield func(Chunk, error) bool, change func(*agentsvc.Usage)) func(Chunk, error) bool {
	return func(c Chunk, err error) bool {
		if c.Usage != nil {
			u := *c.Usage
			change(&u)
			c.Usage = &u
		}
		return yield(c, err)
	}
}

// retryDelay returns the time to wait before the next attempt, and whether there may be one.
func retryDelay(err error, retryBackoff *backoff.ExponentialBackOff) (time.Duration, bool) {
	var e *Error
	if !errors.As(err, &e) || !e.Retryable || e.RetryAfter > maxRetryAfter {
		return 0, false
	}
	return max(e.RetryAfter, retryBackoff.NextBackOff()), true
}

// sleepContext waits for d. It returns ctx's error if that ends first.
func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// IsRetryableStatus reports whether a call that was answered with this HTTP status may succeed later: 408, 409, 429 and
// 5xx.
func IsRetryableStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}
