// Package runner executes runs. A [Runner] takes a run that a worker has leased, loads the conversation that its turn
// continues, lets the agent work and writes the events that the agent yields to the task's log.
//
// One run goes through these steps:
//
//  1. [Runner.Run] creates a [task.Recorder]. A run that was claimed from the queue has a lease with Epoch 0; BeginRun
//     raises the task's epoch, which fences every later write. A run that was accepted in a slot was created with its
//     epoch.
//  2. loadInvocation reads the session and, where the turn had earlier attempts or was resumed by a decision,
//     replays the turn's journal. Model answers and tool results that the journal contains are not produced again.
//  3. The agent yields events. processEvent writes each fact before the agent continues; live chunks are only
//     published. A fact that no longer fits the epoch is refused with [agentsvc.ErrLeaseLost], which ends the run.
//  4. The last record ends the run: final status, session entries and the run's end state are one transaction. An
//     agent that waits for a human ends the run as well (pauseRun); the decision starts a new run, which replays the
//     same journal.
//
// No budget and no limit is reserved or settled here, only memory is reserved. The budget of a model call is reserved
// before the call and settled after it by the model's decorator (runtime.meteredModel). The token limits of a message
// are reserved when it is admitted (surface.Request.AdmitCall); the run carries the reservation's note, and its first
// [UsageUpdate] settles it. A model call that exceeds a budget fails the turn, or pauses it (pauseForBudget) if the
// budget says so.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/time/rate"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// Runner executes the runs of one tenant's agents. One Runner serves all workers of the process; each Run call has
// its own execution.
type Runner struct {
	// All fields are set by New, or by the Observe methods before the first Run, and are read-only afterwards.
	tasks           *task.Service
	agents          map[string]agent.Agent
	retry           queue.Retry
	log             *slog.Logger
	options         Options
	sessionObserver SessionObserver
	usageObserver   UsageObserver
}

// DefaultMaxDuration bounds one execution of a turn where [Options].MaxDuration is zero. The time that a task waits
// for a human does not count, because no run executes then.
const DefaultMaxDuration = 30 * time.Minute

// Options configure a [Runner]. The zero value writes no checkpoints and resumes every run whose process stopped.
type Options struct {
	// MaxDuration bounds one execution of a turn; [DefaultMaxDuration] if zero. A run that takes longer fails and is
	// not retried.
	MaxDuration time.Duration
	// Memory is the pool in which runs reserve the bytes that they keep in memory: the conversation they read and the
	// answers of their models. nil = no bound.
	Memory *capacity.Pool
	// CallPace bounds the rate of model calls beyond the first unpacedCalls of each turn; nil = no bound. See NewCallPace.
	CallPace *rate.Limiter
	// Checkpoints chooses the places of a turn that are written to its log as restore points.
	Checkpoints CheckpointPolicy
	// Recovery chooses which interrupted runs continue.
	Recovery RecoveryPolicy
	// OnAttemptEnd is called after each attempt whose end is on the log, with the state that the attempt brought its
	// task to, or "" where the run will be retried, and the attempt's duration. nil = no call.
	OnAttemptEnd func(ctx context.Context, run store.Run, state agentsvc.State, took time.Duration)
}

// unpacedCalls is the number of model calls that a turn makes without waiting for [Options].CallPace.
const unpacedCalls = 10

// NewCallPace returns the pace of an app's model calls in long turns: 100 a second for each processor, of all its turns
// together. A vendor's model takes a second for a call and never meets it. A model that answers at once, in a turn that
// calls it hundreds of times, would otherwise take what the processors and the database have.
func NewCallPace() *rate.Limiter { return rate.NewLimiter(rate.Limit(100*runtime.GOMAXPROCS(0)), 1) }

// SessionObserver is called after a turn has added entries to its session, with these entries; not for a turn that
// ended rejected. It runs after the commit, so callers already see the end of the turn; only the worker waits for it.
type SessionObserver func(ctx context.Context, run store.Run, message []agentsvc.Entry)

// ObserveSessions sets the session observer. It must be called before the first Run.
func (r *Runner) ObserveSessions(f SessionObserver) { r.sessionObserver = f }

// New returns a runner for agents, which are keyed by name. A run that fails with a transient error (see isTransient)
// is retried by the policy retry. MaxDuration zero becomes [DefaultMaxDuration].
func New(tasks *task.Service, agents map[string]agent.Agent, retry queue.Retry, log *slog.Logger, o Options) *Runner {
	o.MaxDuration = cmp.Or(o.MaxDuration, DefaultMaxDuration)
	return &Runner{tasks: tasks, agents: agents, retry: retry, log: log, options: o}
}

// Run executes one turn to its end under lease and records that end; nil means that the end is on the log. It returns
// the cause of ctx's end where ctx ended first, [agentsvc.ErrLeaseLost] if another worker or a cancellation took the
// task, and any other error if no end could be recorded. In all these cases the queue decides what becomes of the run.
func (r *Runner) Run(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
	memory := r.options.Memory.NewReservation(run.Tenant, 1)
	defer memory.ReleaseBytes()
	rec := r.tasks.Recorders.New(&run, memory)
	defer rec.Close()
	// Claimed from the queue: the run has no epoch yet, so nothing it writes would be accepted.
	if run.Epoch == 0 {
		if err := rec.BeginRun(ctx); err != nil {
			return err
		}
	}
	t := &execution{Runner: r, recorder: rec, run: &run, memory: memory, began: time.Now(), usage: usageReport{observer: r.usageObserver}}
	scope := agentsvc.RunScope{
		Session: agentsvc.SessionKey{Owner: run.Owner, Context: run.Context}, Roles: run.Roles, Lease: lease, Findings: t.turn.findings.addFinding, Sources: t.turn.sources.numberSources,
		Usage: &agentsvc.UsageRecorder{Task: run.Task, Epoch: run.Epoch, Agent: run.Agent, Owner: run.Owner, Record: t.usage.tracker.addUsage},
	}
	// Usage is reported even where the lease is lost: tokens that were spent are billed.
	defer func() { t.usage.reportUnwritten(ctx, run, rec, t.pending) }()
	err := t.runAgent(ctx, scope)
	// The agent stopped between a tool's result and the checkpoint that the result waits for.
	if t.resultPending {
		if lost := t.flushPending(ctx); lost != nil {
			err = lost
		}
	}
	if err == nil {
		if r.sessionObserver != nil && len(t.sessionEntries) > 0 && !t.rejected {
			r.sessionObserver(ctx, run, t.sessionEntries)
		}
		return nil
	}
	// A run that was stopped from outside has not failed: the cause decides whether the queue returns or drops it.
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, errNotRecorded) || errors.Is(err, agentsvc.ErrLeaseLost) {
		return err
	}
	if exhausted := agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err); exhausted != nil && exhausted.PausesTask {
		return t.pauseForBudget(ctx, exhausted)
	}
	return t.recordFailure(ctx, err)
}

// errNotRecorded marks an error of the log itself: the run's failure cannot be recorded there either, so the queue
// retries the run.
var errNotRecorded = errors.New("the log cannot be written")

// classifyLogError wraps an error of a log operation in errNotRecorded, except for errors after which the log still
// accepts the run's end: an unavailable external session database, exhausted memory, a value too large for memory and
// an exhausted storage quota. The quota never refuses a small end of a run (see store's maxEndBytes).
func classifyLogError(err error) error {
	var unavailable *store.UnavailableError
	if errors.As(err, &unavailable) || errors.Is(err, agentsvc.CodeExhausted) || errors.Is(err, agentsvc.CodeTooLarge) || errors.Is(err, agentsvc.CodeBusy) {
		return err
	}
	return fmt.Errorf("%w: %w", errNotRecorded, err)
}

// runAgent runs the agent until the turn has ended, paused or failed. It turns a panic of the agent into an error
// whose text shows nothing of the panic's value to callers.
func (exe *execution) runAgent(ctx context.Context, scope agentsvc.RunScope) (err error) {
	defer func() {
		if p := recover(); p != nil {
			exe.log.ErrorContext(ctx, "an agent panicked", "agent", exe.run.Agent, "task", exe.run.Task, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errors.New("the agent failed with an internal error")
		}
	}()
	a, ok := exe.agents[exe.run.Agent]
	if !ok {
		return errors.New("the agent no longer exists")
	}
	inv, err := exe.loadInvocation(ctx)
	if err != nil {
		return err
	}
	inv.RunScope, inv.Memory = scope, exe.memory
	if err := exe.options.Recovery.checkRecovery(*exe.run, exe.lastFactAt); err != nil {
		return err
	}
	// The limit is the context's cause, so that it can be distinguished from a stop of the process.
	durationErr := &durationError{exe.options.MaxDuration}
	within, cancel := context.WithTimeoutCause(ctx, exe.options.MaxDuration, durationErr)
	defer cancel()
	// Events are written under ctx, not within: a fact that arrives just after the limit is still recorded.
	for ev, err := range a.Run(within, inv) {
		if err == nil {
			err = exe.processEvent(ctx, ev)
		} else if errors.Is(context.Cause(within), durationErr) {
			return durationErr
		}
		if err != nil || exe.ended {
			return err
		}
	}
	if within.Err() != nil {
		return context.Cause(within)
	}
	return errors.New("the agent ended without an answer")
}

// recordFailure ends a turn that met err: the run becomes pending again where err is transient and attempts remain,
// else the task fails with what describeFailure permits. The delay is at least what the upstream asked for,
// but at most the policy's MaxDelay.
func (exe *execution) recordFailure(ctx context.Context, err error) error {
	exe.gatherReports()
	exe.log.WarnContext(ctx, "a run failed", "agent", exe.run.Agent, "task", exe.run.Task, "attempt", exe.run.Attempts, "error", err)
	if after, passes := isTransient(err); passes {
		if delay, ok := exe.retry.NextDelay(exe.run.Attempts); ok {
			delay = max(delay, min(after, exe.retry.MaxDelay))
			reason, _ := describeFailure(err)
			exe.pending = append(exe.pending, agentsvc.Event{Attempt: &agentsvc.Attempt{Number: exe.run.Attempts + 1, Reason: reason, Delay: delay}})
			return exe.writeRecord(ctx, store.Record{Events: exe.pending, EndState: store.Pending, RetryDelay: delay, Error: err.Error()})
		}
	}
	text, failure := describeFailure(err)
	msg := exe.newMessage(text)
	msg.Metadata[agentsvc.FailureKey] = failure.ToMetadata()
	exe.pending = append(exe.pending, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Failed, Message: &msg}})
	return exe.writeRecord(ctx, store.Record{Events: exe.pending, EndState: store.Failed, Error: err.Error()})
}

// durationError reports that one execution of a turn exceeded [Options].MaxDuration.
type durationError struct{ limit time.Duration }

func (e *durationError) Error() string {
	return fmt.Sprintf("The task ran for longer than %v, which is as long as one may, and was stopped.", e.limit)
}

// isTransient reports whether a later attempt may succeed, and the minimum time to wait before it (zero if the error
// names none). Only retryable errors of models and remote agents, an unavailable session database and a full memory
// pool are transient.
func isTransient(err error) (after time.Duration, ok bool) {
	var upstream *llm.Error
	if errors.As(err, &upstream) {
		return upstream.RetryAfter, upstream.Retryable
	}
	if remote, ok := errors.AsType[*agent.RemoteError](err); ok {
		return remote.RetryAfter, remote.Retryable
	}
	var unavailable *store.UnavailableError
	return 0, errors.As(err, &unavailable) || errors.Is(err, agentsvc.CodeBusy)
}
