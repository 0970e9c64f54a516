// Package store holds the SQL of the pass: tasks, their events, runs and sessions. Every statement of a call stands
// here. A [Store] is made for one tenant and reaches that tenant's rows alone; [RunQueue] is the platform's view of the
// queue.
//
// Whoever changes a task proves it may: the change counts only at the epoch and the sequence its author last saw,
// and a change that lost its race answers [agentsvc.ErrLeaseLost] and leaves no trace.
package store

import (
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Store reaches one tenant's tasks and sessions.
type Store struct {
	*SessionStore

	h          *db.Handle
	tenant     string
	audit      auditTarget
	taskCache  *taskCache
	countCache *countCache
}

// New returns the store of a tenant.
func New(d *db.DB, tenant db.ID) *Store {
	h := d.Tenant(tenant)
	return &Store{
		SessionStore: &SessionStore{tenant: string(tenant), h: h}, h: h, tenant: string(tenant), audit: auditTarget{tenant: tenant},
		taskCache: &taskCache{}, countCache: &countCache{now: time.Now},
	}
}

// WithSessions returns a store of the same tasks whose sessions are those of k.
func (s *Store) WithSessions(k *SessionStore) *Store {
	other := *s
	other.SessionStore = k
	return &other
}

// RunState is where a run stands in the queue.
type RunState string

// The states of a run. A run that waits for its next attempt is pending, one that waits for others of its session is
// waiting.
const (
	Waiting       RunState = "waiting"
	Pending       RunState = "pending"
	Running       RunState = "running"
	Completed     RunState = "completed"
	Failed        RunState = "failed"
	InputRequired RunState = "input_required"
)

// Priority is a run's place among the waiting ones of its app, the lowest number first.
type Priority int64

// The priorities.
const (
	PriorityAwaited Priority = iota // somebody waits for its end
	PriorityNormal
	PriorityBackground // nobody has asked for it: a clock did, or an event elsewhere
)

// Run is one turn of a task on its way through an agent, under a lease: Epoch and Seq say what its worker last saw
// of the task.
type Run struct {
	Tenant         db.ID
	Task           agentsvc.TaskID
	Turn           int64
	Agent          string
	Context        agentsvc.ContextID
	Owner          agentsvc.Owner
	Revision       int64 // of the app's configuration when the turn was accepted
	Attempts       int64 // this one included
	Worker         string
	Epoch          int64
	Seq            int64
	FirstSeq       int64 // of the event that opened the turn
	InMemory       bool  // the task is kept in memory and ends with this process
	WasInterrupted bool  // a worker stopped in the middle of the attempt before
	Message        agentsvc.Message
	Trace          string // names the span of what asked for the run, "" = nobody was recording
	Priority       Priority
	Rescues        int64 // workers that died with it
	MaxRunning     int64 // of the app's runs at work at a time; 0 = none. It holds where the run is born under a lease
	// IsNewContext says that the context is new: there is no session to read.
	IsNewContext bool
	// MayWait says that the run, which has no worker, is born behind the others of its session, where there are any.
	// Without it a run that is not fresh is born only where there are none.
	MayWait bool
	// HasQueuedRuns says, once the run has ended, that others of its session may wait for that.
	HasQueuedRuns bool
	// Reservation notes what the turn's call holds of the limits of its app, for whoever settles it; "" = nothing.
	Reservation string
	// Receiver is told of what happens to the task from the turn's first event on; nil = nobody new is.
	Receiver *Receiver
	// Notifications are those of its agent's configuration that tell of the task, by id; only a task's first turn has any.
	Notifications []string
	// TurnEvents are those of the turn when it began, where they have been read.
	TurnEvents []agentsvc.Event
}
