package store

import (
	"errors"
	"fmt"
)

// ErrTooManyRunning reports that the tenant's limit of executing runs is reached. A run without a lease can still
// wait in the queue.
var ErrTooManyRunning = errors.New("the app has reached its limit of executing tasks")

// noLimit is the value of the limit parameter for runs without one.
const noLimit int64 = 1 << 62

// isLimited reports whether the turn's run counts against the tenant's limit when it is written, because it starts under
// a lease.
func (turn NewTurn) isLimited() bool { return turn.MaxRunning > 0 && turn.Worker != "" }

// runLimit returns the run's limit, or noLimit.
func (turn NewTurn) runLimit() int64 {
	if turn.isLimited() {
		return turn.MaxRunning
	}
	return noLimit
}

// belowLimitSQL is the condition that tenant $1 may have another executing run; the limit is the parameter maximum.
// The caller's batch must hold lockApp for it to be exact.
func belowLimitSQL(maximum int) string {
	return fmt.Sprintf(`(CAST($%[1]d AS BIGINT) = %[2]d OR (SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1) < CAST($%[1]d AS BIGINT))`,
		maximum, noLimit)
}
