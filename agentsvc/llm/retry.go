package llm

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	maxAttempts   = 3
	maxRetryTime  = time.Minute
	maxRetryAfter = 30 * time.Second
)

// WithRetry returns a provider that asks p up to three times while p answers a retryable [*Error] before its first chunk.
// It waits as long as the model asked for, and gives up where that is more than 30 s; where the model did not say it
// backs off from half a second, with jitter. What has begun to answer is never asked again, nor is a model that took
// more than a minute to fail.
func WithRetry(p Provider) Provider { return retryingProvider{p} }

type retryingProvider struct {
	next Provider
}

func (r retryingProvider) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		retryBackoff, startedAt := backoff.NewExponentialBackOff(), time.Now()
		for attempt := 1; ; attempt++ {
			err := forwardAnswer(r.next.Stream(ctx, req), yield)
			if err == nil {
				return
			}
			wait, ok := retryDelay(err, retryBackoff)
			if !ok || attempt == maxAttempts || time.Since(startedAt) > maxRetryTime {
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

// forwardAnswer passes an answer on. It returns the error of one that failed before its first chunk, which it did not pass on.
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

// retryDelay reports whether a call that ended in err may be repeated, and after which time.
func retryDelay(err error, retryBackoff *backoff.ExponentialBackOff) (time.Duration, bool) {
	var e *Error
	if !errors.As(err, &e) || !e.Retryable || e.RetryAfter > maxRetryAfter {
		return 0, false
	}
	return max(e.RetryAfter, retryBackoff.NextBackOff()), true
}

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

// IsRetryableStatus reports whether a call that was answered with this HTTP status may succeed later.
func IsRetryableStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}
