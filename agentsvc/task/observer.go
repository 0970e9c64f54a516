package task

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Observer records what runs write to the logs of their tasks; the billing ledger is one. What it records is not
// fenced by the lease: usage that was spent counts even if the run lost its task.
type Observer interface {
	// AppendObservation adds the observer's rows to b, the transaction of the facts in o. It may be called again for
	// the same facts, when the transaction is retried.
	AppendObservation(b *db.Batch, o Observation)
	// WriteObservation writes the observer's rows in a transaction of its own, where the log's cannot contain them.
	WriteObservation(ctx context.Context, o Observation) error
}

// Observation is what a run has done in one record.
type Observation struct {
	Run    *store.Run
	Events []agentsvc.Event
	Worked time.Duration // how long the run executed; only where it is over, else 0
	Ended  bool          // the turn is over as well: the run is not retried
}

// newObserverBatch returns the observer's statements for rec's transaction, nil if there are none.
func (r *Recorder) newObserverBatch(rec store.Record) *db.Batch {
	if r.shared.observer == nil || r.shared.observeSeparately {
		return nil
	}
	var b db.Batch
	r.shared.observer.AppendObservation(&b, r.newObservation(rec))
	return &b
}

// newObservation returns the observation of rec.
func (r *Recorder) newObservation(rec store.Record) Observation {
	o := Observation{Run: r.run, Events: rec.Events}
	if rec.EndState != "" {
		o.Worked, o.Ended = max(time.Since(r.startedAt), time.Microsecond), rec.EndState != store.Pending
	}
	return o
}

// observeSeparately passes rec, which is committed, to an observer in another database.
func (r *Recorder) observeSeparately(ctx context.Context, rec store.Record) {
	if r.shared.observer != nil && r.shared.observeSeparately {
		r.writeObservation(ctx, r.newObservation(rec))
	}
}

// ObserveUnrecorded passes the facts that a finished run could not write to its log to the observer, and the run's
// execution time if its end was not recorded either.
func (r *Recorder) ObserveUnrecorded(ctx context.Context, facts []agentsvc.Event) {
	if r.shared.observer == nil || r.ended && len(facts) == 0 {
		return
	}
	o := Observation{Run: r.run, Events: facts}
	if !r.ended {
		o.Worked = max(time.Since(r.startedAt), time.Microsecond)
	}
	r.writeObservation(ctx, o)
}

// writeObservation writes an observation outside the log's transaction. A failure is logged only: the run is over.
func (r *Recorder) writeObservation(ctx context.Context, o Observation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observerTimeout)
	defer cancel()
	if err := r.shared.observer.WriteObservation(ctx, o); err != nil {
		r.shared.log.Error("the usage of a run could not be recorded", "task", r.run.Task, "error", err)
	}
}

// observerTimeout bounds one write outside the log's transaction.
const observerTimeout = 5 * time.Second
