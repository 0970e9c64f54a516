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
	tasks  *task.Service
	agents map[string]agent.Agent
	retry  queue.Retry
	log    *slog.Logger
	o      Options
	tell   Ended
	spend  Spend
}

// LongestRun is how long one execution of a turn may take where nothing else is said. A task that waits for a human does not
// run.
const LongestRun = 30 * time.Minute

// Options tune a [Runner]. The zero value makes no checkpoints and lets every run go on after its process died.
type Options struct {
	// Longest bounds one execution of a turn; [LongestRun] if zero. A run that takes longer fails, and is not tried again.
	Longest time.Duration
	// Memory is where runs take what they have in memory from: what they read, and the answers of their models; nil = without bound.
	Memory      *capacity.Pool
	Checkpoints Checkpoints
	Recovery    Recovery
	// Ended is told of each attempt whose end is on the log: the state that it has brought its task to, "" where the run
	// will be tried again, and how long it took.
	Ended func(ctx context.Context, run store.Run, state agentsvc.State, took time.Duration)
}

// Ended is told of a turn that has added to its session, and what; of one that ended rejected it is not. The end is on
// the log and its readers know of it, so only the worker waits.
type Ended func(ctx context.Context, run store.Run, said []agentsvc.Entry)

// Tell has the runner tell f of such turns. It is called before the first.
func (r *Runner) Tell(f Ended) { r.tell = f }

// New returns a runner for agents by name. Runs that met an error which may pass are tried again as retry says.
func New(tasks *task.Service, agents map[string]agent.Agent, retry queue.Retry, log *slog.Logger, o Options) *Runner {
	o.Longest = cmp.Or(o.Longest, LongestRun)
	return &Runner{tasks: tasks, agents: agents, retry: retry, log: log, o: o}
}

// Run runs one turn to its end and records it. It returns [agentsvc.ErrLost] if somebody else took the task, and any
// other error if no end could be recorded: then the run is to be tried again.
func (r *Runner) Run(ctx context.Context, run store.Run) error {
	rec := r.tasks.Recorder(&run)
	defer rec.Close()
	memory := r.o.Memory.Hold(run.Tenant, 1)
	defer memory.Release()
	within := capacity.With(ctx, memory)
	if run.Epoch == 0 {
		if err := rec.Begin(within); err != nil {
			return err
		}
	}
	t := &turn{Runner: r, rec: rec, run: &run, memory: memory, began: time.Now()}
	within = agentsvc.WithSession(within, agentsvc.SessionKey{Owner: run.Owner, Context: run.Context})
	within = agentsvc.WithSpending(agentsvc.WithFindings(within, t.found.tell), &agentsvc.Spending{
		Task: run.Task, Epoch: run.Epoch, Agent: run.Agent, Owner: run.Owner, Tell: t.uses.tell,
	})
	defer t.leave(ctx)
	err := t.do(within)
	if t.held { // the agent was stopped between a tool's result and what it does with it
		if lost := t.flush(ctx); lost != nil {
			err = lost
		}
	}
	if err == nil {
		if r.tell != nil && len(t.kept) > 0 && !t.refused {
			r.tell(ctx, run, t.kept)
		}
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, errNotRecorded) || errors.Is(err, agentsvc.ErrLost) {
		return err
	}
	var exhausted *agentsvc.ExhaustedError
	if errors.As(err, &exhausted) && exhausted.Pauses {
		return t.await(ctx, exhausted)
	}
	return t.fail(ctx, err)
}

// errNotRecorded marks an error of the log itself: there is nowhere to write the failure either.
var errNotRecorded = errors.New("the log cannot be written")

// unrecorded is err of the log. Of a database that only sessions are in, of memory that was not free for what the log holds, and of
// an app that stores as much as it may, the log can tell: the end of a run is always written.
func unrecorded(err error) error {
	var away *store.AwayError
	var large *capacity.TooLargeError
	var full *agentsvc.StoredError
	if errors.As(err, &away) || errors.As(err, &full) || errors.As(err, &large) || errors.Is(err, capacity.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", errNotRecorded, err)
}

// do runs the turn. A panic of an agent is an error of its turn.
func (t *turn) do(ctx context.Context) (err error) {
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
	inv, err := t.load(ctx)
	if err != nil {
		return err
	}
	if err := t.o.Recovery.allows(*t.run, t.last); err != nil {
		return err
	}
	late := &lateError{t.o.Longest}
	within, cancel := context.WithTimeoutCause(ctx, t.o.Longest, late)
	defer cancel()
	for ev, err := range a.Run(within, inv) { // what it says is written within ctx: facts outlive the time of their run
		if err == nil {
			err = t.take(ctx, ev)
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

// fail records the end of a turn that met err: as failed, or where err may pass and tries remain as pending.
func (t *turn) fail(ctx context.Context, err error) error {
	t.gather()
	t.log.WarnContext(ctx, "a run failed", "agent", t.run.Agent, "task", t.run.Task, "attempt", t.run.Attempts, "error", err)
	if after, passes := mayPass(err); passes {
		if delay, ok := t.retry.Next(t.run.Attempts); ok {
			delay = max(delay, min(after, t.retry.Limit))
			return t.write(ctx, store.Record{Events: t.pending, End: store.Pending, Delay: delay, Error: err.Error()})
		}
	}
	msg := t.message(reason(err))
	t.pending = append(t.pending, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Failed, Message: &msg}})
	return t.write(ctx, store.Record{Events: t.pending, End: store.Failed, Error: err.Error()})
}

// lateError says that a turn's execution took longer than it may.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("The task ran for longer than %v, which is as long as one may, and was stopped.", e.limit)
}

// mayPass reports whether what err tells of may pass, and how long that takes at least.
func mayPass(err error) (after time.Duration, ok bool) {
	var upstream *llm.Error
	if errors.As(err, &upstream) {
		return upstream.RetryAfter, upstream.Retryable
	}
	var away *store.AwayError
	return 0, errors.As(err, &away) || errors.Is(err, capacity.ErrFull)
}

// reason is what a caller may read of err.
func reason(err error) string {
	var upstream *llm.Error
	var invalid *agentsvc.InvalidError
	var absent *tool.UnavailableError
	var away *store.AwayError
	var cut *cutOffError
	var exhausted *agentsvc.ExhaustedError
	var late *lateError
	var full *agentsvc.StoredError
	if errors.As(err, &full) {
		return "The task's result could not be stored: " + full.Error()
	}
	var large *capacity.TooLargeError
	if errors.Is(err, capacity.ErrFull) || errors.As(err, &large) || errors.As(err, &exhausted) || errors.As(err, &late) || errors.As(err, &cut) || errors.As(err, &upstream) || errors.As(err, &invalid) || errors.As(err, &absent) || errors.Is(err, agent.ErrTooLong) {
		return err.Error()
	}
	if errors.As(err, &away) {
		return "The conversation can be neither read nor kept at the moment."
	}
	return "The agent met an internal error."
}
