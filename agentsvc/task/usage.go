package task

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// UsageMeter makes the usage rows of billing from what runs write to the logs of their tasks. The rows are not fenced by
// the lease: usage that was spent counts even if the run lost its task.
type UsageMeter interface {
	// CountUsage adds the usage rows to b, the transaction of the facts. It may be called again for the same facts, when
	// the transaction is retried.
	CountUsage(b *db.Batch, facts RunFacts)
	// WriteUsage writes the usage rows in a transaction of their own, where the log's cannot contain them.
	WriteUsage(ctx context.Context, facts RunFacts) error
}

// RunFacts is what a run has done in one record.
type RunFacts struct {
	Run    *store.Run
	Events []agentsvc.Event
	Worked time.Duration // how long the run executed; only where it is over, else 0
	Ended  bool          // the turn is over as well: the run is not retried
}

// newUsageRows returns the statements that insert rec's usage rows in its transaction, nil if there are none.
func (r *Recorder) newUsageRows(rec store.Record) *db.Batch {
	if r.shared.usageMeter == nil || r.shared.writeUsageSeparately {
		return nil
	}
	var b db.Batch
	r.shared.usageMeter.CountUsage(&b, r.newRunFacts(rec))
	return &b
}

// newRunFacts returns what the run has done in rec.
func (r *Recorder) newRunFacts(rec store.Record) RunFacts {
	facts := RunFacts{Run: r.run, Events: rec.Events}
	if rec.EndState != "" {
		facts.Worked, facts.Ended = max(time.Since(r.startedAt), time.Microsecond), rec.EndState != store.Pending
	}
	return facts
}

// writeUsageSeparately writes the usage rows of rec, which is committed, to another database.
func (r *Recorder) writeUsageSeparately(ctx context.Context, rec store.Record) {
	if r.shared.usageMeter != nil && r.shared.writeUsageSeparately {
		r.writeUsage(ctx, r.newRunFacts(rec))
	}
}

// WriteUnrecordedUsage writes the usage rows of the facts that a finished run could not write to its log, and of the
// run's execution time if its end was not recorded either.
func (r *Recorder) WriteUnrecordedUsage(ctx context.Context, unwritten []agentsvc.Event) {
	if r.shared.usageMeter == nil || r.ended && len(unwritten) == 0 {
		return
	}
	facts := RunFacts{Run: r.run, Events: unwritten}
	if !r.ended {
		facts.Worked = max(time.Since(r.startedAt), time.Microsecond)
	}
	r.writeUsage(ctx, facts)
}

// writeUsage writes usage rows outside the log's transaction. A failure is logged only: the run is over.
func (r *Recorder) writeUsage(ctx context.Context, facts RunFacts) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTimeout)
	defer cancel()
	if err := r.shared.usageMeter.WriteUsage(ctx, facts); err != nil {
		r.shared.log.Error("the usage of a run could not be recorded", "task", r.run.Task, "error", err)
	}
}

// usageTimeout bounds one write outside the log's transaction.
const usageTimeout = 5 * time.Second
