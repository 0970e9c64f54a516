// Package receiver keeps the push notification targets of tasks, and how much of its task's log each has received. A
// [Store] is made for one tenant; [Queue] is the platform's view, for the processes that deliver.
package receiver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// State is the state of a receiver.
type State string

// The states of a receiver.
const (
	Open State = "open" // events are delivered to it
	Done State = "done" // it has received the task's end
	Dead State = "dead" // given up after failures
)

// Receiver is a push notification target of a task (A2A PushNotificationConfig, or a configured notification). Its
// address and credentials are sealed in Value by the notify package; this package does not read them.
type Receiver struct {
	Task      agentsvc.TaskID
	ID        string // unique for the task; "" = the task's id
	Format    string // the format of its notifications, or formatStanding
	Value     string // sealed address and credentials, base64
	MasterKey string // id of the master key that wraps the value's key
	FromStart bool   // [Store.Set] registers it for all events of the task, also of one that has ended; not stored

	State        State
	DeliveredSeq int64  // sequence of the last event delivered to it
	Attempts     int64  // failed deliveries since the last success
	Error        string // of the last failed delivery
	Created      time.Time
}

// formatStanding is the format of receivers that the configuration of the task's agent names. Their ID is that of the
// notification, whose address and format are in the configuration.
const formatStanding = "notification"

// standingIDPrefix begins the ids of standing receivers in their rows. It is not printable, so no id that a caller
// chooses can collide.
const standingIDPrefix = "\x1f"

// NewStanding returns the receiver of a configured notification.
func NewStanding(notification string) Receiver {
	return Receiver{ID: standingIDPrefix + notification, Format: formatStanding}
}

// IsStanding reports whether r comes from the configuration: callers can neither set nor change it.
func (r Receiver) IsStanding() bool { return r.Format == formatStanding }

// PublicID returns the id of r as its creator knows it.
func (r Receiver) PublicID() string { return strings.TrimPrefix(r.ID, standingIDPrefix) }

// MaxPerTask bounds the receivers of a task that callers have set. Standing ones do not count.
const MaxPerTask = 10

// ErrTooMany reports that a task has MaxPerTask receivers.
var ErrTooMany error = agentsvc.NewInvalidError("", "a task has at most %d push notification configs; delete one first", MaxPerTask)

// Store reads and writes the receivers of one tenant's tasks. It is safe for concurrent use.
type Store struct {
	h      *db.Handle
	tenant string
	audit  audit.Target
}

// New returns the receivers of a tenant in d; audit is where the audit entries of changes go.
func New(d *db.DB, tenant db.ID, audit audit.Target) *Store {
	return &Store{d.Tenant(tenant), string(tenant), audit}
}

// Set registers a receiver for the events of its task from now on, or from the first one. One with the same id is
// replaced and keeps its position if it is open. It returns [agentsvc.ErrNotFound] if there is no such task, and
// [ErrTooMany]. The audit entries are written in the same transaction.
func (s *Store) Set(ctx context.Context, r Receiver, entries ...audit.Entry) error {
	var n, others int64
	var there bool
	b := db.Batch{StorageKind: db.StoresNew}
	// Read in the same transaction, to distinguish a missing task from a full one.
	b.Query(func(row db.Row) error { return row.Scan(&there, &others) }, `SELECT EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2),
		(SELECT COUNT(*) FROM receiver WHERE tenant = $1 AND task = $2 AND id <> $3 AND form <> $4)`, s.tenant, string(r.Task), r.rowID(), formatStanding)
	// The count is part of the INSERT, so that concurrent calls cannot exceed the limit by much; the query above only
	// explains a refusal. A receiver of a task that has ended is done at once.
	b.Exec(&n, `INSERT INTO receiver (tenant, task, id, form, value, master_key, state, told, attempts, failing_since, due_at, holder, until, error, created_at)
		SELECT t.tenant, t.id, CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT),
			CASE WHEN NOT $9 AND t.state IN ('completed', 'failed', 'cancelled', 'rejected') THEN 'done' ELSE 'open' END,
			CASE WHEN $9 THEN 0 ELSE t.seq END, 0, 0, stoa_now(), '', 0, '', stoa_now()
		FROM task t WHERE t.tenant = $1 AND t.id = $2 AND (SELECT COUNT(*) FROM receiver o WHERE o.tenant = $1 AND o.task = $2 AND o.id <> $3 AND o.form <> $8) < $7
		ON CONFLICT (tenant, task, id) DO UPDATE SET form = excluded.form, value = excluded.value, master_key = excluded.master_key,
			told = CASE WHEN receiver.state = 'open' THEN receiver.told ELSE excluded.told END,
			state = CASE WHEN receiver.state = 'open' THEN 'open' ELSE excluded.state END,
			attempts = 0, failing_since = 0, due_at = excluded.due_at, holder = '', until = 0, error = ''`,
		s.tenant, string(r.Task), r.rowID(), r.Format, r.Value, r.MasterKey, MaxPerTask, formatStanding, r.FromStart)
	err := s.writeWithAudit(ctx, &b, r, entries, func() error { return s.h.Do(ctx, &b) })
	switch {
	case err != nil:
		return fmt.Errorf("set a receiver of task %s: %w", r.Task, err)
	case !there:
		return agentsvc.ErrNotFound
	case n == 0 && others >= MaxPerTask:
		return ErrTooMany
	}
	return nil
}

// rowID returns the id in the receiver's row.
func (r Receiver) rowID() string {
	if r.ID == "" {
		return string(r.Task)
	}
	return r.ID
}

// List returns the receivers of a task ordered by id.
func (s *Store) List(ctx context.Context, id agentsvc.TaskID) (list []Receiver, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		r := Receiver{Task: id}
		var at int64
		err := row.Scan(&r.ID, &r.Format, &r.Value, &r.MasterKey, (*string)(&r.State), &r.DeliveredSeq, &r.Attempts, &r.Error, &at)
		r.Created = time.UnixMicro(at).UTC()
		list = append(list, r)
		return err
	}, `SELECT id, form, value, master_key, state, told, attempts, error, created_at FROM receiver WHERE tenant = $1 AND task = $2 ORDER BY id`,
		s.tenant, string(id))
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list the receivers of task %s: %w", id, err)
	}
	return list, nil
}

// Delete removes a receiver and writes the audit entries. It is no error if there is none.
func (s *Store) Delete(ctx context.Context, task agentsvc.TaskID, id string, entries ...audit.Entry) error {
	var b db.Batch
	err := s.writeWithAudit(ctx, &b, Receiver{Task: task, ID: id}, entries, func() error {
		b.Exec(nil, `DELETE FROM receiver WHERE tenant = $1 AND task = $2 AND id = $3`, s.tenant, string(task), id)
		return s.h.Do(ctx, &b)
	})
	if err != nil {
		return fmt.Errorf("drop a receiver of task %s: %w", task, err)
	}
	return nil
}

// writeWithAudit is [audit.Target.Write] for a change of a receiver: entries in the same database are written only
// if the receiver has a row.
func (s *Store) writeWithAudit(ctx context.Context, b *db.Batch, r Receiver, entries []audit.Entry, write func() error) error {
	return s.audit.Write(ctx, b, entries, `EXISTS (SELECT 1 FROM receiver WHERE tenant = $10 AND task = $11 AND id = $12)`,
		[]any{s.tenant, string(r.Task), r.rowID()}, write)
}

// QueueInsert adds to b that r is registered for its task, if the task has the given epoch and sequence; it receives the
// events after r.DeliveredSeq. An open one with the same id keeps its position.
func QueueInsert(b *db.Batch, tenant string, r Receiver, epoch, seq int64) {
	b.Exec(nil, `INSERT INTO receiver (tenant, task, id, form, value, master_key, state, told, attempts, failing_since, due_at, holder, until, error, created_at)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), 'open', CAST($7 AS BIGINT),
			0, 0, stoa_now(), '', 0, '', stoa_now()
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $8 AND seq = $9)
		ON CONFLICT (tenant, task, id) DO UPDATE SET form = excluded.form, value = excluded.value, master_key = excluded.master_key,
			told = CASE WHEN receiver.state = 'open' THEN receiver.told ELSE excluded.told END, state = 'open',
			attempts = 0, failing_since = 0, due_at = excluded.due_at, holder = '', until = 0, error = ''`,
		tenant, string(r.Task), r.rowID(), r.Format, r.Value, r.MasterKey, r.DeliveredSeq, epoch, seq)
}
