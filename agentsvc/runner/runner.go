// Package runner is where thinking meets the pass: it takes a run, loads the conversation it continues, lets the agent
// think and writes down what comes of it. Facts go to the log as they happen; the end of the turn, its session entry
// and the end of the run are one transaction.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/tool"
)

// Runner runs the turns of one tenant's agents.
type Runner struct {
	tasks           *task.Service
	agents          map[string]agent.Agent
	retry           queue.Retry
	log             *slog.Logger
	options         Options
	sessionObserver SessionObserver
	usageObserver   UsageObserver
}

// DefaultMaxDuration is how long one execution of a turn may take where nothing else is said. A task that waits for a human does not
// run.
const DefaultMaxDuration = 30 * time.Minute

// Options tune a [Runner]. The zero value makes no checkpoints and lets every run go on after its process died.
type Options struct {
	// MaxDuration bounds one execution of a turn; [DefaultMaxDuration] if zero. A run that takes longer fails, and is not tried again.
	MaxDuration time.Duration
	// Memory is where runs take what they have in memory from: what they read, and the answers of their models; nil = without bound.
	Memory      *capacity.Pool
	Checkpoints CheckpointPolicy
	Recovery    RecoveryPolicy
	// OnAttemptEnd is told of each attempt whose end is on the log: the state that it has brought its task to, "" where the run
	// will be tried again, and how long it took.
	OnAttemptEnd func(ctx context.Context, run store.Run, state agentsvc.State, took time.Duration)
}

// SessionObserver is told of a turn that has added to its session, and what; of one that ended rejected it is not. The end is on
// the log and its readers know of it, so only the worker waits.
type SessionObserver func(ctx context.Context, run store.Run, message []agentsvc.Entry)

// ObserveSessions has the runner tell f of such turns. It is called before the first.
func (r *Runner) ObserveSessions(f SessionObserver) { r.sessionObserver = f }

// New returns a runner for agents by name. Runs that met an error which may pass are tried again as retry says.
func New(tasks *task.Service, agents map[string]agent.Agent, retry queue.Retry, log *slog.Logger, o Options) *Runner {
	o.MaxDuration = cmp.Or(o.MaxDuration, DefaultMaxDuration)
	return &Runner{tasks: tasks, agents: agents, retry: retry, log: log, options: o}
}

// Run runs one turn to its end and records it. It returns [agentsvc.ErrLeaseLost] if somebody else took the task, and any
// other error if no end could be recorded: then the run is to be tried again.
func (r *Runner) Run(ctx context.Context, run store.Run) error {
	rec := r.tasks.NewRecorder(&run)
	defer rec.Close()
	memory := r.options.Memory.NewReservation(run.Tenant, 1)
	defer memory.ReleaseBytes()
	within := capacity.WithReservation(ctx, memory)
	if run.Epoch == 0 {
		if err := rec.BeginRun(within); err != nil {
			return err
		}
	}
	t := &execution{Runner: r, recorder: rec, run: &run, memory: memory, began: time.Now()}
	within = agentsvc.WithSession(within, agentsvc.SessionKey{Owner: run.Owner, Context: run.Context})
	within = agentsvc.WithUsageRecorder(agentsvc.WithFindingRecorder(within, t.findings.addFinding), &agentsvc.UsageRecorder{
		Task: run.Task, Epoch: run.Epoch, Agent: run.Agent, Owner: run.Owner, Record: t.unreportedUsage.addUsage,
	})
	defer t.reportUnwritten(ctx)
	err := t.runAgent(within)
	if t.resultPending { // the agent was stopped between a tool's result and what it does with it
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
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, errNotRecorded) || errors.Is(err, agentsvc.ErrLeaseLost) {
		return err
	}
	var exhausted *agentsvc.BudgetExhaustedError
	if errors.As(err, &exhausted) && exhausted.PausesTask {
		return t.pauseForBudget(ctx, exhausted)
	}
	return t.recordFailure(ctx, err)
}

// errNotRecorded marks an error of the log itself: there is nowhere to write the failure either.
var errNotRecorded = errors.New("the log cannot be written")

// classifyLogError is err of the log. Of a database that only sessions are in, of memory that was not free for what the log holds, and of
// an app that stores as much as it may, the log can tell: the end of a run is always written.
func classifyLogError(err error) error {
	var away *store.UnavailableError
	var large *capacity.TooLargeError
	var full *agentsvc.StorageLimitError
	if errors.As(err, &away) || errors.As(err, &full) || errors.As(err, &large) || errors.Is(err, capacity.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", errNotRecorded, err)
}

// runAgent runs the turn. A panic of an agent is an error of its turn.
func (t *execution) runAgent(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log.ErrorContext(ctx, "an agent panicked", "agent", t.run.Agent, "task", t.run.Task, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errors.New("the agent met an internal error")
		}
	}()
	a, ok := t.agents[t.run.Agent]
	if !ok {
		return errors.New("the agent no longer exists")
	}
	inv, err := t.loadInvocation(ctx)
	if err != nil {
		return err
	}
	if err := t.options.Recovery.checkRecovery(*t.run, t.lastFactAt); err != nil {
		return err
	}
	late := &durationError{t.options.MaxDuration}
	within, cancel := context.WithTimeoutCause(ctx, t.options.MaxDuration, late)
	defer cancel()
	for ev, err := range a.Run(within, inv) { // what it says is written within ctx: facts outlive the time of their run
		if err == nil {
			err = t.processEvent(ctx, ev)
		} else if errors.Is(context.Cause(within), late) {
			return late
		}
		if err != nil || t.ended {
			return err
		}
	}
	if within.Err() != nil {
		return context.Cause(within)
	}
	return errors.New("the agent ended without an answer")
}

// recordFailure records the end of a turn that met err: as failed, or where err may pass and tries remain as pending.
func (t *execution) recordFailure(ctx context.Context, err error) error {
	t.gatherFindings()
	t.log.WarnContext(ctx, "a run failed", "agent", t.run.Agent, "task", t.run.Task, "attempt", t.run.Attempts, "error", err)
	if after, passes := isTransient(err); passes {
		if delay, ok := t.retry.NextDelay(t.run.Attempts); ok {
			delay = max(delay, min(after, t.retry.MaxDelay))
			return t.writeRecord(ctx, store.Record{Events: t.pending, EndState: store.Pending, RetryDelay: delay, Error: err.Error()})
		}
	}
	msg := t.newMessage(publicReason(err))
	t.pending = append(t.pending, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Failed, Message: &msg}})
	return t.writeRecord(ctx, store.Record{Events: t.pending, EndState: store.Failed, Error: err.Error()})
}

// durationError says that a turn's execution took longer than it may.
type durationError struct{ limit time.Duration }

func (e *durationError) Error() string {
	return fmt.Sprintf("The task ran for longer than %v, which is as long as one may, and was stopped.", e.limit)
}

// isTransient reports whether what err tells of may pass, and how long that takes at least.
func isTransient(err error) (after time.Duration, ok bool) {
	var upstream *llm.Error
	if errors.As(err, &upstream) {
		return upstream.RetryAfter, upstream.Retryable
	}
	var away *store.UnavailableError
	return 0, errors.As(err, &away) || errors.Is(err, capacity.ErrFull)
}

// publicReason is what a caller may read of err.
func publicReason(err error) string {
	var upstream *llm.Error
	var invalid *agentsvc.InvalidError
	var absent *tool.UnavailableError
	var away *store.UnavailableError
	var cut *interruptedError
	var exhausted *agentsvc.BudgetExhaustedError
	var late *durationError
	var full *agentsvc.StorageLimitError
	if errors.As(err, &full) {
		return "The task's result could not be stored: " + full.Error()
	}
	var large *capacity.TooLargeError
	if errors.Is(err, capacity.ErrFull) || errors.As(err, &large) || errors.As(err, &exhausted) || errors.As(err, &late) || errors.As(err, &cut) || errors.As(err, &upstream) || errors.As(err, &invalid) || errors.As(err, &absent) || errors.Is(err, agent.ErrTooManySteps) {
		return err.Error()
	}
	if errors.As(err, &away) {
		return "The conversation can be neither read nor kept at the moment."
	}
	return "The agent met an internal error."
}
