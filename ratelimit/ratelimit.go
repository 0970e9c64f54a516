// Package ratelimit says when somebody has had enough of something. A [Throttle] slows down guessing: it counts the
// failures of a client address and turns the address away once there were too many.
package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrExhausted is what every refusal of this package is.
var ErrExhausted = errors.New("limit reached")

// ExhaustedError is an [ErrExhausted] that knows when another attempt is worth making.
type ExhaustedError struct {
	RetryAfter time.Duration // whole seconds, at least one: the value of a Retry-After header
}

// Error says how long to wait.
func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("%v, try again in %d s", ErrExhausted, int(e.RetryAfter.Seconds()))
}

// Is makes errors.Is(err, ErrExhausted) hold.
func (e *ExhaustedError) Is(target error) bool { return target == ErrExhausted }

// exhaustedUntil returns the refusal of a limit that opens again at t.
func exhaustedUntil(t time.Time) error {
	seconds := max(1, math.Ceil(time.Until(t).Seconds()))
	return &ExhaustedError{RetryAfter: time.Duration(seconds) * time.Second}
}
