package store

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// RunQueue is the platform's view of the queue: every tenant's runs. A worker's lease on its runs is its heartbeat, by
// the database's clock.
type RunQueue struct {
	h *db.Handle
}

// NewRunQueue returns the queue's rows in d.
func NewRunQueue(d *db.DB) *RunQueue { return &RunQueue{d.Platform()} }

// RenewLeases renews the leases of a worker, whose process has its own configuration file with the hash config, or "". It
// tells how many times in a row the worker has, 1 where it counted as dead before, and whether another worker's
// process has a different file.
func (q *RunQueue) RenewLeases(ctx context.Context, worker, config string) (beats int64, differs bool, err error) {
	err = q.execBatch(ctx, "renew leases of "+worker, func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&beats) }, `INSERT INTO worker (id, heartbeat_at, config, beats) VALUES ($1, stoa_now(), $2, 1)
			ON CONFLICT (id) DO UPDATE SET heartbeat_at = stoa_now(), config = $2, beats = worker.beats + 1 RETURNING beats`, worker, config)
		b.Query(func(r db.Row) error { return r.Scan(&differs) },
			`SELECT EXISTS (SELECT 1 FROM worker WHERE config <> $1 AND config <> '' AND $1 <> '')`, config)
	})
	return beats, differs, err
}

// ReleaseRuns gives a worker's runs back: they are pending at once, and the attempt does not count. What is still at work there
// writes nothing more.
func (q *RunQueue) ReleaseRuns(ctx context.Context, worker string) error {
	return q.execBatch(ctx, "release runs of "+worker, func(b *db.Batch) {
		raiseEpochs(b, `worker = $1`, worker)
		b.Exec(nil, `UPDATE run SET state = 'pending', worker = '', attempts = attempts - 1, available_at = stoa_now(), ready = TRUE, cut_off = TRUE
			WHERE worker = $1 AND state = 'running'`, worker)
		b.Exec(nil, `DELETE FROM worker WHERE id = $1`, worker)
	})
}

// RescueRuns makes the runs of dead workers pending again: those whose last heartbeat is older than stale. One that has
// taken several workers with it is a suspect from then on, and claimed alone. A worker that only seemed dead writes nothing
// more, from this moment on: it does not have to wait for the next one to begin. It returns how many runs there were.
func (q *RunQueue) RescueRuns(ctx context.Context, stale time.Duration) (n int64, err error) {
	err = q.execBatch(ctx, "rescue runs", func(b *db.Batch) {
		b.Exec(nil, `DELETE FROM worker WHERE heartbeat_at < stoa_now() - CAST($1 AS BIGINT)`, stale.Microseconds())
		raiseEpochs(b, orphanedSQL)
		b.Exec(&n, `UPDATE run SET state = 'pending', worker = '', available_at = stoa_now(), rescues = rescues + 1, ready = rescues + 1 < $1, last_error = $2,
				cut_off = TRUE
			WHERE state = 'running' AND `+orphanedSQL, suspectRescues, workerDied)
	})
	return n, err
}

// orphanedSQL is the condition on a run that its worker has no lease any more.
const orphanedSQL = `worker NOT IN (SELECT id FROM worker)`

// raiseEpochs adds to b that nobody writes any more to the tasks of the runs at work that the condition is about, until the
// next worker begins. It stands before the change of the runs: whoever records an end locks a task before its run, too. A run
// that is claimed between the two statements needs no new epoch, for [Store.AcquireTaskLease] finds out that it is leased no more.
func raiseEpochs(b *db.Batch, condition string, args ...any) {
	b.Exec(nil, `UPDATE task SET epoch = epoch + 1 WHERE state IN ('submitted', 'working')
		AND (tenant, id, turn) IN (SELECT tenant, task, turn FROM run WHERE state = 'running' AND `+condition+`)`, args...)
}

// WakeOverdueRuns makes the runs pending that rest until a decision which nobody made in time: whoever claims one ends its
// task, and waits for nobody of its session to do so. It returns how many there were.
func (q *RunQueue) WakeOverdueRuns(ctx context.Context) (n int64, err error) {
	err = q.execBatch(ctx, "look for overdue decisions", func(b *db.Batch) {
		b.Exec(&n, `UPDATE run SET state = 'pending', session = '', ready = TRUE, available_at = stoa_now() WHERE state = 'input_required' AND (tenant, task, turn) IN
			(SELECT t.tenant, t.id, t.turn FROM approval a JOIN task t ON t.tenant = a.tenant AND t.id = a.task WHERE a.due_at <= stoa_now())`)
	})
	return n, err
}

// ListLeasedRuns lists the runs that are leased to a worker: tenant, task, turn and attempts of each.
func (q *RunQueue) ListLeasedRuns(ctx context.Context, worker string) ([]Run, error) {
	var runs []Run
	err := q.execBatch(ctx, "list runs of "+worker, func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			run := Run{Worker: worker}
			err := r.Scan((*string)(&run.Tenant), (*string)(&run.Task), &run.Turn, &run.Attempts)
			runs = append(runs, run)
			return err
		}, `SELECT tenant, task, turn, attempts FROM run WHERE worker = $1 AND state = 'running'`, worker)
	})
	return runs, err
}

// ReturnOptions says how a run is given back.
type ReturnOptions struct {
	Delay     time.Duration // before it may be claimed
	Uncounted bool          // the attempt does not count: the run is postponed
	Error     string        // what went wrong, where the attempt counts
}

// ReturnRun makes a run pending again, if it is still leased to the worker that run names for the attempt that run is.
func (q *RunQueue) ReturnRun(ctx context.Context, run Run, options ReturnOptions) error {
	attempts := run.Attempts
	if options.Uncounted {
		attempts, options.Error = attempts-1, ""
	}
	return q.execBatch(ctx, "give run back", func(b *db.Batch) {
		b.Exec(nil, `UPDATE run SET state = 'pending', worker = '', attempts = $7, available_at = stoa_now() + CAST($6 AS BIGINT), ready = $8,
				last_error = CASE WHEN $9 = '' THEN last_error ELSE $9 END, postponed = $10
			WHERE tenant = $1 AND task = $2 AND turn = $3 AND worker = $4 AND attempts = $5 AND state = 'running'`,
			string(run.Tenant), string(run.Task), run.Turn, run.Worker, run.Attempts, options.Delay.Microseconds(), attempts, options.Delay == 0, options.Error, options.Uncounted)
	})
}

// ExpediteRuns makes the runs of a tenant that were postponed claimable now, and those that rest although no attempt has failed.
// Runs that wait for their next attempt wait on.
func (q *RunQueue) ExpediteRuns(ctx context.Context, tenant db.ID) error {
	return q.execBatch(ctx, "advance runs", func(b *db.Batch) {
		b.Exec(nil, `UPDATE run SET available_at = stoa_now(), ready = TRUE WHERE tenant = $1 AND state = 'pending' AND NOT ready AND (postponed OR last_error = '')`, string(tenant))
	})
}

// DropRun ends a run whose task no longer waits for it, if it is still leased as ReturnRun says.
func (q *RunQueue) DropRun(ctx context.Context, run Run) error {
	return q.execBatch(ctx, "drop run", func(b *db.Batch) {
		b.Exec(nil, `UPDATE run SET state = 'completed', worker = ''
			WHERE tenant = $1 AND task = $2 AND turn = $3 AND worker = $4 AND attempts = $5 AND state = 'running'`,
			string(run.Tenant), string(run.Task), run.Turn, run.Worker, run.Attempts)
	})
}

func (q *RunQueue) execBatch(ctx context.Context, operation string, fill func(*db.Batch)) error {
	var b db.Batch
	fill(&b)
	if err := q.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// LoadJournal reads the facts of run's turn so far: the message that opened it and what its earlier attempts recorded. Right
// after [Store.AcquireTaskLease] they are there already.
func (s *Store) LoadJournal(ctx context.Context, run Run) ([]agentsvc.Event, error) {
	if n := len(run.TurnEvents); n > 0 && run.TurnEvents[n-1].Seq == run.Seq {
		return run.TurnEvents, nil
	}
	return s.LoadEvents(ctx, run.Task, run.FirstSeq-1, maxJournal)
}

// workerDied is the error of a run whose worker stopped without a word.
const workerDied = "its worker died"

// maxJournal bounds the facts of one turn.
const maxJournal = 100_000

// CountLeasedRuns counts the runs of an app that are leased to workers whose last heartbeat is younger than stale, and returns the
// database's time.
func (q *RunQueue) CountLeasedRuns(ctx context.Context, tenant db.ID, stale time.Duration) (n int64, now time.Time, err error) {
	var micros int64
	err = q.execBatch(ctx, "count the leased runs of app "+string(tenant), func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&n, &micros) }, `SELECT COUNT(*), stoa_now() FROM run WHERE tenant = $1 AND state = 'running'
			AND worker IN (SELECT id FROM worker WHERE heartbeat_at >= stoa_now() - CAST($2 AS BIGINT))`, string(tenant), stale.Microseconds())
	})
	return n, time.UnixMicro(micros).UTC(), err
}
