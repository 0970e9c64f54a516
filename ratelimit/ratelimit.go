// Package ratelimit limits how often apps are called, how many tokens they use, and how often a credential may be
// guessed.
//
// A [Limiter] applies the rules of one app: a number of calls, or of tokens, in a minute, an hour, a day, a week or a
// month, for a session, a user, an API key, an agent or the whole app. A call passes through it in two steps:
//
//   - [Limiter.ReserveCall] counts the call under all rules or under none, and reserves tokens. It is called when a
//     request is admitted. Its [Reservation] is stored with the run.
//   - [Limiter.SettleTokens] counts the tokens that were used and gives the reserved ones back. It is called when the
//     turn has ended, maybe by another process.
//
// Counts are kept in a [Backend]: [Memory], [Redis], [SQL], or one with another as fallback. Adding to all counters
// that share a backend is one atomic step, so that concurrent calls, through any number of processes, cannot exceed a
// limit. Windows are those of the calendar in UTC, by the backend's clock. See docs/limits.md.
//
// A [Throttle] counts failed attempts of client addresses and refuses an address after too many.
package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrExhausted is wrapped by every refusal of this package.
var ErrExhausted = errors.New("limit reached")

// ExhaustedError is an [ErrExhausted] with the time after which another attempt may succeed.
type ExhaustedError struct {
	// RetryAfter is in whole seconds, at least one: the value of the header Retry-After (RFC 9110, section 10.2.3).
	RetryAfter time.Duration
	// State is the state of the rule that refuses; nil for a [Throttle].
	State *State
}

// Error describes the limit and the time to wait; it may be shown to the caller.
func (e *ExhaustedError) Error() string {
	seconds := int(e.RetryAfter.Seconds())
	if e.State == nil {
		return fmt.Sprintf("%v, try again in %d s", ErrExhausted, seconds)
	}
	return fmt.Sprintf("%v: %v, try again in %d s", ErrExhausted, e.State.Rule, seconds)
}

// Kind classifies the error where its text must not be shown.
func (e *ExhaustedError) Kind() string { return "exhausted" }

// Is makes errors.Is(err, ErrExhausted) true.
func (e *ExhaustedError) Is(target error) bool { return target == ErrExhausted }

// newExhaustedError returns the refusal of a limit that ends at t.
func newExhaustedError(t time.Time) error {
	return &ExhaustedError{RetryAfter: wholeSeconds(time.Until(t))}
}

// wholeSeconds rounds d up to whole seconds, at least one.
func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(max(1, math.Ceil(d.Seconds()))) * time.Second
}
