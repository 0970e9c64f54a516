package llm

import (
	"math"
	"time"
)

// Bounds of one call while it fails, see [AttemptLimit].
const (
	maxCallRequests = 6
	maxCallTime     = 10 * time.Minute
)

// AttemptLimit bounds what one call costs until its answer begins: the number of requests and the time, of all models,
// retries and waits together. The outermost decorator that may send a second request creates it. It is used by the
// goroutine of the call.
type AttemptLimit struct {
	// requests is how many more requests may be sent; reserved of them are for the models after the current one.
	requests, reserved int
	// deadline is when the call fails if its answer has not begun, modelDeadline the same for the current model.
	deadline, modelDeadline time.Time
}

// newAttemptLimit returns the limit of a call that begins now.
func newAttemptLimit() *AttemptLimit {
	return &AttemptLimit{requests: maxCallRequests, deadline: time.Now().Add(maxCallTime)}
}

// startModel begins the part of a model, which others may follow: one request is reserved for each of them, and the time
// that is left is shared equally, so that a model that is silent leaves time for its fallbacks. It returns false if
// nothing is left for the model.
func (l *AttemptLimit) startModel(others int) bool {
	left := time.Until(l.deadline)
	l.modelDeadline = time.Now().Add(left / time.Duration(others+1))
	l.reserved = min(others, l.requests-1)
	return l.requests > 0 && left > 0
}

// allowsRetry reports whether the current model may be sent another request after a wait.
func (l *AttemptLimit) allowsRetry(wait time.Duration) bool {
	return l.requests > l.reserved && time.Until(l.modelDeadline) > wait
}

// TimeLeft returns how long the model may take until its answer begins. A nil limit does not bound it.
func (l *AttemptLimit) TimeLeft() time.Duration {
	if l == nil {
		return math.MaxInt64
	}
	return time.Until(l.modelDeadline)
}
