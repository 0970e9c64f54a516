package store

import (
	"errors"
	"fmt"
)

// ErrTooManyRunning says that the app has as many runs at work as it may: a further one has to wait for its turn.
var ErrTooManyRunning = errors.New("the app has as many tasks at work as it may")

// noLimit stands for no limit.
const noLimit int64 = 1 << 62

// isLimited reports whether the run counts against a limit the moment it is written.
func (run Run) isLimited() bool { return run.MaxRunning > 0 && run.Worker != "" }

func (run Run) runLimit() int64 {
	if run.isLimited() {
		return run.MaxRunning
	}
	return noLimit
}

// belowLimitSQL is the condition that the tenant $1 may have another run at work, up to the bound whose parameter has the
// number most.
func belowLimitSQL(maximum int) string {
	return fmt.Sprintf(`(CAST($%[1]d AS BIGINT) = %[2]d OR (SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1) < CAST($%[1]d AS BIGINT))`,
		maximum, noLimit)
}
