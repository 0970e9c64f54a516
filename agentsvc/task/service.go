// Package task is the pass between the front of the house and the back. [Service.Submit] accepts a message as a turn
// of a task, [Service.Call] and [Service.Follow] read the task's log as it grows, a [Recorder] writes it. Every way of
// calling an agent, in every dialect, is these two verbs: submit, then read the events.
//
// The log is the truth and lives in the store. What passes through the [Hub] is a copy for readers in this process,
// and the live chunks of text that no log keeps.
package task

import (
	"context"
	"log/slog"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Executor is the workers, of this process and beyond, as far as the pass needs to know them.
type Executor interface {
	// AcquireSlot takes a place for a run of the tenant that somebody waits for. Start or Release gives it back.
	AcquireSlot(tenant db.ID) (worker string, ok bool)
	StartRun(run store.Run)
	ReleaseSlot(tenant db.ID)
	// DetachCaller says that the caller who waited for a task, which has been started or queued, is gone before its end.
	DetachCaller(tenant db.ID, task agentsvc.TaskID)
	// ReserveQueueDepth makes room in the tenant's queue, which holds most runs, for one that is about to be written, and returns what
	// is to be told whether it was. Its error may be shown to whoever sent it.
	ReserveQueueDepth(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error)
	// NotifyQueued says that a pending run was written, Wake that a run has become pending.
	NotifyQueued(run store.Run)
	WakeClaimers()
	// StopRun ends the run of a task that was cancelled, if one is at work in any process.
	StopRun(tenant db.ID, task agentsvc.TaskID)
	// NotifyRunChanged says that something was written about the run of a task.
	NotifyRunChanged(tenant db.ID, task agentsvc.TaskID)
}

// Service is the pass of one tenant.
type Service struct {
	store     *store.Store
	tenant    db.ID
	revision  int64
	hub       *Hub
	executor  Executor
	log       *slog.Logger
	options   Options
	taskReads sharedReads[taskReadKey, store.StoredTask]
	pageReads sharedReads[pageReadKey, Page]
}

// Options tune a [Service]. The zero value works.
type Options struct {
	// Check says what is wrong with a tool call whose arguments an approver has changed; nil = nothing ever is.
	Check func(ctx context.Context, call agentsvc.ToolCall) error
	// OnBusy is what agents do about a message that finds its session at work: [Queue] where nothing is said.
	OnBusy map[string]OnBusy
	// Vault keeps the credentials that owners of tasks supply. Where no tool needs any it may be missing.
	Vault *store.Vault
	// MaxQueueDepth is how many runs of the tenant may wait for a worker; 0 = any number. A decision is never refused for it.
	MaxQueueDepth int64
	// MaxConcurrent is how many runs of the tenant may be at work at a time, in all processes; 0 = any number.
	MaxConcurrent int64
	// BudgetAvailability returns why the budget that a task waits for has room again, nil where it has none; nil = it always has.
	BudgetAvailability func(ctx context.Context, w BudgetWait) (*BudgetChange, error)
	// ReleaseReservation gives back what the turn of a task holds of the limits that was cancelled before a model answered; nil = turns
	// hold nothing.
	ReleaseReservation func(t agentsvc.Task, note string)
	// Notifications are those that tell of the tasks of an agent, by id; nil = none do.
	Notifications func(agent string) []string
	// Hash returns the keyed hash by which the audit trail, which outlives the tenant, tells a text of the tenant's apart;
	// nil = entries are without.
	Hash func(text []byte) string
	// Observer is told of what runs do; it may be nil. With Apart what it writes is in another database than the log.
	Observer          Observer
	ObserveSeparately bool
}

// New returns the pass of a tenant whose configuration stands at revision.
func New(st *store.Store, tenant db.ID, revision int64, hub *Hub, workers Executor, log *slog.Logger, o Options) *Service {
	return &Service{store: st, tenant: tenant, revision: revision, hub: hub, executor: workers, log: log, options: o}
}

func (s *Service) newTopicKey(id agentsvc.TaskID) topicKey { return topicKey{s.tenant, id} }

// Visibility is what a caller may see: tasks of Agents, or of all where it is nil, and of Owner, or of everyone in the app
// where it is nil. What is out of reach answers as what does not exist.
type Visibility struct {
	Agents []string
	Owner  *agentsvc.Owner
}

func (r Visibility) includesTask(t agentsvc.Task) bool {
	return (r.Agents == nil || slices.Contains(r.Agents, t.Agent)) && (r.Owner == nil || *r.Owner == t.Owner)
}

// Get returns a task. It returns [agentsvc.ErrNotFound] for one out of reach.
func (s *Service) Get(ctx context.Context, visibility Visibility, id agentsvc.TaskID, parts store.TaskParts) (agentsvc.Task, error) {
	t, err := s.findTask(ctx, visibility, id, parts)
	return t.Task, err
}

// taskReadKey is a task as it is read.
type taskReadKey struct {
	id    agentsvc.TaskID
	parts store.TaskParts
}

func (s *Service) findTask(ctx context.Context, visibility Visibility, id agentsvc.TaskID, parts store.TaskParts) (store.StoredTask, error) {
	if checkID("task_id", string(id)) != nil {
		return store.StoredTask{}, agentsvc.ErrNotFound // and no database takes it as a parameter
	}
	t, err := s.taskReads.readShared(ctx, taskReadKey{id, parts}, func(ctx context.Context) (store.StoredTask, error) { return s.store.LoadTask(ctx, id, parts) })
	if err == nil && !visibility.includesTask(t.Task) {
		err = agentsvc.ErrNotFound
	}
	if err == nil {
		// It may have been read for somebody else, and what is made of it is the caller's own.
		err = capacity.ReservationFrom(ctx).ReserveTotal(ctx, t.ByteSize())
	}
	if err != nil {
		return store.StoredTask{}, err
	}
	return t, nil
}
