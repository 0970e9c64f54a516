package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// DeadLetterID identifies a dead letter: the turn of a task whose run has failed.
type DeadLetterID struct {
	Task agentsvc.TaskID
	Turn int64
}

// String returns the id as operators see it: task and turn with a dot between them.
func (id DeadLetterID) String() string { return string(id.Task) + "." + strconv.FormatInt(id.Turn, 10) }

// ParseDeadLetterID parses what [DeadLetterID.String] returns; ok is false for anything else.
func ParseDeadLetterID(s string) (id DeadLetterID, ok bool) {
	task, turn, found := strings.Cut(s, ".")
	n, err := strconv.ParseInt(turn, 10, 64)
	return DeadLetterID{agentsvc.TaskID(task), n}, found && err == nil && uuid.Validate(task) == nil
}

// DeadLetter is a failed run with what an operator needs to judge it.
type DeadLetter struct {
	ID       DeadLetterID
	Tenant   db.ID
	App      string // the tenant's name, its id if it has none
	Agent    string
	Attempts int64
	Error    string // of the last attempt
	FailedAt time.Time
}

// DeadLetterFilter selects dead letters. Zero fields select all.
type DeadLetterFilter struct {
	ID     DeadLetterID
	App    string // the tenant's name
	Agent  string
	Error  string       // substring of the last error
	Before DeadLetterID // the last one of the previous page
	Limit  int
}

// fromDeadLettersSQL selects the dead letters by the index run_failed. The substring test is REPLACE instead of LIKE,
// which would interpret % and _ and differ between the engines.
const fromDeadLettersSQL = ` FROM run r JOIN task t ON t.tenant = r.tenant AND t.id = r.task LEFT JOIN app a ON a.tenant = r.tenant
	WHERE r.state = 'failed' AND ($1 = '' OR r.task = $1 AND r.turn = CAST($2 AS BIGINT)) AND ($3 = '' OR COALESCE(a.name, r.tenant) = $3)
	AND ($4 = '' OR t.agent = $4) AND ($5 = '' OR REPLACE(r.last_error, $5, '') <> r.last_error)`

// ListDeadLetters returns the dead letters that f selects, those of the newest tasks first, and their number on all
// pages.
func (q *RunQueue) ListDeadLetters(ctx context.Context, f DeadLetterFilter) (dead []DeadLetter, total int, err error) {
	err = q.execBatch(ctx, "list dead letters", func(b *db.Batch) {
		args := []any{string(f.ID.Task), f.ID.Turn, f.App, f.Agent, f.Error}
		b.Query(func(r db.Row) error { return r.Scan(&total) }, `SELECT COUNT(*)`+fromDeadLettersSQL, args...)
		b.Query(func(r db.Row) error {
			var d DeadLetter
			var at int64
			err := r.Scan((*string)(&d.ID.Task), &d.ID.Turn, (*string)(&d.Tenant), &d.App, &d.Agent, &d.Attempts, &d.Error, &at)
			d.FailedAt = time.UnixMicro(at).UTC()
			dead = append(dead, d)
			return err
		}, `SELECT r.task, r.turn, r.tenant, COALESCE(a.name, r.tenant), t.agent, r.attempts, r.last_error, r.available_at`+fromDeadLettersSQL+`
			AND ($6 = '' OR r.task < $6 OR r.task = $6 AND r.turn < CAST($7 AS BIGINT)) ORDER BY r.task DESC, r.turn DESC LIMIT $8`,
			append(args, string(f.Before.Task), f.Before.Turn, f.Limit)...)
	})
	return dead, total, err
}

// LoadTaskState reads a task's row without the content of its status, so that it succeeds however large that is. It
// returns [agentsvc.ErrNotFound] if the tenant has no such task.
func (s *Store) LoadTaskState(ctx context.Context, id agentsvc.TaskID) (StoredTask, error) {
	var t StoredTask
	var b db.Batch
	t.addQuery(&b, s.tenant, id)
	if err := s.h.Do(ctx, &b); err != nil {
		return t, fmt.Errorf("read task %s: %w", id, err)
	}
	if t.ID == "" {
		return t, agentsvc.ErrNotFound
	}
	return t, nil
}

// LoadDeadLetterStart returns the sequence at which the turn of a dead letter begins and the revision it was accepted
// at, or [agentsvc.ErrNotFound].
func (s *Store) LoadDeadLetterStart(ctx context.Context, id DeadLetterID) (first, revision int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&first, &revision) },
		`SELECT first_seq, revision FROM run WHERE tenant = $1 AND task = $2 AND turn = $3 AND state = 'failed'`, s.tenant, string(id.Task), id.Turn)
	if err := s.h.Do(ctx, &b); err != nil {
		return 0, 0, fmt.Errorf("read run %s: %w", id, err)
	}
	if first == 0 {
		return 0, 0, agentsvc.ErrNotFound
	}
	return first, revision, nil
}

// DeadLetterRun makes run a dead letter and ends its task, if it is unchanged since seen was read, with the status
// ev. It raises the epoch, so a worker that still executes the run can write nothing more. It returns
// [agentsvc.ErrLeaseLost] if the task has changed since.
func (s *Store) DeadLetterRun(ctx context.Context, seen StoredTask, run Run, ev agentsvc.Event, reason string) error {
	g := &precondition{seen.Epoch + 1, ev.Seq}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresEnd}
	var n int64
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = 'failed', updated_at = $5
		WHERE tenant = $1 AND id = $2 AND epoch = $6 AND seq = $7 AND turn = $8 AND state IN ('submitted', 'working')`,
		s.tenant, string(run.Task), g.epoch, g.seq, ev.At.UnixMicro(), seen.Epoch, seen.Seq, run.Turn)
	if err := insertEvents(&b, s.tenant, run.Task, []agentsvc.Event{ev}, g); err != nil {
		return err
	}
	b.Exec(nil, `UPDATE run SET state = 'failed', worker = '', attempts = $4, last_error = $5, available_at = stoa_now()
		WHERE tenant = $1 AND task = $2 AND turn = $3 AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $6 AND seq = $7)`,
		s.tenant, string(run.Task), run.Turn, run.Attempts, reason, g.epoch, g.seq)
	return s.writeConditional(ctx, &b, &n, "give up task "+string(run.Task))
}

// RequeueDeadLetter opens a new task with turn in place of a dead letter, waiting in its session's queue, and completes
// the dead letter. The run gets the tenant's current revision. It returns [agentsvc.ErrNotFound] if there is no such dead
// letter, or another operator has requeued it.
func (s *Store) RequeueDeadLetter(ctx context.Context, dead DeadLetterID, turn NewTurn) error {
	b := db.Batch{Key: string(turn.Task), StorageKind: db.StoresNew}
	var n int64
	// The failed task's context may have another unfinished run, which must be in the session's queue before this one
	// joins it.
	s.enqueueOpeningRun(&b, turn)
	// The fence: requeued names the new task, and the INSERT below requires that it does.
	b.Exec(&n, `UPDATE run SET state = 'completed', requeued = $4 WHERE tenant = $1 AND task = $2 AND turn = $3 AND state = 'failed'`,
		s.tenant, string(dead.Task), dead.Turn, string(turn.Task))
	b.Exec(nil, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		SELECT r.tenant, r.requeued, CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT), 'submitted', CAST($8 AS BIGINT), CAST($9 AS BIGINT),
			CAST(1 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BIGINT), CAST($11 AS BIGINT)
		FROM run r WHERE r.tenant = $1 AND r.task = $2 AND r.turn = $3 AND r.requeued = $12`,
		s.tenant, string(dead.Task), dead.Turn, turn.Agent, string(turn.Context), turn.Owner.Issuer, turn.Owner.Subject,
		turn.Epoch, turn.Seq, turn.Turn, turn.Events[0].At.UnixMicro(), string(turn.Task))
	if err := s.insertTurn(&b, turn); err != nil {
		return err
	}
	// The revision may be one whose failure the operator has just repaired.
	b.Exec(nil, `UPDATE run SET revision = COALESCE((SELECT revision FROM app WHERE tenant = $1), revision) WHERE tenant = $1 AND task = $2`,
		s.tenant, string(turn.Task))
	err := s.writeTurnWithAudit(ctx, &b, turn, func() error { return s.writeConditional(ctx, &b, &n, "requeue run "+dead.String()) })
	if errors.Is(err, agentsvc.ErrLeaseLost) {
		return agentsvc.ErrNotFound
	}
	return err
}
