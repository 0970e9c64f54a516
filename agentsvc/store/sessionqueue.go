package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// The runs of a session form a queue in the order of their acceptance, so that one executes at a time. The first is
// the head: it is pending or running, also between two attempts, and the unique index run_head permits only one. The
// others are waiting. The writer that ends the head promotes the next run if the head's column followed is set;
// [RunQueue.PromoteStalledRuns] does it for a writer that failed in between.
//
// The run that opens a context has session = '', which run_head does not contain, because most contexts have one task
// only. The first run that comes later enters it into the queue (enqueueOpeningRun).

// sessionQueueID returns the name of a session's queue within its tenant: a hash of fixed length, because owner and
// context are chosen by others and may be long.
func sessionQueueID(o agentsvc.Owner, id agentsvc.ContextID) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", o.Issuer, o.Subject, id))
	return hex.EncodeToString(sum[:16])
}

// queueID returns the name of the queue that run is in, "" where run opens its context: no run can be before it, and
// later ones find it as the context's first task (enqueueOpeningRun).
func (run Run) queueID() string {
	if run.IsNewContext {
		return ""
	}
	return sessionQueueID(run.Owner, run.Context)
}

// enqueueOpeningRun adds to b that the run which opened turn's context, if it is unfinished, becomes the head of the
// session's queue. Only the first task of the context can have such a run, even where the clocks of processes differ:
// the transaction that wrote any other task has executed this statement before.
func (t *tenantRows) enqueueOpeningRun(b *db.Batch, turn NewTurn) {
	if turn.IsNewContext {
		return
	}
	b.Exec(nil, `UPDATE run SET session = $2 WHERE tenant = $1 AND turn = 1 AND session = '' AND state IN ('pending', 'running')
		AND task = (SELECT id FROM (SELECT id, turn, state FROM task
				WHERE tenant = $1 AND context_id = $3 AND owner_iss = $4 AND owner_sub = $5 ORDER BY id LIMIT 1) AS opener
			WHERE turn = 1 AND state IN ('submitted', 'working'))`,
		t.tenant, turn.queueID(), string(turn.Context), turn.Owner.Issuer, turn.Owner.Subject)
}

// occupiedSQL is the condition that the queue named by parameter line has a run of another task than $2 of tenant $1.
// Each EXISTS matches one partial index.
func occupiedSQL(line int) string {
	return fmt.Sprintf(`(EXISTS (SELECT 1 FROM run WHERE session = $%[1]d AND tenant = $1 AND session <> '' AND state IN ('pending', 'running') AND task <> $2)
		OR EXISTS (SELECT 1 FROM run WHERE session = $%[1]d AND tenant = $1 AND state = 'waiting' AND task <> $2))`, line)
}

// vacantSQL is the condition that turn's run may be written now. It uses the parameters line (the queue) and line+1 (the
// limit) in every form, because PostgreSQL refuses a statement with an unused parameter.
func vacantSQL(turn NewTurn, line int) string {
	if turn.MayWait {
		return fmt.Sprintf("CAST($%d AS TEXT) <> '' AND CAST($%d AS BIGINT) > 0", line, line+1)
	}
	return "NOT " + occupiedSQL(line) + " AND " + belowLimitSQL(line+1)
}

// queueState receives why a run could not be written.
type queueState struct {
	sessionBusy bool  // another run of the session is unfinished
	running     int64 // executing runs of the tenant; read only where it has a limit
	maxRunning  int64
	isLimited   bool
}

// isFull reports whether the tenant's limit of executing runs is reached.
func (s *queueState) isFull() bool { return s.isLimited && s.running >= s.maxRunning }

// explainConflict replaces a lost race by its reason, if the queue state shows one.
func (s *queueState) explainConflict(err error) error {
	switch {
	case !errors.Is(err, agentsvc.ErrTaskChanged):
		return err
	case s.sessionBusy:
		return agentsvc.ErrSessionBusy
	case s.isFull():
		return ErrTooManyRunning
	}
	return err
}

// queryQueueState adds to b the statements that read whether something prevents turn from being written. From them to
// the end of b no other transaction changes the number of the tenant's executing runs (lockApp).
func (t *tenantRows) queryQueueState(b *db.Batch, turn NewTurn) *queueState {
	a := &queueState{isLimited: turn.isLimited(), maxRunning: turn.MaxRunning}
	if !turn.MayWait {
		b.Query(func(r db.Row) error { return r.Scan(&a.sessionBusy) }, "SELECT "+occupiedSQL(3), t.tenant, string(turn.Task), turn.queueID())
	}
	// The lock comes before the count: a transaction that waits for it counts what the previous one wrote.
	if a.isLimited {
		lockApp(b, t.h, turn.Tenant)
		b.Query(func(r db.Row) error { return r.Scan(&a.running) }, `SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1`, t.tenant)
	}
	return a
}

// enqueueRun adds to b that turn's run, which b wrote as waiting, is in its session's queue: the head learns that another
// run follows, and where there is no head run becomes it.
func (t *tenantRows) enqueueRun(b *db.Batch, turn NewTurn) {
	if !turn.MayWait {
		return
	}
	// Also when run becomes the head itself; then there is no row to update.
	b.Exec(nil, `UPDATE run SET followed = TRUE WHERE session = $2 AND tenant = $1 AND session <> '' AND state IN ('pending', 'running')`,
		t.tenant, turn.queueID())
	promoteNext(b, t.tenant, turn.queueID(), nil)
}

// promoteNext adds to b that the first waiting run of a queue becomes its head, if there is none, and counts into n
// whether one did. If two transactions promote at once, run_head refuses one of them with a duplicate key. followed
// is set without looking: it costs at most one superfluous promotion.
func promoteNext(b *db.Batch, tenant, line string, n *int64) {
	b.Exec(n, `UPDATE run SET state = 'pending', followed = TRUE, available_at = stoa_now() WHERE session = $2 AND tenant = $1 AND state = 'waiting' AND (task, turn) =
			(SELECT task, turn FROM run WHERE session = $2 AND tenant = $1 AND state = 'waiting' ORDER BY created_at, task, turn LIMIT 1)
		AND NOT EXISTS (SELECT 1 FROM run WHERE session = $2 AND tenant = $1 AND session <> '' AND state IN ('pending', 'running'))`, tenant, line)
}

// PromoteNext makes the first waiting run of a session pending, if no other run of it is pending or running, and
// reports whether it did.
func (s *Runs) PromoteNext(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) (bool, error) {
	var n int64
	var b db.Batch
	promoteNext(&b, s.tenant, sessionQueueID(owner, id), &n)
	if err := s.h.Do(ctx, &b); err != nil && !db.IsDuplicate(err) {
		return false, fmt.Errorf("promote the next run of session %s: %w", id, err)
	}
	return n > 0, nil
}

// ListQueuedTasks returns the tasks of the runs in a session's queue, the last one first and the head at the end.
func (s *Runs) ListQueuedTasks(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) (ids []agentsvc.TaskID, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		var id agentsvc.TaskID
		err := r.Scan((*string)(&id))
		ids = append(ids, id)
		return err
	}, `SELECT task FROM (
			SELECT task, turn, created_at, 0 AS ahead FROM run WHERE session = $2 AND tenant = $1 AND state = 'waiting'
			UNION ALL
			SELECT task, turn, created_at, 1 FROM run WHERE session = $2 AND tenant = $1 AND session <> '' AND state IN ('pending', 'running')
		) AS line ORDER BY ahead, created_at DESC, task DESC, turn DESC`, s.tenant, sessionQueueID(owner, id))
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list the runs of session %s: %w", id, err)
	}
	return ids, nil
}

// PromoteStalledRuns promotes the first waiting run of each session that has no head, because the writer that ended
// the head failed before it promoted the next run. It returns how many it promoted.
func (q *RunQueue) PromoteStalledRuns(ctx context.Context) (n int64, err error) {
	type line struct{ tenant, session string }
	var lines []line
	err = q.execBatch(ctx, "look for stalled sessions", func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			var l line
			err := r.Scan(&l.tenant, &l.session)
			lines = append(lines, l)
			return err
		}, `SELECT w.tenant, w.session FROM (SELECT DISTINCT session, tenant FROM run WHERE state = 'waiting') AS w
			WHERE NOT EXISTS (SELECT 1 FROM run h WHERE h.session = w.session AND h.tenant = w.tenant AND h.session <> '' AND h.state IN ('pending', 'running'))`)
	})
	for _, l := range lines {
		var one int64
		err = errors.Join(err, q.execBatch(ctx, "promote the next run of a session", func(b *db.Batch) { promoteNext(b, l.tenant, l.session, &one) }))
		n += one
	}
	return n, err
}
