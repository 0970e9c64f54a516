package runtime

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/store"
)

// checkpointOptions returns the runner's options for the checkpoint settings. Recovery rules hold even if checkpoints
// are disabled. Without a setting of its own, a turn that follows a human's decision is resumed by the same rule as any
// other.
func checkpointOptions(c config.Checkpoint) runner.Options {
	// A missing setting allows.
	forbids := func(may *bool) bool { return may != nil && !*may }
	human := c.Recovery.AutoResumeHITL
	if human == nil {
		human = c.Recovery.AutoResume
	}
	o := runner.Options{Recovery: runner.RecoveryPolicy{NeverAfterMessage: forbids(c.Recovery.AutoResume), NeverAfterHuman: forbids(human)}}
	// Without checkpoints the age of an interrupted turn is not limited.
	if !c.Enabled {
		return o
	}
	// The strategies are event, interval and hybrid, which has both.
	o.Recovery.MaxAge = time.Duration(c.Recovery.Timeout) * time.Second
	o.Checkpoints = runner.CheckpointPolicy{Enabled: true}
	if c.Strategy != "interval" {
		o.Checkpoints.AfterTools, o.Checkpoints.BeforeLLM = c.AfterTools, c.BeforeLLM
	}
	if c.Strategy != "event" {
		o.Checkpoints.Interval = c.Interval
	}
	return o
}

// runnerOptions returns the runner's options: the checkpoint settings and the process's bounds and metrics.
func (b *build) runnerOptions(h Dependencies) runner.Options {
	o := checkpointOptions(b.cfg.Storage.Checkpoint)
	o.MaxDuration, o.Memory, o.CallPace = h.MaxRunTime, h.Memory, runner.NewCallPace()
	if ended := h.Instrumentation.OnRunEnded; ended != nil {
		o.OnAttemptEnd = func(ctx context.Context, run store.Run, state agentsvc.State, took time.Duration) {
			ended(ctx, b.tenant.Name, run, state, took)
		}
	}
	return o
}
