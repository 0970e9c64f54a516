package store

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Lease is a worker's right to execute a run. Epoch and Seq are the precondition of its next write: what the worker
// last saw of the task. Taking the task over raises its epoch, so a worker that has lost its lease writes
// nothing more. The store's writes for the run advance the lease; only the run's goroutine uses it.
//
// A claim ([RunQueue.ClaimRuns]) names the worker only. The epoch is raised where a worker begins ([Runs.BeginRun]),
// where its process is found dead or stops ([RunQueue.RescueRuns], [RunQueue.ReleaseRuns]), where a run is given up
// ([DeadLetters.GiveUp]), and with each decision, next turn and cancellation. [Runs.advanceTask] compares it in every
// write of a worker. BeginRun compares it itself, ends that are written in groups on PostgreSQL by taskAdvanceChange
// (recordshared.go), and sessions in a database of their own by tryWriteTurn (session.go). Without it are written
// usage ([Record.UsageRows]), which was spent, and what is as true from another worker: the summary of a session, the
// postponement of an approval. Calls that have an effect outside ask [agentsvc.LeaseCheck] first; package queue renews
// the lease and ends the context of a run whose lease is lost.
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

// leasedRunSQL selects the run of task $2 of tenant $1 if it is leased. Its turn, worker and attempt are the parameters
// first, first+1 and first+2. The attempt is compared because a later attempt on the same worker is another lease. The
// concatenation prevents that PostgreSQL uses the index of leased runs: it would read all leased runs of the tenant,
// which takes 48 µs instead of 12 if there are 128.
func leasedRunSQL(first int) string {
	return fmt.Sprintf(`SELECT 1 FROM run WHERE tenant = $1 AND task = $2 AND turn = $%d AND worker = $%d AND attempts = $%d AND state || '' = 'running'`, first, first+1, first+2)
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

// precondition is what a task's row must be for a statement of a batch to act: the epoch and sequence that the
// batch's first statement has set. It is the fence of all writes to a task: if the first statement did not act, no
// row has these values.
type precondition struct {
	epoch int64
	seq   int64
}

// advanceTask adds the statement on which all others of the record depend: it moves the task to seq and to the last
// status among the events, if epoch and sequence are the run's and the task is working. n receives 1 if they are.
func (s *Runs) advanceTask(b *db.Batch, n *int64, run *Run, rec Record, seq, now int64) {
	if ev := lastStatus(rec.Events); ev != nil {
		b.Exec(n, `UPDATE task SET seq = $5, status_seq = $6, state = $7, updated_at = $8
			WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
			s.tenant, string(run.Task), run.Epoch, run.Seq, seq, ev.Seq, string(ev.Status.State), now)
		return
	}
	b.Exec(n, `UPDATE task SET seq = $5, updated_at = $6 WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
		s.tenant, string(run.Task), run.Epoch, run.Seq, seq, now)
}

// raiseEpochs adds to b that the tasks of the executing runs that fulfil the condition get a new epoch. It comes
// before the change of the runs, because a worker that records an end locks the task before the run, too. A run that
// is claimed between the two statements needs no new epoch: [Runs.BeginRun] finds that it is not leased any
// more.
func raiseEpochs(b *db.Batch, condition string, args ...any) {
	b.Exec(nil, `UPDATE task SET epoch = epoch + 1 WHERE state IN ('submitted', 'working')
		AND (tenant, id, turn) IN (SELECT tenant, task, turn FROM run WHERE state = 'running' AND `+condition+`)`, args...)
}

// hasReached reports whether the task has g's epoch and at least its sequence. It is called after a commit whose
// outcome is unknown, with a context of its own, because the caller's may have ended.
func (t *tenantRows) hasReached(id agentsvc.TaskID, g precondition) (there bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&there) },
		`SELECT EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq >= $4)`, t.tenant, string(id), g.epoch, g.seq)
	return there, t.h.Do(ctx, &b)
}
