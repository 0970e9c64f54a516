package store

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// RunQueue reads and changes the runs of all tenants. The lease of a run is the heartbeat of its worker, by the
// database's clock: there is one row per process in the table worker, so renewing costs one statement however many
// runs the process executes.
type RunQueue struct {
	h *db.Handle
}

// NewRunQueue returns the queue of d.
func NewRunQueue(d *db.DB) *RunQueue { return &RunQueue{d.Platform()} }

// WriteHeartbeat writes the heartbeat of a worker whose process has the configuration hash config ("" = no file). beats
// is how many renewals the row has had: 1 for a new row, which means that the worker was counted as dead before if it
// ever had one. differs reports whether a process with another hash has a row.
func (q *RunQueue) WriteHeartbeat(ctx context.Context, worker, config string) (beats int64, differs bool, err error) {
	err = q.execBatch(ctx, "renew leases of "+worker, func(b *db.Batch) {
		// The heartbeat and its check are one statement: a rescue that deletes the row before it makes beats 1, one
		// that comes after finds a fresh heartbeat.
		b.Query(func(r db.Row) error { return r.Scan(&beats) }, `INSERT INTO worker (id, heartbeat_at, config, beats) VALUES ($1, stoa_now(), $2, 1)
			ON CONFLICT (id) DO UPDATE SET heartbeat_at = stoa_now(), config = $2, beats = worker.beats + 1 RETURNING beats`, worker, config)
		b.Query(func(r db.Row) error { return r.Scan(&differs) },
			`SELECT EXISTS (SELECT 1 FROM worker WHERE config <> $1 AND config <> '' AND $1 <> '')`, config)
	})
	return beats, differs, err
}

// ReleaseRuns returns all runs of a worker to the queue without counting the attempt, raises the epochs of their
// tasks, so that code that still executes them can write nothing, and deletes the heartbeat. It returns their number.
func (q *RunQueue) ReleaseRuns(ctx context.Context, worker string) (n int64, err error) {
	err = q.execBatch(ctx, "release runs of "+worker, func(b *db.Batch) {
		raiseEpochs(b, `worker = $1`, worker)
		b.Exec(&n, `UPDATE run SET state = 'pending', worker = '', attempts = attempts - 1, available_at = stoa_now(), ready = TRUE, cut_off = TRUE
			WHERE worker = $1 AND state = 'running'`, worker)
		b.Exec(nil, `DELETE FROM worker WHERE id = $1`, worker)
	})
	return n, err
}

// maxRescuedWorkers bounds the dead workers that RescueRuns names.
const maxRescuedWorkers = 20

// RescueRuns makes the runs of dead workers, whose last heartbeat is older than stale, pending again and returns
// their number and the workers that had them, at most maxRescuedWorkers. A run that was rescued suspectRescues times is a suspect and claimed alone. The epochs of the tasks
// are raised here and not only when the next worker begins: a worker that was wrongly counted as dead can write
// nothing from this moment on.
func (q *RunQueue) RescueRuns(ctx context.Context, stale time.Duration) (n int64, workers []string, err error) {
	err = q.execBatch(ctx, "rescue runs", func(b *db.Batch) {
		// Deleting the heartbeats first decides which workers are dead; the following statements use the absence of
		// the row. A worker that renews meanwhile gets a new row with beats 1 and learns that it was counted as dead.
		b.Exec(nil, `DELETE FROM worker WHERE heartbeat_at < stoa_now() - CAST($1 AS BIGINT)`, stale.Microseconds())
		raiseEpochs(b, workerGoneSQL)
		b.Query(func(r db.Row) error {
			var worker string
			err := r.Scan(&worker)
			workers = append(workers, worker)
			return err
		}, `SELECT DISTINCT worker FROM run WHERE state = 'running' AND `+workerGoneSQL+` ORDER BY worker LIMIT $1`, maxRescuedWorkers)
		b.Exec(&n, `UPDATE run SET state = 'pending', worker = '', available_at = stoa_now(), rescues = rescues + 1, ready = rescues + 1 < $1, last_error = $2,
				cut_off = TRUE
			WHERE state = 'running' AND `+workerGoneSQL, suspectRescues, workerDied)
	})
	return n, workers, err
}

// workerGoneSQL is the condition that the worker of a run has no heartbeat any more.
const workerGoneSQL = `worker NOT IN (SELECT id FROM worker)`

// WakeOverdueRuns makes the resting runs pending whose approvals have expired, and returns their number. The worker
// that claims one settles the approval (task.approvalExpiry). The run leaves its session's queue (its column
// session becomes empty), since it executes nothing that could collide with another run.
func (q *RunQueue) WakeOverdueRuns(ctx context.Context) (n int64, err error) {
	err = q.execBatch(ctx, "look for overdue decisions", func(b *db.Batch) {
		// The index approval_due contains the approvals with a timeout.
		b.Exec(&n, `UPDATE run SET state = 'pending', session = '', ready = TRUE, available_at = stoa_now() WHERE state = 'input_required' AND (tenant, task, turn) IN
			(SELECT t.tenant, t.id, t.turn FROM approval a JOIN task t ON t.tenant = a.tenant AND t.id = a.task WHERE a.due_at <= stoa_now())`)
	})
	return n, err
}

// ListLeasedRuns returns tenant, task, turn and attempts of the runs that are leased to a worker.
func (q *RunQueue) ListLeasedRuns(ctx context.Context, worker string) ([]Run, error) {
	var runs []Run
	err := q.execBatch(ctx, "list runs of "+worker, func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			run := Run{Lease: Lease{Worker: worker}}
			err := r.Scan((*string)(&run.Tenant), (*string)(&run.Task), &run.Turn, &run.Attempts)
			runs = append(runs, run)
			return err
		}, `SELECT tenant, task, turn, attempts FROM run WHERE worker = $1 AND state = 'running'`, worker)
	})
	return runs, err
}

// ReturnOptions is how a run returns to the queue.
type ReturnOptions struct {
	Delay     time.Duration // before it may be claimed again
	Uncounted bool          // the attempt does not count: the run was postponed
	Error     string        // the attempt's error, where it counts
}

// ReturnRun makes a run pending again if it is still leased to run.Worker for attempt run.Attempts. Otherwise it does
// nothing.
func (q *RunQueue) ReturnRun(ctx context.Context, run Run, options ReturnOptions) error {
	attempts := run.Attempts
	if options.Uncounted {
		attempts, options.Error = attempts-1, ""
	}
	return q.execBatch(ctx, "return run to the queue", func(b *db.Batch) {
		b.Exec(nil, `UPDATE run SET state = 'pending', worker = '', attempts = $7, available_at = stoa_now() + CAST($6 AS BIGINT), ready = $8,
				last_error = CASE WHEN $9 = '' THEN last_error ELSE $9 END, postponed = $10
			WHERE tenant = $1 AND task = $2 AND turn = $3 AND worker = $4 AND attempts = $5 AND state = 'running'`,
			string(run.Tenant), string(run.Task), run.Turn, run.Worker, run.Attempts, options.Delay.Microseconds(), attempts, options.Delay == 0, options.Error, options.Uncounted)
	})
}

// ExpediteRuns makes the delayed runs of a tenant claimable now, except those that wait for a retry after a failed
// attempt.
func (q *RunQueue) ExpediteRuns(ctx context.Context, tenant db.ID) error {
	return q.execBatch(ctx, "advance runs", func(b *db.Batch) {
		b.Exec(nil, `UPDATE run SET available_at = stoa_now(), ready = TRUE WHERE tenant = $1 AND state = 'pending' AND NOT ready AND (postponed OR last_error = '')`, string(tenant))
	})
}

// DropRun ends a run under the same condition as ReturnRun, if its task does not wait for it any more: if the task has ended
// or continues with another turn. The task of a run that ended otherwise would never end. The run may be leased to a later
// claim of the same attempt, since an attempt that does not count leaves no trace.
func (q *RunQueue) DropRun(ctx context.Context, run Run) error {
	return q.execBatch(ctx, "drop run", func(b *db.Batch) {
		b.Exec(nil, `UPDATE run SET state = 'completed', worker = ''
			WHERE tenant = $1 AND task = $2 AND turn = $3 AND worker = $4 AND attempts = $5 AND state = 'running'
			AND NOT EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND turn = $3
				AND state IN ('submitted', 'working', 'input_required', 'auth_required'))`,
			string(run.Tenant), string(run.Task), run.Turn, run.Worker, run.Attempts)
	})
}

// execBatch executes the statements that fill adds in one transaction; operation is for the error.
func (q *RunQueue) execBatch(ctx context.Context, operation string, fill func(*db.Batch)) error {
	var b db.Batch
	fill(&b)
	if err := q.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// workerDied is the last error of a run whose worker died.
const workerDied = "its worker died"

// CountLeasedRuns returns how many runs of a tenant are leased to workers whose last heartbeat is younger than stale,
// and the database's time.
func (q *RunQueue) CountLeasedRuns(ctx context.Context, tenant db.ID, stale time.Duration) (n int64, now time.Time, err error) {
	var micros int64
	err = q.execBatch(ctx, "count the leased runs of app "+string(tenant), func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&n, &micros) }, `SELECT COUNT(*), stoa_now() FROM run WHERE tenant = $1 AND state = 'running'
			AND worker IN (SELECT id FROM worker WHERE heartbeat_at >= stoa_now() - CAST($2 AS BIGINT))`, string(tenant), stale.Microseconds())
	})
	return n, time.UnixMicro(micros).UTC(), err
}

// IsTaskCancelled reports whether a task ended as cancelled.
func (q *RunQueue) IsTaskCancelled(ctx context.Context, tenant db.ID, task agentsvc.TaskID) (cancelled bool, err error) {
	err = q.execBatch(ctx, "check whether a task was cancelled", func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&cancelled) },
			`SELECT state = 'cancelled' FROM task WHERE tenant = $1 AND id = $2`, string(tenant), string(task))
	})
	return cancelled, err
}
