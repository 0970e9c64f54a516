package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// CheckpointPolicy chooses the restore points of a turn (docs/checkpoints.md). Where Enabled, the start of each run
// is one; the other fields add places between the steps of a turn. The zero value writes none.
type CheckpointPolicy struct {
	Enabled bool
	// AfterTools adds a checkpoint when all tools of a round have answered, BeforeLLM one before each model call.
	AfterTools bool
	BeforeLLM  bool
	// Interval adds a checkpoint before each Interval-th model call of an agent; 0 = none.
	Interval int
}

// selectCheckpoint returns the checkpoint to write for a place that the agent reached, or nil if the policy does not
// keep it.
func (p CheckpointPolicy) selectCheckpoint(c agentsvc.Checkpoint) *agentsvc.Checkpoint {
	switch {
	case !p.Enabled:
		return nil
	case p.BeforeLLM && c.Reason == agentsvc.BeforeLLM, p.AfterTools && c.Reason == agentsvc.AfterTools:
		return &c
	case p.Interval > 0 && c.Reason == agentsvc.BeforeLLM && c.Step > 0 && c.Step%p.Interval == 0:
		c.Reason = agentsvc.AtInterval
		return &c
	}
	return nil
}

// hasStepCheckpoints reports whether o writes checkpoints that may directly follow a tool result.
func (p CheckpointPolicy) hasStepCheckpoints() bool {
	return p.Enabled && (p.AfterTools || p.BeforeLLM || p.Interval > 0)
}

// addCheckpoint adds a checkpoint that the agent reached to pending, if the policy keeps it. Before a model call
// everything pending is written in one transaction: the call takes long and the process may die in it. Before the
// first call of a turn that is not done, because nothing but the start checkpoint is pending then, and it is written
// with the first fact. A long turn waits there for its next call, see [NewCallPace].
func (exe *execution) addCheckpoint(ctx context.Context, ev agentsvc.Event) error {
	calls := ev.Checkpoint.Reason == agentsvc.BeforeLLM
	if calls {
		exe.modelCalls++
	}
	if pace := exe.options.CallPace; pace != nil && calls && exe.modelCalls > unpacedCalls {
		if err := pace.Wait(ctx); err != nil {
			<-ctx.Done() // the wait ended with ctx, or would not end before it
			return context.Cause(ctx)
		}
	}
	if ev.Checkpoint = exe.options.Checkpoints.selectCheckpoint(*ev.Checkpoint); ev.Checkpoint != nil {
		exe.pending = append(exe.pending, ev)
	}
	if calls && exe.recorded {
		return exe.flushPending(ctx)
	}
	return nil
}

// flushPending writes the pending facts, within the stop grace if the run is being stopped: a tool result among them
// records an effect that cannot be repeated. Pending usage alone causes no commit: it is written with the next
// fact, or passed on by reportUnwritten.
func (exe *execution) flushPending(ctx context.Context) error {
	if !slices.ContainsFunc(exe.pending, func(ev agentsvc.Event) bool { return ev.Usage == nil }) {
		return nil
	}
	ctx, cancel := exe.recorder.WithStopGrace(ctx)
	defer cancel()
	return exe.writeRecord(ctx, store.Record{Events: exe.pending})
}

// RecoveryPolicy chooses which runs that were cut off, because their process stopped in the middle of an attempt,
// continue. The others fail. The zero value continues all.
type RecoveryPolicy struct {
	// NeverAfterMessage applies to runs of a task's first turn, NeverAfterHuman to runs of later turns, which began
	// with a human's decision or answer.
	NeverAfterMessage bool
	NeverAfterHuman   bool
	// MaxAge bounds the time since the last recorded fact of the turn; 0 = no bound.
	MaxAge time.Duration
}

// checkRecovery returns a [cutOffError] if run was cut off and may not continue, else nil. last is the time
// of the turn's last fact, zero if there is none.
func (r RecoveryPolicy) checkRecovery(run store.Run, last time.Time) error {
	never := r.NeverAfterMessage
	if run.Turn > 1 {
		never = r.NeverAfterHuman
	}
	age := time.Since(last)
	switch {
	case !run.WasCutOff:
		return nil
	case never:
		return &cutOffError{"its app does not allow interrupted tasks to continue"}
	case r.MaxAge > 0 && !last.IsZero() && age > r.MaxAge:
		return &cutOffError{fmt.Sprintf("its last step was %v ago, and its app allows interrupted tasks to continue for %v", age.Round(time.Second), r.MaxAge)}
	}
	return nil
}

// cutOffError reports why a run that was cut off does not continue. Callers may read its text.
type cutOffError struct {
	reason string
}

func (e *cutOffError) Error() string {
	return "The server stopped in the middle of the task, and " + e.reason + "."
}
