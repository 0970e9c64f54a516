// Package ratelimit limits how often apps are called, how many tokens they use, and how often a credential may be
// guessed.
//
// A [Limiter] applies the rules of one app: a number of calls, or of tokens, in a minute, an hour, a day, a week or a
// month, for a session, a user, an API key, an agent or the whole app. A call passes through it in two steps:
//
//   - [Limiter.ReserveCall] counts the call under all rules or under none, and reserves tokens. It is called when a
//     request is admitted. Its [TokenReservation] is stored with the run.
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
	"fmt"
	"math"
	"time"

	"stoa/agentsvc"
)

// NewExhaustedError returns the refusal of a limit that has no rule, such as a [Throttle]. retryAfter is in whole
// seconds, at least one.
func NewExhaustedError(retryAfter time.Duration) error {
	return &agentsvc.Error{Code: agentsvc.CodeExhausted, Message: fmt.Sprintf("limit reached, try again in %d s", int(retryAfter.Seconds())), RetryAfter: retryAfter}
}

// newExhaustedError returns the refusal of the rule of s. To a caller without a credential it says that others may have
// used up the limit.
func (s *State) newExhaustedError(isAnonymous bool) error {
	after, shared := s.RetryAfter(), ""
	if isAnonymous && s.Scope == PerUser {
		shared = " (all callers without a credential are one user)"
	}
	return &agentsvc.Error{
		Code: agentsvc.CodeExhausted, Message: fmt.Sprintf("limit reached: %v%s, try again in %d s", s.Rule, shared, int(after.Seconds())), RetryAfter: after, Detail: s,
	}
}

// wholeSeconds rounds d up to whole seconds, at least one.
func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(max(1, math.Ceil(d.Seconds()))) * time.Second
}
