package store

import (
	"errors"
	"fmt"
)

// ErrNoRoom says that the app has as many runs at work as it may: a further one has to wait for its turn.
var ErrNoRoom = errors.New("the app has as many tasks at work as it may")

// unbounded stands for no limit.
const unbounded int64 = 1 << 62

// bounded reports whether the run counts against a limit the moment it is written.
func (run Run) bounded() bool { return run.Limit > 0 && run.Worker != "" }

func (run Run) bound() int64 {
	if run.bounded() {
		return run.Limit
	}
	return unbounded
}

// hasRoom is the condition that the tenant $1 may have another run at work, up to the bound whose parameter has the
// number most.
func hasRoom(most int) string {
	return fmt.Sprintf(`(CAST($%[1]d AS BIGINT) = %[2]d OR (SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1) < CAST($%[1]d AS BIGINT))`,
		most, unbounded)
}
