package store

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

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
