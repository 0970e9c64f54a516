package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Retention is how long a tenant's finished tasks, their events and idle sessions are kept; 0 = without limit.
type Retention struct {
	Tasks, Events, Sessions time.Duration
}

// SweepCounts is how many rows of each kind a sweep has deleted.
type SweepCounts struct {
	Tasks, Events, Sessions int64
}

// Bounds of one transaction of a sweep, and the pause between two: other writers wait only a short time for a sweep,
// which matters on SQLite with its single writer.
const (
	maxSweepTasks    = 100
	maxSweepEvents   = 2000
	maxSweepSessions = 500
	sweepInterval    = 20 * time.Millisecond
)

// taskTables are the tables with rows that belong to a task and are deleted with it, besides task itself.
var taskTables = []string{"event", "run", "approval", "sent", "call_cancel", "receiver"}

// Sweeper deletes rows of a tenant that are not needed any more.
type Sweeper struct {
	*tenantRows
	sessions *Sessions
	counts   *countCache
}

// SweepExpired deletes what r does not keep any more: finished tasks that were not changed since, with all their
// rows; of finished tasks the events except the last status; and sessions without a recent turn and without an
// unfinished task. It works in small transactions until nothing is left or ctx ends, and returns the numbers also
// with an error.
func (s *Sweeper) SweepExpired(ctx context.Context, r Retention) (SweepCounts, error) {
	var n SweepCounts
	now := time.Now()
	if r.Tasks > 0 {
		if err := s.deleteOldTasks(ctx, now.Add(-r.Tasks), &n.Tasks); err != nil {
			return n, fmt.Errorf("delete old tasks: %w", err)
		}
	}
	if r.Events > 0 {
		if err := s.deleteOldEvents(ctx, now.Add(-r.Events), &n.Events); err != nil {
			return n, fmt.Errorf("delete old events: %w", err)
		}
	}
	if r.Sessions > 0 {
		if err := s.deleteIdleSessions(ctx, now.Add(-r.Sessions), &n.Sessions); err != nil {
			return n, fmt.Errorf("delete old sessions: %w", err)
		}
	}
	return n, nil
}

// finishedTask is a task that has ended.
type finishedTask struct {
	id     agentsvc.TaskID
	events int64 // upper bound: the task's sequence
}

// deleteOldTasks deletes finished tasks that were last changed before a time and adds their number to n.
func (s *Sweeper) deleteOldTasks(ctx context.Context, before time.Time, n *int64) error {
	for {
		more, deleted := false, *n
		err := s.h.RunTx(ctx, func(tx *db.Tx) error {
			old, err := s.listFinishedTasks(ctx, tx, "", before)
			if err != nil || len(old) == 0 {
				return err
			}
			more = true
			if old[0].events > maxSweepEvents {
				if trimmed, err := s.deleteEvents(ctx, tx, old[:1]); err != nil || trimmed == maxSweepEvents {
					return err // the remaining events and the task follow in further transactions
				}
			}
			deletable, sum := 1, old[0].events
			for ; deletable < len(old) && sum+old[deletable].events <= maxSweepEvents; deletable++ {
				sum += old[deletable].events
			}
			more = deletable < len(old) || len(old) == maxSweepTasks
			*n += int64(deletable)
			return s.deleteTasks(ctx, tx, old[:deletable])
		})
		if *n != deleted {
			s.counts.invalidate()
		}
		if err != nil || !more {
			return err
		}
		if err := pauseSweep(ctx); err != nil {
			return err
		}
	}
}

// listFinishedTasks returns up to maxSweepTasks finished tasks with ids behind after that were last changed before a
// time. On PostgreSQL it locks them and skips those that another transaction has locked.
func (s *Sweeper) listFinishedTasks(ctx context.Context, tx *db.Tx, after agentsvc.TaskID, before time.Time) (old []finishedTask, err error) {
	skip := ""
	if s.h.Engine() == db.Postgres {
		skip = " FOR UPDATE SKIP LOCKED"
	}
	// Ids are UUIDv7, so the primary key finds the old tasks. An index by time would make every write of every task
	// more expensive.
	err = tx.Query(ctx, func(r db.Row) error {
		var f finishedTask
		err := r.Scan((*string)(&f.id), &f.events)
		old = append(old, f)
		return err
	}, `SELECT id, seq FROM task WHERE tenant = $1 AND id > $2 AND id < $3 AND updated_at < $4
		AND state IN ('completed', 'failed', 'cancelled', 'rejected') ORDER BY id LIMIT $5`+skip,
		s.tenant, string(after), firstTaskID(before), before.UnixMicro(), maxSweepTasks)
	return old, err
}

// firstTaskID returns the smallest UUIDv7 of a time in text form: no task that was opened then or later has a smaller
// id.
func firstTaskID(at time.Time) string {
	ms := max(at.UnixMilli(), 0)
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16, ms&0xffff)
}

// deleteTasks deletes tasks with all their rows.
func (s *Sweeper) deleteTasks(ctx context.Context, tx *db.Tx, old []finishedTask) error {
	in, args := s.taskListSQL(old)
	for _, table := range taskTables {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1 AND task IN (`+in+`)`, args...); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `DELETE FROM task WHERE tenant = $1 AND id IN (`+in+`)`, args...)
	return err
}

// deleteOldEvents deletes the events of finished tasks that were last changed before a time, except the last status,
// and adds their number to n.
func (s *Sweeper) deleteOldEvents(ctx context.Context, before time.Time, n *int64) error {
	after := agentsvc.TaskID("")
	for {
		var old []finishedTask
		var deleted int64
		err := s.h.RunTx(ctx, func(tx *db.Tx) (err error) {
			if old, err = s.listFinishedTasks(ctx, tx, after, before); err == nil && len(old) > 0 {
				deleted, err = s.deleteEvents(ctx, tx, old)
			}
			return err
		})
		if err != nil || len(old) == 0 {
			return err
		}
		*n += deleted
		if deleted < maxSweepEvents { // all events of these tasks are deleted: continue behind them
			after = old[len(old)-1].id
		}
		if err := pauseSweep(ctx); err != nil {
			return err
		}
	}
}

// deleteEvents deletes up to maxSweepEvents events of finished tasks, never that of a task's status, and returns
// their number.
func (s *Sweeper) deleteEvents(ctx context.Context, tx *db.Tx, old []finishedTask) (int64, error) {
	in, args := s.taskListSQL(old)
	return tx.Exec(ctx, `DELETE FROM event WHERE (tenant, task, seq) IN (SELECT e.tenant, e.task, e.seq FROM event e
		JOIN task t ON t.tenant = e.tenant AND t.id = e.task
		WHERE e.tenant = $1 AND e.task IN (`+in+`) AND e.seq <> t.status_seq LIMIT `+strconv.Itoa(maxSweepEvents)+`)`, args...)
}

// taskListSQL returns the placeholders of the tasks for an IN list, and the arguments, of which the tenant is the
// first.
func (s *Sweeper) taskListSQL(old []finishedTask) (in string, args []any) {
	args = []any{s.tenant}
	placeholders := make([]string, len(old))
	for i, f := range old {
		args = append(args, string(f.id))
		placeholders[i] = "$" + strconv.Itoa(len(args))
	}
	return strings.Join(placeholders, ", "), args
}

// pauseSweep waits sweepInterval, or returns ctx's error.
func pauseSweep(ctx context.Context) error {
	select {
	case <-time.After(sweepInterval):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
