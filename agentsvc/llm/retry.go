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
	maxTries      = 3
	maxTrying     = time.Minute
	maxRetryAfter = 30 * time.Second
)

// Retry returns a provider that asks p up to three times while p answers a retryable [*Error] before its first chunk.
// It waits as long as the model asked for, and gives up where that is more than 30 s; where the model did not say it
// backs off from half a second, with jitter. What has begun to answer is never asked again, nor is a model that took
// more than a minute to fail.
func Retry(p Provider) Provider { return retrier{p} }

type retrier struct {
	next Provider
}

func (r retrier) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		pause, began := backoff.NewExponentialBackOff(), time.Now()
		for try := 1; ; try++ {
			err := once(r.next.Stream(ctx, req), yield)
			if err == nil {
				return
			}
			wait, ok := again(err, pause)
			if !ok || try == maxTries || time.Since(began) > maxTrying {
				yield(Chunk{}, err)
				return
			}
			if err := sleep(ctx, wait); err != nil {
				yield(Chunk{}, err)
				return
			}
		}
	}
}

// once passes an answer on. It returns the error of one that failed before its first chunk, which it did not pass on.
func once(answer iter.Seq2[Chunk, error], yield func(Chunk, error) bool) error {
	begun := false
	for c, err := range answer {
		if err != nil && !begun {
			return err
		}
		begun = true
		if !yield(c, err) || err != nil {
			return nil
		}
	}
	return nil
}

// again reports whether a call that ended in err may be repeated, and after which time.
func again(err error, pause *backoff.ExponentialBackOff) (time.Duration, bool) {
	var e *Error
	if !errors.As(err, &e) || !e.Retryable || e.RetryAfter > maxRetryAfter {
		return 0, false
	}
	return max(e.RetryAfter, pause.NextBackOff()), true
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RetryableStatus reports whether a call that was answered with this HTTP status may succeed later.
func RetryableStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}
