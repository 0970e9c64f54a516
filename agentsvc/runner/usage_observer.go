package runner

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// UsageUpdate reports what a run has used of its models, as of the record that was just written.
type UsageUpdate struct {
	// Tokens are input and output tokens since the previous update of this run.
	Tokens int64
	// TurnTokens is the sum of the whole turn, earlier attempts included.
	TurnTokens int64
	// First is set on the first update of the turn: its reservation is to be settled now.
	First bool
	// Ended is set when the run has ended and is not retried.
	Ended bool
}

// UsageObserver receives updates after each record that contains usage, at the run's end, and for usage that was not
// recorded when the run stopped. An update is sent at most once for a record: a process that dies between commit and
// call sends none.
type UsageObserver func(ctx context.Context, run store.Run, s UsageUpdate)

// ObserveUsage sets the usage observer. It must be called before the first Run.
func (r *Runner) ObserveUsage(f UsageObserver) { r.usageObserver = f }

// reportUsage sends the update of rec, which is committed. A record without usage sends none unless it ends the run.
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

// countTokens returns input plus output tokens. Cached and reasoning tokens are part of these (see [agentsvc.Usage]).
func countTokens(u agentsvc.Usage) int64 { return u.InputTokens + u.OutputTokens }
