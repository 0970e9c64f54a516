package store

import (
	"context"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/store/deadletter"
	"stoa/tenancy/db"
)

// DeadLetters are the runs of a tenant that have failed for good.
type DeadLetters struct {
	*tenantRows
}

// LoadStart returns the sequence at which the turn of a dead letter begins and the revision it was accepted
// at, or [agentsvc.ErrNotFound].
func (l *DeadLetters) LoadStart(ctx context.Context, id deadletter.ID) (first, revision int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&first, &revision) },
		`SELECT first_seq, revision FROM run WHERE tenant = $1 AND task = $2 AND turn = $3 AND state = 'failed'`, l.tenant, string(id.Task), id.Turn)
	if err := l.h.Do(ctx, &b); err != nil {
		return 0, 0, fmt.Errorf("read run %s: %w", id, err)
	}
	if first == 0 {
		return 0, 0, agentsvc.ErrNotFound
	}
	return first, revision, nil
}

// GiveUp makes run a dead letter and ends its task, if it is unchanged since seen was read, with the status
// ev. It raises the epoch, so a worker that still executes the run can write nothing more. It returns
// [agentsvc.ErrTaskChanged] if the task has changed since.
func (l *DeadLetters) GiveUp(ctx context.Context, seen StoredTask, run Run, ev agentsvc.Event, reason string) error {
	g := &precondition{seen.Epoch + 1, ev.Seq}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresEnd}
	var n int64
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = 'failed', updated_at = $5
		WHERE tenant = $1 AND id = $2 AND epoch = $6 AND seq = $7 AND turn = $8 AND state IN ('submitted', 'working')`,
		l.tenant, string(run.Task), g.epoch, g.seq, ev.At.UnixMicro(), seen.Epoch, seen.Seq, run.Turn)
	if err := insertEvents(&b, l.tenant, run.Task, []agentsvc.Event{ev}, g); err != nil {
		return err
	}
	b.Exec(nil, `UPDATE run SET state = 'failed', worker = '', attempts = $4, last_error = $5, available_at = stoa_now()
		WHERE tenant = $1 AND task = $2 AND turn = $3 AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $6 AND seq = $7)`,
		l.tenant, string(run.Task), run.Turn, run.Attempts, reason, g.epoch, g.seq)
	return l.writeConditional(ctx, &b, &n, "give up task "+string(run.Task))
}

// Requeue opens a new task with turn in place of a dead letter, waiting in its session's queue, and completes
// the dead letter. The run gets the tenant's current revision. It returns [agentsvc.ErrNotFound] if there is no such dead
// letter, or another operator has requeued it.
func (l *DeadLetters) Requeue(ctx context.Context, dead deadletter.ID, turn NewTurn) error {
	b := db.Batch{Key: string(turn.Task), StorageKind: db.StoresNew}
	var n int64
	// The failed task's context may have another unfinished run, which must be in the session's queue before this one
	// joins it.
	l.enqueueOpeningRun(&b, turn)
	// The fence: requeued names the new task, and the INSERT below requires that it does.
	b.Exec(&n, `UPDATE run SET state = 'completed', requeued = $4 WHERE tenant = $1 AND task = $2 AND turn = $3 AND state = 'failed'`,
		l.tenant, string(dead.Task), dead.Turn, string(turn.Task))
	b.Exec(nil, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		SELECT r.tenant, r.requeued, CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT), 'submitted', CAST($8 AS BIGINT), CAST($9 AS BIGINT),
			CAST(1 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BIGINT), CAST($11 AS BIGINT)
		FROM run r WHERE r.tenant = $1 AND r.task = $2 AND r.turn = $3 AND r.requeued = $12`,
		l.tenant, string(dead.Task), dead.Turn, turn.Agent, string(turn.Context), turn.Owner.Issuer, turn.Owner.Subject,
		turn.Epoch, turn.Seq, turn.Turn, turn.Events[0].At.UnixMicro(), string(turn.Task))
	if err := l.insertTurn(&b, turn); err != nil {
		return err
	}
	// The revision may be one whose failure the operator has just repaired.
	b.Exec(nil, `UPDATE run SET revision = COALESCE((SELECT revision FROM app WHERE tenant = $1), revision) WHERE tenant = $1 AND task = $2`,
		l.tenant, string(turn.Task))
	err := l.writeTurnWithAudit(ctx, &b, turn, func() error { return l.writeConditional(ctx, &b, &n, "requeue run "+dead.String()) })
	if errors.Is(err, agentsvc.ErrTaskChanged) {
		return agentsvc.ErrNotFound
	}
	return err
}
