package store

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// CallCancel is a request to cancel a tool call of a task's turn. It is a row, because the call may execute in
// another process.
type CallCancel struct {
	Tenant db.ID
	Task   agentsvc.TaskID
	Turn   int64
	Call   agentsvc.CallID
	Reason string
}

// RequestCallCancel stores a request for the process that executes the call. Repeating it changes nothing. It returns
// [agentsvc.ErrLeaseLost] if the task does not work on that turn. Old requests of the tenant are deleted in the same
// transaction.
func (s *Store) RequestCallCancel(ctx context.Context, c CallCancel) error {
	b := db.Batch{StorageKind: db.StoresMore}
	var n int64
	b.Exec(nil, `DELETE FROM call_cancel WHERE tenant = $1 AND asked_at < stoa_now() - $2`, s.tenant, callCancelRetention.Microseconds())
	// Selecting from task makes the request conditional on the turn; the update that changes nothing makes a repeated
	// request count.
	b.Exec(&n, `INSERT INTO call_cancel (tenant, task, turn, call, reason, taken, asked_at)
		SELECT t.tenant, t.id, t.turn, CAST($4 AS TEXT), CAST($5 AS TEXT), FALSE, stoa_now() FROM task t
		WHERE t.tenant = $1 AND t.id = $2 AND t.turn = $3 AND t.state = 'working'
		ON CONFLICT (tenant, task, turn, call) DO UPDATE SET asked_at = call_cancel.asked_at`,
		s.tenant, string(c.Task), c.Turn, string(c.Call), c.Reason)
	err := s.h.Do(ctx, &b)
	switch {
	case err != nil:
		return fmt.Errorf("ask to cancel call %s of task %s: %w", c.Call, c.Task, err)
	case n == 0:
		return agentsvc.ErrLeaseLost
	}
	return nil
}

// callCancelRetention is how long a request is kept, so that callers who wait for the call can read whether it was
// fulfilled.
const callCancelRetention = 24 * time.Hour

// IsCallCancelled reports whether the call was ended by its request.
func (s *Store) IsCallCancelled(ctx context.Context, c CallCancel) (taken bool, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&taken) },
		`SELECT taken FROM call_cancel WHERE tenant = $1 AND task = $2 AND turn = $3 AND call = $4`, s.tenant, string(c.Task), c.Turn, string(c.Call))
	if err := s.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("look whether call %s of task %s was cancelled: %w", c.Call, c.Task, err)
	}
	return taken, nil
}

// ListCallCancels returns the open requests for calls of the runs that are leased to a worker, at most 1,000.
func (q *RunQueue) ListCallCancels(ctx context.Context, worker string) ([]CallCancel, error) {
	var requested []CallCancel
	err := q.execBatch(ctx, "look for calls to cancel", func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			var c CallCancel
			err := r.Scan((*string)(&c.Tenant), (*string)(&c.Task), &c.Turn, (*string)(&c.Call), &c.Reason)
			requested = append(requested, c)
			return err
		}, `SELECT c.tenant, c.task, c.turn, c.call, c.reason FROM call_cancel c JOIN run r ON r.tenant = c.tenant AND r.task = c.task AND r.turn = c.turn
			WHERE NOT c.taken AND r.worker = $1 AND r.state = 'running' LIMIT 1000`, worker)
	})
	return requested, err
}

// MarkCallCancelled records that the worker fulfils the request. It precedes the cancellation of the call, so a
// caller that sees the call's result also sees the mark.
func (q *RunQueue) MarkCallCancelled(ctx context.Context, c CallCancel) error {
	return q.execBatch(ctx, "note that a call was cancelled", func(b *db.Batch) {
		b.Exec(nil, `UPDATE call_cancel SET taken = TRUE WHERE tenant = $1 AND task = $2 AND turn = $3 AND call = $4`,
			string(c.Tenant), string(c.Task), c.Turn, string(c.Call))
	})
}

// IsTaskCancelled reports whether a task ended as cancelled.
func (q *RunQueue) IsTaskCancelled(ctx context.Context, tenant db.ID, task agentsvc.TaskID) (cancelled bool, err error) {
	err = q.execBatch(ctx, "look whether a task was cancelled", func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&cancelled) },
			`SELECT state = 'cancelled' FROM task WHERE tenant = $1 AND id = $2`, string(tenant), string(task))
	})
	return cancelled, err
}
