package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// SentMessage identifies a message of a client, so that sending it again finds the task it opened. Context is "" where the
// client named none: then only an equal body is the same message. With Key, Message is a key that the client chose
// beside the message, and no context matters.
type SentMessage struct {
	Message agentsvc.MessageID
	Context agentsvc.ContextID
	Hash    string
	IsKey   bool
}

// SetContext says that the message, if it can be recognised, belongs to context c.
func (s *SentMessage) SetContext(c agentsvc.ContextID) {
	if s != nil && !s.IsKey {
		s.Context = c
	}
}

// ErrAlreadySent says that the message has been accepted before.
var ErrAlreadySent = errors.New("the message was sent before")

// CreateTask writes the first turn of a new task: the task, its first events and its run, in one transaction. A run with
// a worker is born under that worker's lease, one without is pending or waits for others of its session. It returns
// [ErrAlreadySent] if sent is already there, and for a run in a session that is not fresh [agentsvc.ErrSessionBusy] if it would
// not be the only one and is not to wait, or if sent is already there; [ErrTooManyRunning] if the tenant may take no more, and
// [agentsvc.ErrOverloaded] if the database can hold no more. The entries tell the audit trail of it.
func (s *Store) CreateTask(ctx context.Context, run Run, evs []agentsvc.Event, sent *SentMessage, entries ...tenancy.AuditEntry) error {
	if !run.IsNewContext || run.isLimited() {
		return s.createInSession(ctx, run, evs, sent, entries...)
	}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresNew}
	if err := s.insertTask(&b, run, evs); err != nil {
		return err
	}
	s.recordReservation(&b, run)
	s.insertReceivers(&b, run)
	if sent != nil {
		b.InsertRows(sentInsert, []any{
			s.tenant, run.Owner.Issuer, run.Owner.Subject, run.Agent, string(sent.Context), string(sent.Message), sent.bodyVariant(), sent.Hash, string(run.Task),
		})
	}
	err := s.writeTaskWithAudit(ctx, &b, run.Task, &precondition{run.Epoch, run.Seq}, entries, func() error { return s.h.Write(ctx, &b) })
	if db.IsDuplicate(err) && sent != nil {
		return ErrAlreadySent
	}
	return s.confirmCreated(run, err)
}

// confirmCreated finds out whether a run whose acceptance ended in err is there.
func (s *Store) confirmCreated(run Run, err error) error {
	switch {
	case db.IsFull(err):
		err = errors.Join(agentsvc.ErrOverloaded, err)
	case errors.Is(err, db.ErrUnknownOutcome):
		if there, lookErr := s.hasReached(run.Task, precondition{run.Epoch, run.Seq}); lookErr == nil && there {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("accept task %s: %w", run.Task, err)
	}
	return nil
}

// RestoreTask is Accept of a task that goes on where another stood, as entry tells.
func (s *Store) RestoreTask(ctx context.Context, run Run, evs []agentsvc.Event, entry tenancy.AuditEntry) error {
	return s.createInSession(ctx, run, evs, nil, entry)
}

// createInSession is Accept in a session that there is or may be.
func (s *Store) createInSession(ctx context.Context, run Run, evs []agentsvc.Event, sent *SentMessage, entries ...tenancy.AuditEntry) error {
	status := lastStatus(evs)
	g := &precondition{run.Epoch, run.Seq}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresNew}
	var n int64
	s.enqueueOpeningRun(&b, run)
	ahead := s.queryQueueState(&b, run)
	b.Exec(&n, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BIGINT), CAST($12 AS BIGINT), CAST($12 AS BIGINT)
		WHERE `+vacantSQL(run, 13),
		s.tenant, string(run.Task), run.Agent, string(run.Context), run.Owner.Issuer, run.Owner.Subject, string(status.Status.State),
		run.Epoch, run.Seq, status.Seq, run.Turn, evs[0].At.UnixMicro(), run.queueID(), run.runLimit())
	if err := insertEvents(&b, s.tenant, run.Task, evs, g); err != nil {
		return err
	}
	s.insertRun(&b, run, g)
	if sent != nil {
		s.insertSentMessage(&b, run.Owner, run, *sent, g)
	}
	s.enqueueRun(&b, run)
	err := s.writeTaskWithAudit(ctx, &b, run.Task, g, entries, func() error { return s.h.Write(ctx, &b) })
	switch {
	case err == nil && n == 0 && ahead.isFull():
		return ErrTooManyRunning
	case db.IsDuplicate(err), err == nil && n == 0:
		return agentsvc.ErrSessionBusy
	}
	return s.confirmCreated(run, err)
}

var (
	taskInsert = db.NewInsertTarget("task", `tenant TEXT, id TEXT, agent TEXT, context_id TEXT, owner_iss TEXT, owner_sub TEXT, state TEXT,
		epoch BIGINT, seq BIGINT, status_seq BIGINT, turn BIGINT, created_at BIGINT, updated_at BIGINT`, "")
	runInsert = db.NewInsertTarget("run", `tenant TEXT, task TEXT, turn BIGINT, state TEXT, attempts BIGINT, revision BIGINT, first_seq BIGINT, worker TEXT,
		priority BIGINT, trace TEXT, available_at = stoa_now(), last_error = '', created_at = stoa_now()`, "")
	eventInsert = db.NewInsertTarget("event", `tenant TEXT, task TEXT, seq BIGINT, at BIGINT, kind TEXT, body TEXT`, "")
	sentInsert  = db.NewInsertTarget("sent", `tenant TEXT, owner_iss TEXT, owner_sub TEXT, agent TEXT, context_id TEXT, message_id TEXT, variant TEXT, hash TEXT,
		task TEXT`, "")
)

// insertTask adds the rows of a new task to b.
func (s *Store) insertTask(b *db.Batch, run Run, evs []agentsvc.Event) error {
	status, at := lastStatus(evs), evs[0].At.UnixMicro()
	b.InsertRows(taskInsert, []any{
		s.tenant, string(run.Task), run.Agent, string(run.Context), run.Owner.Issuer, run.Owner.Subject, string(status.Status.State),
		run.Epoch, run.Seq, status.Seq, run.Turn, at, at,
	})
	b.InsertRows(runInsert, []any{
		s.tenant, string(run.Task), run.Turn, string(initialState(run)), run.Attempts, run.Revision, run.FirstSeq, run.Worker, int64(run.Priority), run.Trace,
	})
	rows, err := s.eventRows(run.Task, evs)
	b.InsertRows(eventInsert, rows...)
	return err
}

// eventRows returns the rows of events, for eventInsert.
func (s *Store) eventRows(task agentsvc.TaskID, evs []agentsvc.Event) ([][]any, error) {
	rows := make([][]any, len(evs))
	for i, ev := range evs {
		kind, body, err := encodeEvent(ev)
		if err != nil {
			return nil, err
		}
		rows[i] = []any{s.tenant, string(task), ev.Seq, ev.At.UnixMicro(), kind, body}
	}
	return rows, nil
}

// hasReached looks a task up after a commit whose outcome is unknown: it reports whether the task got as far as g.
func (s *Store) hasReached(id agentsvc.TaskID, g precondition) (there bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&there) },
		`SELECT EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq >= $4)`, s.tenant, string(id), g.epoch, g.seq)
	return there, s.h.Do(ctx, &b)
}

func initialState(run Run) RunState {
	switch {
	case run.MayWait:
		return Waiting
	case run.Worker == "":
		return Pending
	}
	return Running
}

func (s SentMessage) bodyVariant() string {
	if s.Context == "" && !s.IsKey {
		return s.Hash
	}
	return ""
}

// FindSentMessage returns the task that a message opened, and the hash of the body it had.
func (s *Store) FindSentMessage(ctx context.Context, owner agentsvc.Owner, agent string, sent SentMessage) (id agentsvc.TaskID, hash string, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&id), &hash) },
		`SELECT task, hash FROM sent WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND agent = $4 AND context_id = $5 AND message_id = $6 AND variant = $7`,
		s.tenant, owner.Subject, owner.Issuer, agent, string(sent.Context), string(sent.Message), sent.bodyVariant())
	if err := s.h.Do(ctx, &b); err != nil {
		return "", "", fmt.Errorf("look up message %s: %w", sent.Message, err)
	}
	if id == "" {
		return "", "", agentsvc.ErrNotFound
	}
	return id, hash, nil
}

// ContinueTask writes a further turn of a task that waits: it takes the task at the epoch and sequence of seen. It
// returns [agentsvc.ErrLeaseLost] if the task has moved on since or sent is already there, and [agentsvc.ErrSessionBusy] if
// run would not be the only one of its session and is not to wait; and [ErrTooManyRunning]. The entries tell the audit trail of it.
func (s *Store) ContinueTask(ctx context.Context, seen agentsvc.Task, epoch int64, run Run, evs []agentsvc.Event, sent *SentMessage, entries ...tenancy.AuditEntry) error {
	last := evs[len(evs)-1]
	g := &precondition{run.Epoch, last.Seq}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresNew}
	var n int64
	ahead := s.queryQueueState(&b, run)
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = $5, turn = $6, updated_at = $7
		WHERE tenant = $1 AND id = $2 AND epoch = $8 AND seq = $9 AND state IN ('input_required', 'auth_required') AND `+vacantSQL(run, 10),
		s.tenant, string(run.Task), run.Epoch, last.Seq, string(last.Status.State), run.Turn, last.At.UnixMicro(), epoch, seen.Seq, run.queueID(), run.runLimit())
	if err := insertEvents(&b, s.tenant, run.Task, evs, g); err != nil {
		return err
	}
	s.insertRun(&b, run, g)
	if sent != nil {
		s.insertSentMessage(&b, run.Owner, run, *sent, g)
	}
	s.enqueueRun(&b, run)
	return ahead.explainConflict(s.writeTaskWithAudit(ctx, &b, run.Task, g, entries, func() error { return s.writeConditional(ctx, &b, &n, "continue task "+string(run.Task)) }))
}

// insertRun adds a run of a session to b, if the guard holds.
func (s *Store) insertRun(b *db.Batch, run Run, g *precondition) {
	b.Exec(nil, `INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at, session, priority, trace)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS BIGINT),
			CAST($8 AS TEXT), stoa_now(), '', stoa_now(), CAST($11 AS TEXT), CAST($12 AS BIGINT),
			CAST($13 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $9 AND seq = $10)`,
		s.tenant, string(run.Task), run.Turn, string(initialState(run)), run.Attempts, run.Revision, run.FirstSeq, run.Worker, g.epoch, g.seq, run.queueID(),
		int64(run.Priority), run.Trace)
	s.recordReservation(b, run)
	s.insertReceivers(b, run)
}

// insertSentMessage adds to b that the sender's message went to run's task, if the guard holds.
func (s *Store) insertSentMessage(b *db.Batch, sender agentsvc.Owner, run Run, sent SentMessage, g *precondition) {
	b.Exec(nil, `INSERT INTO sent (tenant, owner_iss, owner_sub, agent, context_id, message_id, variant, hash, task)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS TEXT), CAST($9 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $9 AND epoch = $10 AND seq = $11)`,
		s.tenant, sender.Issuer, sender.Subject, run.Agent, string(sent.Context), string(sent.Message), sent.bodyVariant(), sent.Hash,
		string(run.Task), g.epoch, g.seq)
}

// writeConditional writes b, whose first statement counts into n, and answers ErrLost if it touched nothing, or if somebody
// made the very same step first: then the rows of that step are there already.
func (s *Store) writeConditional(ctx context.Context, b *db.Batch, n *int64, operation string) error {
	switch err := s.h.Write(ctx, b); {
	case err != nil && !db.IsDuplicate(err):
		return fmt.Errorf("%s: %w", operation, err)
	case err != nil || *n == 0:
		return agentsvc.ErrLeaseLost
	}
	return nil
}
