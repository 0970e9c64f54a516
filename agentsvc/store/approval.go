package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store/vault"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// ErrTaskInterrupted reports that the task waits for a human, so that its run has nothing to execute.
var ErrTaskInterrupted = errors.New("the task waits for input")

// DecisionRecord is what decisions change on a task that waits for them. The last of Events is the resulting status:
// the task continues with NextTurn, still waits, or has ended.
type DecisionRecord struct {
	Events          []agentsvc.Event
	ClosedApprovals []int64 // sequences of the approvals that the decisions settle
	// NextTurn continues the paused turn in a new run; nil where something is still open or the task has ended. Its
	// Events, Sent and AuditEntries are empty: they are those of the record.
	NextTurn     *NewTurn
	Credentials  []vault.SealedCredential // supplied by the decisions
	Sender       agentsvc.Owner           // of the message that brought the decisions
	SentMessage  *SentMessage             // nil = the decisions came without an identifiable message
	AuditEntries []audit.Entry
}

// OpenApprovals returns those of all that stay open after the decisions.
func (r DecisionRecord) OpenApprovals(all []agentsvc.Approval) (open []agentsvc.Approval) {
	for _, a := range all {
		if !slices.Contains(r.ClosedApprovals, a.Seq) {
			open = append(open, a)
		}
	}
	return open
}

// Approvals are the tool calls of a tenant's tasks that wait for a human, and the decisions about them.
type Approvals struct {
	*tenantRows
}

// RecordDecisions writes decisions, if the task is unchanged since seen was read and still waits: their events, the
// closed approvals, supplied credentials, the next run and the audit entries, in one transaction. It returns
// [agentsvc.ErrTaskChanged] if the task has changed since or the message was applied before, and
// [agentsvc.ErrSessionBusy] and [ErrTooManyRunning] as [Tasks.Continue] does.
func (a *Approvals) RecordDecisions(ctx context.Context, seen StoredTask, r DecisionRecord) error {
	last := r.Events[len(r.Events)-1]
	g := &precondition{seen.Epoch + 1, last.Seq}
	// Without a next run there is nothing that the session or a limit could refuse.
	next := NewTurn{Run: Run{Task: seen.ID, Agent: seen.Agent, Turn: seen.Turn}, MayWait: true}
	if r.NextTurn != nil {
		next = *r.NextTurn
	}
	b := db.Batch{Key: string(seen.ID), StorageKind: db.StoresMore}
	var n int64
	ahead := a.queryQueueState(&b, next)
	// The fence: all following statements require the epoch and sequence that this one sets. vacantSQL is part of it,
	// so that the task does not leave its waiting state when its run cannot be written.
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = $5, turn = $6, updated_at = $7
		WHERE tenant = $1 AND id = $2 AND epoch = $8 AND seq = $9 AND state IN ('input_required', 'auth_required') AND `+vacantSQL(next, 10),
		a.tenant, string(seen.ID), g.epoch, g.seq, string(last.Status.State), next.Turn, last.At.UnixMicro(), seen.Epoch, seen.Seq, next.queueID(), next.runLimit())
	if err := insertEvents(&b, a.tenant, seen.ID, r.Events, g); err != nil {
		return err
	}
	for _, seq := range r.ClosedApprovals {
		b.Exec(nil, `DELETE FROM approval WHERE tenant = $1 AND task = $2 AND seq = $3
			AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $4 AND seq = $5)`,
			a.tenant, string(seen.ID), seq, g.epoch, g.seq)
	}
	for _, c := range r.Credentials {
		vault.QueueInsert(&b, a.tenant, c, seen.ID, g.epoch, g.seq)
	}
	switch {
	case r.NextTurn != nil:
		a.insertRun(&b, next, g)
	// The quota must not refuse the end of a task.
	case last.Status.State.IsTerminal():
		b.StorageKind = db.StoresEnd
		a.endRuns(&b, seen.ID, g)
	}
	if r.SentMessage != nil {
		a.insertSentMessage(&b, r.Sender, next.Run, *r.SentMessage, g)
	}
	return ahead.explainConflict(a.writeTaskWithAudit(ctx, &b, seen.ID, g, r.AuditEntries, func() error {
		return a.writeConditional(ctx, &b, &n, "decide on task "+string(seen.ID))
	}))
}

// ListOverdue returns the sequences of a task's open approvals that have expired.
func (a *Approvals) ListOverdue(ctx context.Context, id agentsvc.TaskID) (seqs []int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		var seq int64
		err := r.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	}, `SELECT seq FROM approval WHERE tenant = $1 AND task = $2 AND due_at <= stoa_now() ORDER BY seq`, a.tenant, string(id))
	if err := a.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for overdue approvals of task %s: %w", id, err)
	}
	return seqs, nil
}

// ListDecisions returns all decisions about a task's tool calls, in order.
func (a *Approvals) ListDecisions(ctx context.Context, id agentsvc.TaskID) ([]agentsvc.Decision, error) {
	var evs []agentsvc.Event
	var b db.Batch
	b.Query(scanEventsInto(id, &evs), `SELECT seq, at, body FROM event WHERE tenant = $1 AND task = $2 AND kind = 'decision' ORDER BY seq`,
		a.tenant, string(id))
	if err := a.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read decisions on task %s: %w", id, err)
	}
	decisions := make([]agentsvc.Decision, len(evs))
	for i, ev := range evs {
		decisions[i] = *ev.Decision
	}
	return decisions, nil
}

// Postpone makes an approval expire after the given time, and returns the run that was woken for it to its
// rest.
func (a *Approvals) Postpone(ctx context.Context, run Run, approval int64, after time.Duration) error {
	var b db.Batch
	b.Exec(nil, `UPDATE approval SET due_at = stoa_now() + CAST($4 AS BIGINT) WHERE tenant = $1 AND task = $2 AND seq = $3`,
		a.tenant, string(run.Task), approval, after.Microseconds())
	if err := a.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("postpone an approval of task %s: %w", run.Task, err)
	}
	return a.unclaimRun(ctx, run)
}

// queryApprovals adds to b the read of a task's open approvals.
func (t *tenantRows) queryApprovals(b *db.Batch, id agentsvc.TaskID, to *[]agentsvc.Approval) {
	b.Query(func(r db.Row) error {
		var seq, at int64
		var body []byte
		if err := r.Scan(&seq, &at, &body); err != nil {
			return err
		}
		a, err := decodeApproval(id, seq, at, body)
		*to = append(*to, a)
		return err
	}, `SELECT e.seq, e.at, e.body FROM approval a JOIN event e ON e.tenant = a.tenant AND e.task = a.task AND e.seq = a.seq
		WHERE a.tenant = $1 AND a.task = $2 ORDER BY a.seq`, t.tenant, string(id))
}

// querySmallApprovals adds to b the read of a task's open approvals, or of their total size only where they are
// large.
func (t *tenantRows) querySmallApprovals(b *db.Batch, id agentsvc.TaskID, total *int64, to *[]agentsvc.Approval) {
	const open = ` FROM approval a JOIN event e ON e.tenant = a.tenant AND e.task = a.task AND e.seq = a.seq WHERE a.tenant = $1 AND a.task = $2`
	b.Query(func(r db.Row) error {
		var seq, at int64
		var body []byte
		if err := r.Scan(&seq, &at, total, &body); err != nil || body == nil {
			return err
		}
		a, err := decodeApproval(id, seq, at, body)
		*to = append(*to, a)
		return err
	}, `SELECT e.seq, e.at, sized.total, `+smallBodySQL("e.body", "sized.total")+` FROM approval a JOIN event e ON e.tenant = a.tenant AND e.task = a.task AND e.seq = a.seq
		CROSS JOIN (SELECT CAST(COALESCE(SUM(octet_length(e.body)), 0) AS BIGINT) AS total`+open+`) AS sized
		WHERE a.tenant = $1 AND a.task = $2 ORDER BY a.seq`, t.tenant, string(id))
}

// decodeApproval decodes the event of an approval.
func decodeApproval(id agentsvc.TaskID, seq, at int64, body []byte) (agentsvc.Approval, error) {
	ev := agentsvc.Event{Task: id, Seq: seq, At: time.UnixMicro(at).UTC()}
	if err := decodeEvent(&ev, body); err != nil {
		return agentsvc.Approval{}, err
	}
	if ev.Approval == nil {
		return agentsvc.Approval{}, fmt.Errorf("event %d of task %s is no approval", seq, id)
	}
	return *ev.Approval, nil
}

// insertApprovals adds to b, under g, a row for each approval among evs. A timeout of 0 becomes NULL: the approval
// never expires.
func (t *tenantRows) insertApprovals(b *db.Batch, id agentsvc.TaskID, evs []agentsvc.Event, g *precondition) {
	open := filterApprovals(evs)
	if len(open) == 0 {
		return
	}
	args := []any{t.tenant, string(id), g.epoch, g.seq}
	values := make([]string, len(open))
	for i, ev := range open {
		values[i] = fmt.Sprintf("(CAST($%d AS BIGINT), CAST($%d AS BIGINT))", len(args)+1, len(args)+2)
		args = append(args, ev.Seq, ev.Approval.Timeout.Microseconds())
	}
	b.Exec(nil, `INSERT INTO approval (tenant, task, seq, due_at)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), v.column1, stoa_now() + NULLIF(v.column2, 0) FROM (VALUES `+strings.Join(values, ", ")+`) AS v
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4)`, args...)
}

// filterApprovals returns the events of evs that open an approval.
func filterApprovals(evs []agentsvc.Event) (open []agentsvc.Event) {
	for _, ev := range evs {
		if ev.Approval != nil {
			open = append(open, ev)
		}
	}
	return open
}
