package store

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Lease is a worker's right to execute a run. Epoch and Seq are the precondition of its next write: what the worker
// last saw of the task. Taking the task over raises its epoch, so a worker that has lost its lease writes
// nothing more. The store's writes for the run advance the lease; only the run's goroutine uses it.
//
// A claim ([RunQueue.ClaimRuns]) names the worker only. The epoch is raised where a worker begins ([Runs.BeginRun]), where
// its process is found dead or stops ([RunQueue.RescueRuns], [RunQueue.ReleaseRuns]) and with each decision, next turn and
// cancellation. [Runs.advanceTask] compares it in every write of a worker, and for sessions in a database of their own
// tryWriteTurn (session.go); only usage ([Record.UsageRows]) is written without a lease. Calls that have an effect outside
// ask [agentsvc.LeaseCheck] first; package queue renews the lease and ends the context of a run whose lease is lost.
type Lease struct {
	Worker string // id of the process that has the lease; "" = none
	// Epoch is the task's when the run began; 0 = the run is claimed, but its task is not acquired yet. It says who may
	// write, Seq how much was written; neither depends on the app's revision or generation.
	Epoch int64
	Seq   int64 // of the task's last event
	// TurnEvents are the events of the turn as of BeginRun, where they were small enough to be read with it.
	TurnEvents []agentsvc.Event
	// HasQueuedRuns reports, after the run has ended, that other runs of its session may wait for that. Set by
	// WriteRecord.
	HasQueuedRuns bool
}

// leasedRunSQL selects the run of task $2 of tenant $1 if it is leased. Its turn, worker and attempt are the
// parameters turn, turn+1 and turn+2: a later attempt on the same worker is another lease. The concatenation keeps
// PostgreSQL from the index of leased runs, of which it reads all of the tenant's (48 µs for 128 instead of 12).
func leasedRunSQL(turn int) string {
	return fmt.Sprintf(`SELECT 1 FROM run WHERE tenant = $1 AND task = $2 AND turn = $%d AND worker = $%d AND attempts = $%d AND state || '' = 'running'`, turn, turn+1, turn+2)
}

// isLeased reports whether run is leased to its worker.
func (s *Runs) isLeased(ctx context.Context, run *Run) (leased bool, err error) {
	var b db.Batch
	b.Query(func(db.Row) error { leased = true; return nil }, leasedRunSQL(3), s.tenant, string(run.Task), run.Turn, run.Worker, run.Attempts)
	if err := s.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("read the lease of task %s: %w", run.Task, err)
	}
	return leased, nil
}
