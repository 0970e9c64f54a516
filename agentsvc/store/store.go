// Package store holds the SQL of tasks, their events, runs, sessions and approvals. A [Store] is made for one tenant
// and reaches only that tenant's rows: its database handle sets the tenant for row-level security, and every statement
// names the tenant as well. It consists of one type for each aggregate, which share the statements of tenantRows.
// [RunQueue] is the platform's view of all tenants' runs. What needs no part in a task's transactions is in packages
// below this folder.
//
// # Conditional writes
//
// Nothing locks a task while it is read. Every change of a task is a batch of statements whose first one updates the
// task's row on the condition that its epoch and sequence are those that the writer last saw; the others insert rows
// on the condition that the task now has the new epoch and sequence (type precondition). If the first statement
// touches no row, the others touch none either, and the method returns [agentsvc.ErrTaskChanged],
// or [agentsvc.ErrLeaseLost] where the writer is a worker. So a lost race leaves no trace, and no transaction needs a
// second round trip.
//
// # Epochs
//
// A task's epoch is its fencing token. It is raised when a worker begins a run ([Runs.BeginRun]), when
// the task is continued, decided, cancelled or given up, and when its worker is found dead ([RunQueue.RescueRuns]) or
// stops ([RunQueue.ReleaseRuns]). A worker writes only at the epoch it acquired ([Runs.WriteRecord]), so a worker
// that was suspended and continues after another one took over changes nothing.
//
// # Tables
//
// task is the current row of each task; event its log, one row per fact with a JSON body; run one row per turn with
// its state in the queue; approval the open approvals; sent the ids of clients' messages; session_turn what each turn
// added to its session; worker the heartbeats of processes; receiver the push notification targets. Times are
// microseconds since 1970; stoa_now() is the database's clock, so that leases and delays do not depend on the clocks
// of processes.
//
// PostgreSQL and SQLite execute the same SQL; the exceptions are marked. Parameters are cast (CAST($1 AS TEXT)) where
// PostgreSQL could not infer their type. A sub-select around a parameter keeps PostgreSQL from making a new plan for
// each value (plan_test.go).
package store

import (
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store/callcancel"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Store is one tenant's tasks and sessions, by aggregate. It is safe for concurrent use.
type Store struct {
	Tasks       *Tasks
	Events      *Events
	Runs        *Runs
	Approvals   *Approvals
	DeadLetters *DeadLetters
	Sessions    *Sessions
	Receivers   *receiver.Store
	CallCancels *callcancel.Store
	Sweeper     *Sweeper

	db   *db.DB
	rows *tenantRows
}

// New returns the store of a tenant in d, with empty caches.
func New(d *db.DB, tenant db.ID) *Store {
	rows := &tenantRows{h: d.Tenant(tenant), tenant: string(tenant), audit: audit.NewTarget(tenant)}
	return newStore(d, rows, &Sessions{tenant: string(tenant), h: rows.h}, &taskCache{}, &countCache{now: time.Now})
}

func newStore(d *db.DB, rows *tenantRows, sessions *Sessions, cache *taskCache, counts *countCache) *Store {
	events := &Events{rows}
	return &Store{
		Tasks: &Tasks{rows, cache, counts}, Events: events, Runs: &Runs{rows, events, sessions}, Approvals: &Approvals{rows}, DeadLetters: &DeadLetters{rows},
		Sessions: sessions, Receivers: receiver.New(d, db.ID(rows.tenant), rows.audit), CallCancels: callcancel.New(d, db.ID(rows.tenant)),
		Sweeper: &Sweeper{rows, sessions, counts}, db: d, rows: rows,
	}
}

// WithSessions returns a store of the same tasks, with the same caches, whose sessions are those of k.
func (s *Store) WithSessions(k *Sessions) *Store {
	return newStore(s.db, s.rows, k, s.Tasks.cache, s.Tasks.counts)
}

// WithAuditIn returns a store of the same tasks whose audit entries are written to d: the tasks' database may end
// with the process, the audit trail must not.
func (s *Store) WithAuditIn(d *db.DB) *Store {
	rows := *s.rows
	rows.audit = rows.audit.In(d)
	return newStore(s.db, &rows, s.Sessions, s.Tasks.cache, s.Tasks.counts)
}

// RunState is the state of a run in the queue.
type RunState string

// The states of a run:
//
//	waiting ──► pending ──► running ──► completed | failed | input_required
//	               ▲           │
//	               └───────────┘ (next attempt, rescue, return)
//
// A waiting run waits for earlier runs of its session. A pending one may be claimed once its delay is over. failed is
// a dead letter. A run in input_required has paused its turn. It keeps this state when a decision or a message
// continues the task, which creates a new run; it becomes pending only when an approval expires (WakeOverdueRuns),
// and completed when the task is cancelled or ended by a decision.
const (
	Waiting       RunState = "waiting"
	Pending       RunState = "pending"
	Running       RunState = "running"
	Completed     RunState = "completed"
	Failed        RunState = "failed"
	InputRequired RunState = "input_required"
)

// Priority orders the pending runs of one tenant, lowest number first.
type Priority int64

// The priorities.
const (
	PriorityAwaited Priority = iota // a caller waits for the end
	PriorityNormal
	PriorityBackground // opened by a schedule or an external event
)

// Run is the execution of one turn by a worker, in one or several attempts. A claimed run has Agent, Context, Owner and
// IsNewContext only after [Runs.BeginRun]; the other fields but those of Lease do not change.
type Run struct {
	Tenant       db.ID
	Task         agentsvc.TaskID
	Turn         int64
	Agent        string
	Context      agentsvc.ContextID
	IsNewContext bool // the turn opens its context: there is no session to read and no other run to wait for
	// SessionPosition is the position that the turn is expected to get in its session: one more than that of the last
	// turn that its reader has read. 0 = not known.
	SessionPosition int64
	Owner           agentsvc.Owner
	Revision        int64 // of the tenant's configuration when the turn was accepted; the run executes with it
	FirstSeq        int64 // sequence of the first event of the turn's journal
	Attempts        int64 // number of attempts, the current one included
	Rescues         int64 // how often a worker died while it executed the run
	WasCutOff       bool  // the previous attempt's worker stopped in the middle of it
	InMemory        bool  // the task is in a database that ends with this process
	// Message opened the turn. A run that was claimed from the queue does not carry it: its journal begins with it.
	Message agentsvc.Message
	// Trace is the W3C traceparent of the request that opened the turn; "" = not traced.
	Trace string
	// LimitReservation is the note of what the turn reserved from the tenant's limits, for the code that settles it; "" =
	// nothing.
	LimitReservation string
	// Roles are the caller's when the turn was accepted.
	Roles []string
	Lease
}

// NewTurn is a turn to be written: its run, its first events and what is stored with them, in one transaction. Seq of
// its lease is that of the last event.
type NewTurn struct {
	Run
	// Events are the first events of the turn. The last one that is a status is the task's.
	Events   []agentsvc.Event
	Priority Priority
	// Sent identifies the client's message that opened the turn; nil = it cannot be identified.
	Sent *SentMessage
	// MaxRunning limits the tenant's executing runs, in all processes; 0 = no limit. It is enforced when the run is
	// written under a lease; claims read the limit from the tenant's row.
	MaxRunning int64
	// MayWait lets the run, which has no worker, be written behind others of its session. Without it a run in an
	// existing context is written only if no other run of the session is unfinished.
	MayWait bool
	// Receiver is registered with the turn and receives its events from the first one; nil = none.
	Receiver *receiver.Receiver
	// Notifications are the ids of configured notifications that report on the task. Only a task's first turn sets
	// them.
	Notifications []string
	// AuditEntries are written in the same transaction.
	AuditEntries []audit.Entry
}
