// Package callcancel keeps the requests to cancel tool calls. A [Store] is made for one tenant, whose callers request;
// [Queue] is the platform's view, for the processes that execute the calls.
package callcancel

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Request is a request to cancel a tool call of a task's turn. It is a row, because the call may execute in
// another process.
type Request struct {
	Tenant db.ID
	Task   agentsvc.TaskID
	Turn   int64
	Call   agentsvc.CallID
	Reason string
}

// Store keeps the requests of one tenant's callers. It is safe for concurrent use.
type Store struct {
	h      *db.Handle
	tenant string
}

// New returns the requests of a tenant in d.
func New(d *db.DB, tenant db.ID) *Store { return &Store{d.Tenant(tenant), string(tenant)} }

// Queue reads and marks the requests of all tenants.
type Queue struct {
	h *db.Handle
}

// NewQueue returns the requests in d.
func NewQueue(d *db.DB) *Queue { return &Queue{d.Platform()} }

// Request stores a request for the process that executes the call. Repeating it changes nothing. It returns
// [agentsvc.ErrTaskChanged] if the task does not work on that turn. Old requests of the tenant are deleted in the same
// transaction.
func (s *Store) Request(ctx context.Context, c Request) error {
	b := db.Batch{StorageKind: db.StoresMore}
	var n int64
	b.Exec(nil, `DELETE FROM call_cancel WHERE tenant = $1 AND asked_at < stoa_now() - $2`, s.tenant, retention.Microseconds())
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
		return fmt.Errorf("request to cancel call %s of task %s: %w", c.Call, c.Task, err)
	case n == 0:
		return agentsvc.ErrTaskChanged
	}
	return nil
}

// retention is how long a request is kept, so that callers who wait for the call can read whether it was
// fulfilled.
const retention = 24 * time.Hour

// IsCancelled reports whether the call was ended by its request.
func (s *Store) IsCancelled(ctx context.Context, c Request) (taken bool, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&taken) },
		`SELECT taken FROM call_cancel WHERE tenant = $1 AND task = $2 AND turn = $3 AND call = $4`, s.tenant, string(c.Task), c.Turn, string(c.Call))
	if err := s.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("look whether call %s of task %s was cancelled: %w", c.Call, c.Task, err)
	}
	return taken, nil
}

// ListOpen returns the open requests for calls of the runs that are leased to a worker, at most 1,000.
func (q *Queue) ListOpen(ctx context.Context, worker string) ([]Request, error) {
	var requested []Request
	var b db.Batch
	b.Query(func(r db.Row) error {
		var c Request
		err := r.Scan((*string)(&c.Tenant), (*string)(&c.Task), &c.Turn, (*string)(&c.Call), &c.Reason)
		requested = append(requested, c)
		return err
	}, `SELECT c.tenant, c.task, c.turn, c.call, c.reason FROM call_cancel c JOIN run r ON r.tenant = c.tenant AND r.task = c.task AND r.turn = c.turn
		WHERE NOT c.taken AND r.worker = $1 AND r.state = 'running' LIMIT 1000`, worker)
	if err := q.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for calls to cancel: %w", err)
	}
	return requested, nil
}

// MarkCancelled records that the worker fulfils the request. It precedes the cancellation of the call, so a
// caller that sees the call's result also sees the mark.
func (q *Queue) MarkCancelled(ctx context.Context, c Request) error {
	var b db.Batch
	b.Exec(nil, `UPDATE call_cancel SET taken = TRUE WHERE tenant = $1 AND task = $2 AND turn = $3 AND call = $4`,
		string(c.Tenant), string(c.Task), c.Turn, string(c.Call))
	if err := q.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("record that a call was cancelled: %w", err)
	}
	return nil
}
