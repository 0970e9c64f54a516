package runner

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// UsageUpdate reports what a run has used of its models, as of the record that was just written.
type UsageUpdate struct {
	// Tokens are input and output tokens since the previous update of this run.
	Tokens int64
	// TurnTokens is the sum of the whole turn, earlier attempts included.
	TurnTokens int64
	// First is set on the first update of the turn: its reservation from the token limits is to be settled now.
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

// usageReport reports the usage of one run. Only tracker is used by several goroutines.
type usageReport struct {
	// observer may be nil.
	observer UsageObserver
	tracker  usageTracker
	// unwritten is usage whose record was lost with the log or the lease.
	unwritten []agentsvc.Event
	// limitSettled reports that an update of this turn was sent before, so that the turn's reservation from the token
	// limits is already settled.
	limitSettled bool
}

// reportRecord sends the update of rec, which is committed; turn is the usage of the whole turn. A record without usage
// sends none unless it ends the run.
func (r *usageReport) reportRecord(ctx context.Context, run store.Run, rec store.Record, turn agentsvc.Usage) {
	if r.observer == nil {
		return
	}
	s := UsageUpdate{TurnTokens: countTokens(turn), First: !r.limitSettled, Ended: rec.EndState != "" && rec.EndState != store.Pending}
	for _, ev := range rec.Events {
		if ev.Usage != nil {
			s.Tokens += countTokens(*ev.Usage)
		}
	}
	if s.Tokens == 0 && !s.Ended {
		return
	}
	r.limitSettled = true
	r.observer(ctx, run, s)
}

// reportUnwritten writes and reports usage that is not on the log, when the run is over: what was lost, what is in
// pending, and what the agent has not yielded. Usage is insert-only and not fenced by the epoch: the tokens were spent
// even if the run has lost its lease.
func (r *usageReport) reportUnwritten(ctx context.Context, run store.Run, recorder *task.Recorder, pending []agentsvc.Event) {
	evs := slices.Concat(r.unwritten, filterUsage(pending), r.tracker.unreportedEvents())
	recorder.WriteUnrecordedUsage(ctx, evs)
	var s UsageUpdate
	for _, ev := range evs {
		s.Tokens += countTokens(*ev.Usage)
	}
	if r.observer != nil && s.Tokens > 0 {
		r.observer(ctx, run, s)
	}
}

// countTokens returns input plus output tokens. Cached and reasoning tokens are part of these (see [agentsvc.Usage]).
func countTokens(u agentsvc.Usage) int64 { return u.InputTokens + u.OutputTokens }
