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

// The runs of a session stand in line, in the order of their acceptance. One is at the head: it is pending or running,
// also while it waits for its next attempt, and an index keeps it the only one. The others are waiting. Whoever ends
// the head calls up the next one, if its row says that another follows; [RunQueue.CallUp] does it for whoever could not.

// sessionQueueID names the line of a session within its tenant.
func sessionQueueID(o agentsvc.Owner, id agentsvc.ContextID) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", o.Issuer, o.Subject, id))
	return hex.EncodeToString(sum[:16])
}

// queueID is where run stands in line, "" where its session begins with it: then nobody can be before it, and whoever
// comes while it is at work finds it by its context.
func (run Run) queueID() string {
	if run.IsNewContext {
		return ""
	}
	return sessionQueueID(run.Owner, run.Context)
}

// The ids of a task that began a context and of that context differ in the version of a UUID alone.
const (
	uuidVersionIndex   = 14
	taskUUIDVersion    = "7"
	contextUUIDVersion = "8"
)

// ContextIDForTask returns the context that a task begins.
func ContextIDForTask(id agentsvc.TaskID) agentsvc.ContextID {
	return agentsvc.ContextID(id[:uuidVersionIndex] + contextUUIDVersion + id[uuidVersionIndex+1:])
}

// openingTask returns the task that began a context, if one did.
func openingTask(id agentsvc.ContextID) (task agentsvc.TaskID, ok bool) {
	if len(id) != 36 || id[uuidVersionIndex:uuidVersionIndex+1] != contextUUIDVersion {
		return "", false
	}
	return agentsvc.TaskID(id[:uuidVersionIndex] + taskUUIDVersion + id[uuidVersionIndex+1:]), true
}

// enqueueOpeningRun adds to b that the run at work which began the session of run stands in its line.
func (s *Store) enqueueOpeningRun(b *db.Batch, run Run) {
	first, ok := openingTask(run.Context)
	if !ok {
		return
	}
	b.Exec(nil, `UPDATE run SET session = $3 WHERE tenant = $1 AND task = $2 AND turn = 1 AND session = '' AND state IN ('pending', 'running')
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND context_id = $4 AND owner_iss = $5 AND owner_sub = $6
			AND turn = 1 AND state IN ('submitted', 'working'))`,
		s.tenant, string(first), run.queueID(), string(run.Context), run.Owner.Issuer, run.Owner.Subject)
}

// occupiedSQL is the condition that a run of another task than $2 of the tenant $1 stands in the line whose parameter has
// the number line.
func occupiedSQL(line int) string {
	return fmt.Sprintf(`(EXISTS (SELECT 1 FROM run WHERE session = $%[1]d AND tenant = $1 AND session <> '' AND state IN ('pending', 'running') AND task <> $2)
		OR EXISTS (SELECT 1 FROM run WHERE session = $%[1]d AND tenant = $1 AND state = 'waiting' AND task <> $2))`, line)
}

// vacantSQL is the condition that run may be born, which uses the parameter line, and the next one for its bound, in any
// case.
func vacantSQL(run Run, line int) string {
	if run.MayWait {
		return fmt.Sprintf("CAST($%d AS TEXT) <> '' AND CAST($%d AS BIGINT) > 0", line, line+1)
	}
	return "NOT " + occupiedSQL(line) + " AND " + belowLimitSQL(line+1)
}

// queueState is who is in the way of a run.
type queueState struct {
	sessionBusy bool  // its session is at work
	running     int64 // runs of its app, where they are bounded
	maxRunning  int64
	isLimited   bool
}

func (a *queueState) isFull() bool { return a.isLimited && a.running >= a.maxRunning }

// explainConflict says of a step that touched nothing who was in its way, if somebody was.
func (a *queueState) explainConflict(err error) error {
	switch {
	case !errors.Is(err, agentsvc.ErrLeaseLost):
		return err
	case a.sessionBusy:
		return agentsvc.ErrSessionBusy
	case a.isFull():
		return ErrTooManyRunning
	}
	return err
}

// queryQueueState adds to b what tells whether somebody is in the way of run. From there to the end of b nobody else adds a
// run to those at work that bound it.
func (s *Store) queryQueueState(b *db.Batch, run Run) *queueState {
	a := &queueState{isLimited: run.isLimited(), maxRunning: run.MaxRunning}
	if !run.MayWait {
		b.Query(func(r db.Row) error { return r.Scan(&a.sessionBusy) }, "SELECT "+occupiedSQL(3), s.tenant, string(run.Task), run.queueID())
	}
	if a.isLimited {
		lockApp(b, s.h, run.Tenant)
		b.Query(func(r db.Row) error { return r.Scan(&a.running) }, `SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1`, s.tenant)
	}
	return a
}

// enqueueRun adds to b that the head of the line knows of run, which waits behind it, or that run is the head where
// there is none.
func (s *Store) enqueueRun(b *db.Batch, run Run) {
	if !run.MayWait {
		return
	}
	b.Exec(nil, `UPDATE run SET followed = TRUE WHERE session = $2 AND tenant = $1 AND session <> '' AND state IN ('pending', 'running')`,
		s.tenant, run.queueID())
	promoteNext(b, s.tenant, run.queueID(), nil)
}

// promoteNext adds to b that the first who waits in a line becomes its head, if it has none, and counts into n whether one did.
func promoteNext(b *db.Batch, tenant, line string, n *int64) {
	b.Exec(n, `UPDATE run SET state = 'pending', followed = TRUE, available_at = stoa_now() WHERE session = $2 AND tenant = $1 AND state = 'waiting' AND (task, turn) =
			(SELECT task, turn FROM run WHERE session = $2 AND tenant = $1 AND state = 'waiting' ORDER BY created_at, task, turn LIMIT 1)
		AND NOT EXISTS (SELECT 1 FROM run WHERE session = $2 AND tenant = $1 AND session <> '' AND state IN ('pending', 'running'))`, tenant, line)
}

// PromoteNextRun makes the first run that waits in a session pending, if nobody is before it. It reports whether it did.
func (s *Store) PromoteNextRun(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) (bool, error) {
	var n int64
	var b db.Batch
	promoteNext(&b, s.tenant, sessionQueueID(owner, id), &n)
	if err := s.h.Do(ctx, &b); err != nil && !db.IsDuplicate(err) {
		return false, fmt.Errorf("call up the next run of session %s: %w", id, err)
	}
	return n > 0, nil
}

// ListQueuedTasks lists the tasks whose runs stand in the line of a session, the last one first.
func (s *Store) ListQueuedTasks(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) (ids []agentsvc.TaskID, err error) {
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
		return nil, fmt.Errorf("look at the runs of session %s: %w", id, err)
	}
	return ids, nil
}

// PromoteStalledRuns makes the first waiting run pending in each session where nobody is before it: whoever ended the one before
// could not. It returns how many there were.
func (q *RunQueue) PromoteStalledRuns(ctx context.Context) (n int64, err error) {
	type line struct{ tenant, session string }
	var lines []line
	err = q.execBatch(ctx, "look for sessions that stand still", func(b *db.Batch) {
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
		err = errors.Join(err, q.execBatch(ctx, "call up the next run of a session", func(b *db.Batch) { promoteNext(b, l.tenant, l.session, &one) }))
		n += one
	}
	return n, err
}
