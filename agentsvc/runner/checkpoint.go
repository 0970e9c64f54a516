package runner

import (
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// Checkpoints says which places between the steps of a turn are kept on its log, beside the beginning of each run, as
// points that the task can be restored to.
type Checkpoints struct {
	Enabled    bool
	AfterTools bool
	BeforeLLM  bool
	Interval   int // model calls, 0 = never
}

// keeps returns c as it is to be kept, nil if it is not.
func (o Checkpoints) keeps(c agentsvc.Checkpoint) *agentsvc.Checkpoint {
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

// checkpoint keeps a place that the agent has reached, if it is one to keep. It costs no write of its own.
func (t *turn) checkpoint(ev agentsvc.Event) {
	if ev.Checkpoint = t.o.Checkpoints.keeps(*ev.Checkpoint); ev.Checkpoint != nil {
		t.pending = append(t.pending, ev)
	}
}

// Recovery says which runs go on in the middle of which their process stopped. The others fail.
type Recovery struct {
	Never      bool          // none that began with a message
	NeverHuman bool          // none that went on after a human's decision or answer
	MaxAge     time.Duration // of the last step, 0 = any
}

// allows returns a [cutOffError] if run, whose last step was made at last, may not go on.
func (r Recovery) allows(run store.Run, last time.Time) error {
	never := r.Never
	if run.Turn > 1 {
		never = r.NeverHuman
	}
	age := time.Since(last)
	switch {
	case !run.CutOff:
		return nil
	case never:
		return &cutOffError{"its app does not let such tasks go on"}
	case r.MaxAge > 0 && !last.IsZero() && age > r.MaxAge:
		return &cutOffError{fmt.Sprintf("its last step was made %v ago, and its app lets tasks go on for %v", age.Round(time.Second), r.MaxAge)}
	}
	return nil
}

// cutOffError says why a run in the middle of which its process stopped does not go on.
type cutOffError struct {
	why string
}

func (e *cutOffError) Error() string {
	return "The server stopped in the middle of the task, and " + e.why + "."
}
