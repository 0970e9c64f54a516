package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// CheckpointPolicy says which places between the steps of a turn are kept on its log, beside the beginning of each run, as
// points that the task can be restored to.
type CheckpointPolicy struct {
	Enabled    bool
	AfterTools bool
	BeforeLLM  bool
	Interval   int // model calls, 0 = never
}

// selectCheckpoint returns c as it is to be kept, nil if it is not.
func (o CheckpointPolicy) selectCheckpoint(c agentsvc.Checkpoint) *agentsvc.Checkpoint {
	switch {
	case !o.Enabled:
		return nil
	case o.BeforeLLM && c.Reason == agentsvc.BeforeLLM, o.AfterTools && c.Reason == agentsvc.AfterTools:
		return &c
	case o.Interval > 0 && c.Reason == agentsvc.BeforeLLM && c.Step > 0 && c.Step%o.Interval == 0:
		c.Reason = agentsvc.AtInterval
		return &c
	}
	return nil
}

// hasStepCheckpoints reports whether o keeps places that follow the results of tools.
func (o CheckpointPolicy) hasStepCheckpoints() bool {
	return o.Enabled && (o.AfterTools || o.BeforeLLM || o.Interval > 0)
}

// addCheckpoint keeps a place that the agent has reached, if it is one to keep. Before a model is called, which takes its time and
// may be the process's last act, what is held back and the places behind it are written, in one transaction.
func (t *execution) addCheckpoint(ctx context.Context, ev agentsvc.Event) error {
	calls := ev.Checkpoint.Reason == agentsvc.BeforeLLM
	if ev.Checkpoint = t.options.Checkpoints.selectCheckpoint(*ev.Checkpoint); ev.Checkpoint != nil {
		t.pending = append(t.pending, ev)
	}
	if calls && t.recorded {
		return t.flushPending(ctx)
	}
	return nil
}

// completesToolRound reports whether ev is the last result that the agent's model waits for, so that what the agent says next follows at
// once: the places behind the result are written with it.
func (t *execution) completesToolRound(ev agentsvc.Event) bool {
	if ev.Result == nil || !t.options.Checkpoints.hasStepCheckpoints() {
		return false
	}
	entries := t.entries
	if ev.Frame != "" {
		entries = t.frames[ev.Frame]
	}
	answered := map[agentsvc.CallID]bool{}
	for _, e := range slices.Backward(entries) {
		switch {
		case e.Result != nil:
			answered[e.Result.Call] = true
		case e.Message != nil:
			return len(e.Message.ToolCalls) > 0 && !slices.ContainsFunc(e.Message.ToolCalls, func(c agentsvc.ToolCall) bool { return !answered[c.ID] })
		}
	}
	return false
}

// flushPending writes what waits, also as the run is stopped: what a tool did is done, and without its result nobody could tell.
func (t *execution) flushPending(ctx context.Context) error {
	if !slices.ContainsFunc(t.pending, func(ev agentsvc.Event) bool { return ev.Usage == nil }) {
		return nil
	}
	ctx, cancel := t.recorder.WithStopGrace(ctx)
	defer cancel()
	return t.writeRecord(ctx, store.Record{Events: t.pending})
}

// RecoveryPolicy says which runs go on in the middle of which their process stopped. The others fail.
type RecoveryPolicy struct {
	NeverAfterMessage bool          // none that began with a message
	NeverAfterHuman   bool          // none that went on after a human's decision or answer
	MaxAge            time.Duration // of the last step, 0 = any
}

// checkRecovery returns a [interruptedError] if run, whose last step was made at last, may not go on.
func (r RecoveryPolicy) checkRecovery(run store.Run, last time.Time) error {
	never := r.NeverAfterMessage
	if run.Turn > 1 {
		never = r.NeverAfterHuman
	}
	age := time.Since(last)
	switch {
	case !run.WasInterrupted:
		return nil
	case never:
		return &interruptedError{"its app does not let such tasks go on"}
	case r.MaxAge > 0 && !last.IsZero() && age > r.MaxAge:
		return &interruptedError{fmt.Sprintf("its last step was made %v ago, and its app lets tasks go on for %v", age.Round(time.Second), r.MaxAge)}
	}
	return nil
}

// interruptedError says why a run in the middle of which its process stopped does not go on.
type interruptedError struct {
	reason string
}

func (e *interruptedError) Error() string {
	return "The server stopped in the middle of the task, and " + e.reason + "."
}
