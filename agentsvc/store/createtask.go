package store

import (
	"context"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// SentMessage identifies a client's message, so that sending it again finds the task it opened.
type SentMessage struct {
	// Message is the message's id or, with IsKey, the idempotency key.
	Message agentsvc.MessageID
	// Context is the context that the client named. Without one the same id with another body is another message;
	// with one it is a conflict. A key does not depend on the context.
	Context agentsvc.ContextID
	// Hash is that of the content, in hex.
	Hash  string
	IsKey bool
}

// SetContext sets the context of the task that the message continues. It does nothing for a nil s or a key.
func (s *SentMessage) SetContext(c agentsvc.ContextID) {
	if s != nil && !s.IsKey {
		s.Context = c
	}
}

// ErrAlreadySent reports that the message was accepted before.
var ErrAlreadySent = errors.New("the message was sent before")

// Create writes a new task: its row and its first turn. A run with a worker is created under that worker's lease; one
// without is pending, or waiting for others of its session. It returns
//
//   - [ErrAlreadySent] if turn.Sent is stored already and the context is new,
//   - [agentsvc.ErrSessionBusy] if the context exists and turn.Sent is stored already, or another run of the session is
//     unfinished and turn may not wait,
//   - [ErrTooManyRunning] if the tenant's limit of executing runs is reached,
//   - [agentsvc.ErrOverloaded] if the database has no storage left.
func (tas *Tasks) Create(ctx context.Context, turn NewTurn) error {
	if !turn.IsNewContext || turn.isLimited() {
		return tas.createInSession(ctx, turn)
	}
	// A new context needs no condition: neither the task nor its session can exist. The rows can share statements
	// with other batches.
	b := db.Batch{Key: string(turn.Task), StorageKind: db.StoresNew}
	if err := tas.insertTask(&b, turn); err != nil {
		return err
	}
	tas.recordReservation(&b, turn.Run)
	tas.insertReceivers(&b, turn)
	if sent := turn.Sent; sent != nil {
		b.InsertRows(sentInsert, []any{
			tas.tenant, turn.Owner.Issuer, turn.Owner.Subject, turn.Agent, string(sent.Context), string(sent.Message), sent.bodyVariant(), sent.Hash, string(turn.Task),
		})
	}
	err := tas.writeTurnWithAudit(ctx, &b, turn, func() error { return tas.h.Write(ctx, &b) })
	if db.IsDuplicate(err) && turn.Sent != nil {
		return ErrAlreadySent
	}
	return tas.confirmCreated(turn.Run, err)
}

// writeTurnWithAudit executes write, which writes b, with turn's audit entries.
func (t *tenantRows) writeTurnWithAudit(ctx context.Context, b *db.Batch, turn NewTurn, write func() error) error {
	return t.writeTaskWithAudit(ctx, b, turn.Task, turn.precondition(), turn.AuditEntries, write)
}

// precondition returns what holds for the turn's task exactly if the turn is written.
func (turn NewTurn) precondition() *precondition { return &precondition{turn.Epoch, turn.Seq} }

// confirmCreated finds out, for a transaction that ended with err, whether the run was written, and returns nil if
// so.
func (tas *Tasks) confirmCreated(run Run, err error) error {
	switch {
	case db.IsFull(err):
		err = errors.Join(agentsvc.ErrOverloaded, err)
	case errors.Is(err, db.ErrUnknownOutcome):
		if there, lookErr := tas.hasReached(run.Task, precondition{run.Epoch, run.Seq}); lookErr == nil && there {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("accept task %s: %w", run.Task, err)
	}
	return nil
}

// createInSession is Create for a context that may exist, and for a run that counts against a limit when it is
// written. The task is inserted only if the session permits it (vacantSQL); everything else depends on the task's
// row.
func (tas *Tasks) createInSession(ctx context.Context, turn NewTurn) error {
	status := lastStatus(turn.Events)
	b := db.Batch{Key: string(turn.Task), StorageKind: db.StoresNew}
	var n int64
	// The run that opened the context may still execute without an entry in the session's queue: give it one first.
	tas.enqueueOpeningRun(&b, turn)
	ahead := tas.queryQueueState(&b, turn)
	// The fence: without this row, the events and the run below find no task with their epoch and sequence.
	b.Exec(&n, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at, opens_context)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BIGINT), CAST($12 AS BIGINT), CAST($12 AS BIGINT), CAST($15 AS BOOLEAN)
		WHERE `+vacantSQL(turn, 13),
		tas.tenant, string(turn.Task), turn.Agent, string(turn.Context), turn.Owner.Issuer, turn.Owner.Subject, string(status.Status.State),
		turn.Epoch, turn.Seq, status.Seq, turn.Turn, turn.Events[0].At.UnixMicro(), turn.queueID(), turn.runLimit(), turn.IsNewContext)
	if err := tas.insertTurn(&b, turn); err != nil {
		return err
	}
	err := tas.writeTurnWithAudit(ctx, &b, turn, func() error { return tas.h.Write(ctx, &b) })
	switch {
	case err == nil && n == 0 && ahead.isFull():
		return ErrTooManyRunning
	// A duplicate is the message sent before, or another run that became the session's head at the same time.
	case db.IsDuplicate(err), err == nil && n == 0:
		return agentsvc.ErrSessionBusy
	}
	return tas.confirmCreated(turn.Run, err)
}

// insertTurn adds to b the events and the run of a turn and the message that opened it, provided that b gives the task
// the turn's epoch and sequence.
func (t *tenantRows) insertTurn(b *db.Batch, turn NewTurn) error {
	g := turn.precondition()
	if err := insertEvents(b, t.tenant, turn.Task, turn.Events, g); err != nil {
		return err
	}
	t.insertRun(b, turn, g)
	if turn.Sent != nil {
		t.insertSentMessage(b, turn.Owner, turn.Run, *turn.Sent, g)
	}
	return nil
}

var (
	// Rows of new tasks. On PostgreSQL, batches that are committed together share one INSERT for each table.
	taskInsert = db.NewInsertTarget("task", `tenant TEXT, id TEXT, agent TEXT, context_id TEXT, owner_iss TEXT, owner_sub TEXT, state TEXT,
		epoch BIGINT, seq BIGINT, status_seq BIGINT, turn BIGINT, created_at BIGINT, updated_at BIGINT, opens_context = TRUE`, "")
	runInsert = db.NewInsertTarget("run", `tenant TEXT, task TEXT, turn BIGINT, state TEXT, attempts BIGINT, revision BIGINT, first_seq BIGINT, worker TEXT,
		priority BIGINT, trace TEXT, roles TEXT, available_at = stoa_now(), last_error = '', created_at = stoa_now()`, "")
	eventInsert = db.NewInsertTarget("event", `tenant TEXT, task TEXT, seq BIGINT, at BIGINT, kind TEXT, body TEXT`, "")
	sentInsert  = db.NewInsertTarget("sent", `tenant TEXT, owner_iss TEXT, owner_sub TEXT, agent TEXT, context_id TEXT, message_id TEXT, variant TEXT, hash TEXT,
		task TEXT`, "")
)

// insertTask adds the rows of a task that opens a context to b, unconditionally.
func (t *tenantRows) insertTask(b *db.Batch, turn NewTurn) error {
	status, at := lastStatus(turn.Events), turn.Events[0].At.UnixMicro()
	b.InsertRows(taskInsert, []any{
		t.tenant, string(turn.Task), turn.Agent, string(turn.Context), turn.Owner.Issuer, turn.Owner.Subject, string(status.Status.State),
		turn.Epoch, turn.Seq, status.Seq, turn.Turn, at, at,
	})
	b.InsertRows(runInsert, []any{
		t.tenant, string(turn.Task), turn.Turn, string(turn.initialState()), turn.Attempts, turn.Revision, turn.FirstSeq, turn.Worker, int64(turn.Priority), turn.Trace,
		encodeRoles(turn.Roles),
	})
	rows, err := eventRows(t.tenant, turn.Task, turn.Events)
	b.InsertRows(eventInsert, rows...)
	return err
}

// eventRows returns the rows of events in the columns of eventInsert.
func eventRows(tenant string, task agentsvc.TaskID, evs []agentsvc.Event) ([][]any, error) {
	rows := make([][]any, len(evs))
	for i, ev := range evs {
		kind, body, err := encodeEvent(ev)
		if err != nil {
			return nil, err
		}
		rows[i] = []any{tenant, string(task), ev.Seq, ev.At.UnixMicro(), kind, body}
	}
	return rows, nil
}

// bodyVariant is a part of the row's key: the hash where different bodies under one id are different messages, else
// "".
func (s SentMessage) bodyVariant() string {
	if s.Context == "" && !s.IsKey {
		return s.Hash
	}
	return ""
}

// FindSentMessage returns the task that a message opened and the hash of its content then, or [agentsvc.ErrNotFound].
func (tas *Tasks) FindSentMessage(ctx context.Context, owner agentsvc.Owner, agent string, sent SentMessage) (id agentsvc.TaskID, hash string, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&id), &hash) },
		`SELECT task, hash FROM sent WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND agent = $4 AND context_id = $5 AND message_id = $6 AND variant = $7`,
		tas.tenant, owner.Subject, owner.Issuer, agent, string(sent.Context), string(sent.Message), sent.bodyVariant())
	if err := tas.h.Do(ctx, &b); err != nil {
		return "", "", fmt.Errorf("look up message %s: %w", sent.Message, err)
	}
	if id == "" {
		return "", "", agentsvc.ErrNotFound
	}
	return id, hash, nil
}

// Continue writes a further turn of a task that waits for its user, if the task is unchanged since seen was read. It
// returns [agentsvc.ErrTaskChanged] if the task has changed since or turn.Sent is stored already, [agentsvc.ErrSessionBusy]
// if another run of the session is unfinished and turn may not wait, and [ErrTooManyRunning].
func (tas *Tasks) Continue(ctx context.Context, seen StoredTask, turn NewTurn) error {
	last := turn.Events[len(turn.Events)-1]
	b := db.Batch{Key: string(turn.Task), StorageKind: db.StoresNew}
	var n int64
	ahead := tas.queryQueueState(&b, turn)
	// The fence: it acts only on the task as it was seen, still waiting, and with a session and limit that permit the
	// run.
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = $5, turn = $6, updated_at = $7
		WHERE tenant = $1 AND id = $2 AND epoch = $8 AND seq = $9 AND state IN ('input_required', 'auth_required') AND `+vacantSQL(turn, 10),
		tas.tenant, string(turn.Task), turn.Epoch, last.Seq, string(last.Status.State), turn.Turn, last.At.UnixMicro(), seen.Epoch, seen.Seq, turn.queueID(), turn.runLimit())
	if err := tas.insertTurn(&b, turn); err != nil {
		return err
	}
	return ahead.explainConflict(tas.writeTurnWithAudit(ctx, &b, turn, func() error { return tas.writeConditional(ctx, &b, &n, "continue task "+string(turn.Task)) }))
}
