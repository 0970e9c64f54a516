package store

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// tenantRows is a tenant's part of the tasks' database, with the statements that more than one aggregate adds to its
// transactions.
type tenantRows struct {
	h      *db.Handle
	tenant string
	audit  audit.Target
}

// writeConditional executes b, whose conditional statement counts its rows into n. It returns [agentsvc.ErrTaskChanged]
// if that touched none, or if a row exists already: then a concurrent writer made the same step.
func (t *tenantRows) writeConditional(ctx context.Context, b *db.Batch, n *int64, operation string) error {
	switch err := t.h.Write(ctx, b); {
	case err != nil && !db.IsDuplicate(err):
		return fmt.Errorf("%s: %w", operation, err)
	case err != nil || *n == 0:
		return agentsvc.ErrTaskChanged
	}
	return nil
}

// writeTaskWithAudit is [audit.Target.Write] for a step of a task: entries are written only if the task is at g.
func (t *tenantRows) writeTaskWithAudit(ctx context.Context, b *db.Batch, id agentsvc.TaskID, g *precondition, entries []audit.Entry, write func() error) error {
	return t.audit.Write(ctx, b, entries, `EXISTS (SELECT 1 FROM task WHERE tenant = $10 AND id = $11 AND epoch = $12 AND seq = $13)`,
		[]any{t.tenant, string(id), g.epoch, g.seq}, write)
}

// insertRun adds a turn's run with its reservation and receivers to b, under g, and its entry in the session's queue.
func (t *tenantRows) insertRun(b *db.Batch, turn NewTurn, g *precondition) {
	b.Exec(nil, `INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at, session, priority, trace, roles)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS BIGINT),
			CAST($8 AS TEXT), stoa_now(), '', stoa_now(), CAST($11 AS TEXT), CAST($12 AS BIGINT),
			CAST($13 AS TEXT), CAST($14 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $9 AND seq = $10)`,
		t.tenant, string(turn.Task), turn.Turn, string(turn.initialState()), turn.Attempts, turn.Revision, turn.FirstSeq, turn.Worker, g.epoch, g.seq, turn.queueID(),
		int64(turn.Priority), turn.Trace, encodeRoles(turn.Roles))
	t.recordReservation(b, turn.Run)
	t.insertReceivers(b, turn)
	t.enqueueRun(b, turn)
}

// initialState returns the state in which the turn's run is written. One that may wait starts as waiting; enqueueRun
// promotes it in the same transaction if nothing is before it.
func (turn NewTurn) initialState() RunState {
	switch {
	case turn.MayWait:
		return Waiting
	case turn.Worker == "":
		return Pending
	}
	return Running
}

// recordReservation adds to b that run, which b writes, has its reservation's note. A separate statement, because
// most runs have none.
func (t *tenantRows) recordReservation(b *db.Batch, run Run) {
	if run.LimitReservation == "" {
		return
	}
	b.Exec(nil, `UPDATE run SET reserved = $4 WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $5 AND seq = $6)`,
		t.tenant, string(run.Task), run.Turn, run.LimitReservation, run.Epoch, run.Seq)
}

// insertReceivers adds to b, which writes turn, its receivers. They receive the turn from its first event on.
func (t *tenantRows) insertReceivers(b *db.Batch, turn NewTurn) {
	var all []receiver.Receiver
	if turn.Receiver != nil {
		all = append(all, *turn.Receiver)
	}
	for _, id := range turn.Notifications {
		all = append(all, receiver.NewStanding(id))
	}
	for _, r := range all {
		r.Task, r.DeliveredSeq = turn.Task, turn.FirstSeq-1
		receiver.QueueInsert(b, t.tenant, r, turn.Epoch, turn.Seq)
	}
}

// insertSentMessage adds to b, under g, that the sender's message led to run's task.
func (t *tenantRows) insertSentMessage(b *db.Batch, sender agentsvc.Owner, run Run, sent SentMessage, g *precondition) {
	b.Exec(nil, `INSERT INTO sent (tenant, owner_iss, owner_sub, agent, context_id, message_id, variant, hash, task)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS TEXT), CAST($9 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $9 AND epoch = $10 AND seq = $11)`,
		t.tenant, sender.Issuer, sender.Subject, run.Agent, string(sent.Context), string(sent.Message), sent.bodyVariant(), sent.Hash,
		string(run.Task), g.epoch, g.seq)
}

// endRuns adds to b, under g, that an ended task has no unfinished run and no open approval.
func (t *tenantRows) endRuns(b *db.Batch, id agentsvc.TaskID, g *precondition) {
	b.Exec(nil, `UPDATE run SET state = 'completed', worker = '' WHERE tenant = $1 AND task = $2 AND state IN ('waiting', 'pending', 'running', 'input_required')
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4)`,
		t.tenant, string(id), g.epoch, g.seq)
	b.Exec(nil, `DELETE FROM approval WHERE tenant = $1 AND task = $2
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4)`,
		t.tenant, string(id), g.epoch, g.seq)
}

// unclaimRun has a claimed run wait for humans again, as if it had not been claimed.
func (t *tenantRows) unclaimRun(ctx context.Context, run Run) error {
	var b db.Batch
	b.Exec(nil, `UPDATE run SET state = 'input_required', worker = '', attempts = attempts - 1
		WHERE tenant = $1 AND task = $2 AND turn = $3 AND worker = $4 AND state = 'running'`,
		t.tenant, string(run.Task), run.Turn, run.Worker)
	if err := t.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("unclaim the run of task %s: %w", run.Task, err)
	}
	return nil
}
