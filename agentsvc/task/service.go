// Package task accepts turns and lets callers follow them. Every way of calling an agent, over every protocol, uses
// the same two steps: submit a message, then read the events of the task's log.
//
// The log is in the store and is the only authority. What passes through the [Hub] is a copy of it for the readers of
// this process, plus live chunks of text that no log keeps; a reader that misses something reads the log.
//
// A tenant's [Service] consists of:
//
//   - [Messages]: accepts messages. It writes the task, its run and the first events in one transaction and then
//     dispatches the run, either to a slot of this process ([Executor]) or to the queue. Messages, decisions and
//     restored checkpoints go through one pipeline (accept.go). A task that waited for a budget continues with the
//     pipeline's commit and dispatch alone (expiry.go), and a requeued run does without it ([DeadLetters.Requeue]).
//   - [Decisions]: settles open approvals, also for a message with decision parts. When all are settled, the same
//     transaction writes a run that continues the paused turn from its log.
//   - [Checkpoints]: opens a new task that continues a failed one from a checkpoint.
//   - [Reader]: gets and lists tasks, and returns their events as an iterator.
//   - [Canceller]: cancels tasks and single tool calls.
//   - [Receivers]: the push notification receivers of tasks.
//   - [Recorders]: makes a [Recorder] for each run. It writes the run's part of the log, fenced by the epoch of its
//     lease. The runner package uses it.
//
// Of the whole process, for all tenants:
//
//   - [Hub] delivers events to the subscriptions of this process and, through the signal bus, of other processes
//     (hub.go, remote.go).
//   - [DeadLetters] are the failed runs and their requeueing.
//
// A slow reader never delays the writer. Its subscription's queue is bounded; beyond the bound the queue is dropped
// and the reader continues from the log, one page at a time.
//
// Reads that several callers request at once are shared (shared_read.go).
package task

import (
	"context"
	"log/slog"

	"stoa/agentsvc"
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
	// AcquireQueueEntry acquires an entry of the tenant's queue, whose limit is most, for a run that is about to be
	// written. done must be called with whether it was written. The error may be shown to the sender.
	AcquireQueueEntry(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error)
	// NotifyQueued reports that a turn was written whose run is pending; WakeClaimers that some run has become pending.
	NotifyQueued(turn store.NewTurn)
	WakeClaimers()
	// StopRun cancels the run of a cancelled task, in whichever process it executes.
	StopRun(tenant db.ID, task agentsvc.TaskID)
	// NotifyRunChanged makes the process that executes the task's run read what was written about it.
	NotifyRunChanged(tenant db.ID, task agentsvc.TaskID)
}

// Service is what callers and workers do with the tasks of one tenant, at one revision of its configuration: one value
// for each concept, as in [store.Store]. It is safe for concurrent use.
type Service struct {
	Reader      *Reader
	Messages    *Messages
	Decisions   *Decisions
	Checkpoints *Checkpoints
	Canceller   *Canceller
	Receivers   *Receivers
	Recorders   *Recorders
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
	// ReleaseTokens releases what the turn of a cancelled task had reserved from the tenant's limits, if no
	// model call of the turn was recorded. note is [LimitReservation].Note. nil = turns reserve nothing.
	ReleaseTokens func(t agentsvc.Task, note string)
	// Notifications returns the ids of the configured notifications that report on tasks of an agent; nil = none.
	Notifications func(agent string) []string
	// Hash returns the keyed hash that stands for a text of the tenant in audit entries. Audit entries outlive the
	// tenant, so they must not contain its texts. nil = entries have no hash.
	Hash func(text []byte) string
	// UsageMeter makes the usage rows of billing; nil = none. With WriteUsageSeparately the rows are in another
	// database than the log, so they cannot be part of the log's transaction.
	UsageMeter           UsageMeter
	WriteUsageSeparately bool
}

// New returns the service of a tenant at a revision of its configuration.
func New(st *store.Store, tenant db.ID, revision int64, hub *Hub, workers Executor, log *slog.Logger, o Options) *Service {
	if o.Hash == nil {
		o.Hash = func([]byte) string { return "" }
	}
	logs := &logReader{events: st.Events, tenant: tenant, hub: hub}
	reader := &Reader{tasks: st.Tasks, tenant: tenant, logs: logs}
	sessions := &sessionQueues{runs: st.Runs, executor: workers, log: log}
	canceller := &Canceller{
		reader: reader, store: st, tenant: tenant, hub: hub, executor: workers, sessions: sessions, releaseTokens: o.ReleaseTokens, log: log,
	}
	turns := &pipeline{
		store: st, hub: hub, executor: workers, maxQueueDepth: o.MaxQueueDepth,
		turnFactory: turnFactory{tenant, revision, o.MaxConcurrent, o.Notifications},
	}
	decisions := &Decisions{turns: turns, reader: reader, approvals: st.Approvals, check: o.Check, vault: o.Vault, hash: o.Hash}
	expiry := &approvalExpiry{turns: turns, store: st, budgetAvailability: o.BudgetAvailability, hash: o.Hash}
	return &Service{
		Reader:      reader,
		Messages:    &Messages{turns: turns, reader: reader, decisions: decisions, canceller: canceller, receivers: st.Receivers, onBusy: o.OnBusy, hash: o.Hash},
		Decisions:   decisions,
		Checkpoints: &Checkpoints{turns: turns, reader: reader},
		Canceller:   canceller,
		Receivers:   &Receivers{reader: reader, receivers: st.Receivers, hash: o.Hash},
		Recorders: &Recorders{
			store: st, tenant: tenant, hub: hub, sessions: sessions, expiry: expiry, usageMeter: o.UsageMeter, writeUsageSeparately: o.WriteUsageSeparately, log: log,
		},
	}
}
