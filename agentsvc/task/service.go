// Package task accepts turns and lets callers follow them. Every way of calling an agent, over every protocol, uses
// the same two steps: submit a message, then read the events of the task's log.
//
// The log is in the store and is the only authority. What passes through the [Hub] is a copy of it for the readers of
// this process, plus live chunks of text that no log keeps; a reader that misses something reads the log.
//
// The main types:
//
//   - [Service] is one tenant's API. [Service.Submit] and [Service.SubmitAndFollow] accept a message: they write the
//     task, its run and the first events in one transaction and then dispatch the run, either to a slot of this
//     process ([Executor]) or to the queue.
//   - [Service.Follow] and [Service.SubmitAndFollow] return the events as an iterator (follow.go).
//   - [Service.Decide], or a message with decision parts, settles open approvals. When all are settled, the same
//     transaction writes a run that continues the paused turn from its journal (decide.go).
//   - [Recorder] writes the log of one run, fenced by the epoch of its lease. The runner package uses it.
//   - [Hub] delivers events to the subscriptions of this process and, through the signal bus, of other processes
//     (hub.go, remote.go).
//   - [DeadLetters] are the failed runs of all tenants and their requeueing.
//
// A slow reader never delays the writer. Its subscription's queue is bounded; beyond the bound the queue is dropped
// and the reader continues from the log, one page at a time.
//
// Reads that several callers request at once are shared (shared_read.go).
package task

import (
	"context"
	"log/slog"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/vault"
	"stoa/tenancy/db"
)

// Executor starts and stops runs, in this process and in others. queue.Pool implements it.
type Executor interface {
	// BeginTurn registers a turn that is being accepted; end must be called when it was dispatched or refused, and the
	// executor waits for that when it stops. mustStart reports that the process stops and that the turn's run may not
	// be left to the queue: it starts here, or the turn is refused. The error [agentsvc.ErrStopping] refuses
	// every turn.
	BeginTurn() (mustStart bool, end func(), err error)
	// AcquireSlot reserves a slot of this process for a run of the tenant whose caller waits, and returns the worker
	// to lease it to. StartRun or ReleaseSlot must follow. ok is false where no slot is free.
	AcquireSlot(tenant db.ID) (worker string, ok bool)
	// StartRun executes a written run in its reserved slot, without waiting for it.
	StartRun(run store.Run)
	// ReleaseSlot releases a reserved slot in which no run is started.
	ReleaseSlot(tenant db.ID)
	// DetachCaller reports that the caller who waited for a started or queued task disconnected before its end.
	DetachCaller(tenant db.ID, task agentsvc.TaskID)
	// ReserveQueueDepth reserves an entry of the tenant's queue, whose limit is most, for a run that is about to be
	// written. done must be called with whether it was written. The error may be shown to the sender.
	ReserveQueueDepth(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error)
	// NotifyQueued reports that a turn was written whose run is pending; WakeClaimers that some run has become pending.
	NotifyQueued(turn store.NewTurn)
	WakeClaimers()
	// StopRun cancels the run of a cancelled task, in whichever process it executes.
	StopRun(tenant db.ID, task agentsvc.TaskID)
	// NotifyRunChanged makes the process that executes the task's run read what was written about it.
	NotifyRunChanged(tenant db.ID, task agentsvc.TaskID)
}

// Service accepts, follows, decides and cancels the tasks of one tenant, at one revision of its configuration. All
// fields are set by New and read-only; it is safe for concurrent use.
type Service struct {
	store  *store.Store
	tenant db.ID
	// revision is stored with each run. A queued run is executed with the revision it was accepted at.
	revision int64
	hub      *Hub
	executor Executor
	log      *slog.Logger
	options  Options
	// taskReads and pageReads merge equal reads that callers request at the same time.
	taskReads sharedReads[taskReadKey, store.StoredTask]
	pageReads sharedReads[pageReadKey, Page]
}

// Options configure a [Service]. The zero value works.
type Options struct {
	// Check validates a tool call of a session whose arguments an approver has changed; nil = all are valid.
	Check func(ctx context.Context, session agentsvc.SessionKey, call agentsvc.ToolCall) error
	// OnBusy is, by agent, what to do with a message whose session already has an unfinished run; [Queue] for agents
	// not listed.
	OnBusy map[string]OnBusy
	// Vault seals the credentials that task owners supply. nil only where no tool requests any.
	Vault *vault.Vault
	// MaxQueueDepth is how many runs of the tenant may wait for a worker; 0 = any number. Decisions are not subject
	// to it.
	MaxQueueDepth int64
	// MaxConcurrent is how many runs of the tenant may execute at a time, in all processes together; 0 = any number.
	MaxConcurrent int64
	// BudgetAvailability returns why the budget that a paused task waits for has capacity again, or nil where it has
	// none. A nil function means that there is always capacity.
	BudgetAvailability func(ctx context.Context, w BudgetWait) (*BudgetChange, error)
	// ReleaseReservation releases what the turn of a cancelled task had reserved from the tenant's limits, if no
	// model call of the turn was recorded. note is [Reservation].Note. nil = turns reserve nothing.
	ReleaseReservation func(t agentsvc.Task, note string)
	// Notifications returns the ids of the configured notifications that report on tasks of an agent; nil = none.
	Notifications func(agent string) []string
	// Hash returns the keyed hash that stands for a text of the tenant in audit entries. Audit entries outlive the
	// tenant, so they must not contain its texts. nil = entries have no hash.
	Hash func(text []byte) string
	// Observer records what runs do, such as their usage; nil = none. With ObserveSeparately its rows are in another
	// database than the log, so they cannot be part of the log's transaction.
	Observer          Observer
	ObserveSeparately bool
}

// New returns the service of a tenant at a revision of its configuration.
func New(st *store.Store, tenant db.ID, revision int64, hub *Hub, workers Executor, log *slog.Logger, o Options) *Service {
	return &Service{store: st, tenant: tenant, revision: revision, hub: hub, executor: workers, log: log, options: o}
}

// newTopicKey returns the hub's key of a task of this tenant.
func (s *Service) newTopicKey(id agentsvc.TaskID) topicKey { return topicKey{s.tenant, id} }

// Visibility limits what a caller can see: the tasks of Agents (nil = of all agents) and of Owner (nil = of every user
// of the tenant), and what its reads may have in memory. A task outside it is answered exactly like one that does not
// exist.
type Visibility struct {
	Agents []string
	Owner  *agentsvc.Owner
	// Memory is what the caller's reads reserve before they load a task or its events; nil = without a bound.
	Memory *capacity.Reservation
}

// includesTask reports whether the caller may see t.
func (v Visibility) includesTask(t agentsvc.Task) bool {
	return (v.Agents == nil || slices.Contains(v.Agents, t.Agent)) && (v.Owner == nil || *v.Owner == t.Owner)
}

// Get returns the requested parts of a task, or [agentsvc.ErrNotFound] for one that does not exist or is not visible.
// The result is shared with other callers and must not be modified.
func (s *Service) Get(ctx context.Context, visibility Visibility, id agentsvc.TaskID, parts store.TaskParts) (agentsvc.Task, error) {
	t, err := s.findTask(ctx, visibility, id, parts)
	return t.Task, err
}

// taskReadKey identifies reads of a task that can be shared: visibility is checked after the read, for each caller.
type taskReadKey struct {
	id    agentsvc.TaskID
	parts store.TaskParts
}

// findTask reads a task and checks its visibility. Every method that takes a task id from a caller goes through it.
func (s *Service) findTask(ctx context.Context, visibility Visibility, id agentsvc.TaskID, parts store.TaskParts) (store.StoredTask, error) {
	if checkID("task_id", string(id)) != nil {
		// An id that is too long or not UTF-8 cannot exist, and PostgreSQL refuses it as a parameter.
		return store.StoredTask{}, agentsvc.ErrNotFound
	}
	t, err := s.taskReads.readShared(ctx, taskReadKey{id, parts}, func(ctx context.Context) (store.StoredTask, error) {
		return s.store.Tasks.Load(ctx, visibility.Memory, id, parts)
	})
	if err == nil && !visibility.includesTask(t.Task) {
		err = agentsvc.ErrNotFound
	}
	if err == nil {
		// The read's memory was reserved by the caller that performed it; each caller reserves its own for what it
		// makes of the task.
		err = visibility.Memory.ReserveTotal(ctx, t.ByteSize())
	}
	if err != nil {
		return store.StoredTask{}, err
	}
	return t, nil
}
