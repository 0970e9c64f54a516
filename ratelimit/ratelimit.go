// Package ratelimit says when somebody has had enough of something.
//
// A [Limiter] holds the rules of one app: so many calls, or so many tokens, in a minute, an hour, a day, a week or a
// month, for a session, a user, an API key, an agent or the whole app. [Limiter.ReserveCall] counts a call under all rules or
// under none, [Limiter.SettleTokens] settles what the tokens of a turn came to. Counts are kept in a [Backend]: in this process,
// in Redis, in a database, or in one with another behind it.
//
// A [Throttle] slows down guessing: it counts the failures of a client address and turns the address away once there
// were too many.
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
	State      *State        // of the rule that refuses; nil where no rule does
}

// Error says which limit is reached and how long to wait.
func (e *ExhaustedError) Error() string {
	seconds := int(e.RetryAfter.Seconds())
	if e.State == nil {
		return fmt.Sprintf("%v, try again in %d s", ErrExhausted, seconds)
	}
	return fmt.Sprintf("%v: %v, try again in %d s", ErrExhausted, e.State.Rule, seconds)
}

// Kind is what the error is called where its words are not told.
func (e *ExhaustedError) Kind() string { return "exhausted" }

// Is makes errors.Is(err, ErrExhausted) hold.
func (e *ExhaustedError) Is(target error) bool { return target == ErrExhausted }

// newExhaustedError returns the refusal of a limit that opens again at t.
func newExhaustedError(t time.Time) error {
	return &ExhaustedError{RetryAfter: wholeSeconds(time.Until(t))}
}

// wholeSeconds is d in whole seconds, at least one.
func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(max(1, math.Ceil(d.Seconds()))) * time.Second
}
