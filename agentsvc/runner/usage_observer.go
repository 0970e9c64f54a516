package runner

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// UsageUpdate is what a run has used of its models, as it stands on the log.
type UsageUpdate struct {
	Tokens     int64 // since it was told last
	TurnTokens int64 // tokens of the whole turn so far, earlier attempts included
	First      bool  // nothing of this run was told before: what was reserved for it is to be given back
	Ended      bool  // the run has ended, and is not tried again
}

// UsageObserver is told of what a run has used, after each fact on the log that says so and at its end, and of what it had used when
// it was stopped. The log is written once, whoever writes it, so it is told once; a process that dies between the two
// tells nothing.
type UsageObserver func(ctx context.Context, run store.Run, s UsageUpdate)

// ObserveUsage has the runner tell f what runs use. It is called before the first.
func (r *Runner) ObserveUsage(f UsageObserver) { r.usageObserver = f }

// reportUsage tells of rec, which is on the log.
func (t *execution) reportUsage(ctx context.Context, rec store.Record) {
	if t.usageObserver == nil {
		return
	}
	s := UsageUpdate{TurnTokens: countTokens(t.usage), First: !t.usageReported, Ended: rec.EndState != "" && rec.EndState != store.Pending}
	for _, ev := range rec.Events {
		if ev.Usage != nil {
			s.Tokens += countTokens(*ev.Usage)
		}
	}
	if s.Tokens == 0 && !s.Ended {
		return
	}
	t.usageReported = true
	t.usageObserver(ctx, *t.run, s)
}

func countTokens(u agentsvc.Usage) int64 { return u.InputTokens + u.OutputTokens }
