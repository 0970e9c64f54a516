package app

import (
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/runner"
)

// checkpointOptions returns what c asks of the runner.
func checkpointOptions(c config.Checkpoint) runner.Options {
	forbids := func(may *bool) bool { return may != nil && !*may }
	human := c.Recovery.AutoResumeHITL
	if human == nil {
		human = c.Recovery.AutoResume
	}
	o := runner.Options{Recovery: runner.RecoveryPolicy{NeverAfterMessage: forbids(c.Recovery.AutoResume), NeverAfterHuman: forbids(human)}}
	if !c.Enabled {
		return o
	}
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
