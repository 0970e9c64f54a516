package task

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Observer is told what a run puts on the log of its task, and what it could not put there any more.
type Observer interface {
	// AppendObservation adds to b what is to be written in the transaction of what it is told. It may be told the same again.
	AppendObservation(b *db.Batch, o Observation)
	// WriteObservation writes by itself what it is told: where no transaction of the log takes it along.
	WriteObservation(ctx context.Context, o Observation) error
}

// Observation is what a run has done.
type Observation struct {
	Run    *store.Run
	Events []agentsvc.Event
	Worked time.Duration // where the run is over, how long it was at work
	Ended  bool          // and so is its turn
}

// newObserverBatch is what an observer has to write beside rec.
func (r *Recorder) newObserverBatch(rec store.Record) *db.Batch {
	if r.service.options.Observer == nil || r.service.options.ObserveSeparately {
		return nil
	}
	var b db.Batch
	r.service.options.Observer.AppendObservation(&b, r.newObservation(rec))
	return &b
}

// newObservation is what rec does.
func (r *Recorder) newObservation(rec store.Record) Observation {
	o := Observation{Run: r.run, Events: rec.Events}
	if rec.EndState != "" {
		o.Worked, o.Ended = max(time.Since(r.startedAt), time.Microsecond), rec.EndState != store.Pending
	}
	return o
}

// observeSeparately tells an observer of rec, which is written, where the transaction of the log could not take that along.
func (r *Recorder) observeSeparately(ctx context.Context, rec store.Record) {
	if r.service.options.Observer != nil && r.service.options.ObserveSeparately {
		r.writeObservation(ctx, r.newObservation(rec))
	}
}

// ObserveUnrecorded tells an observer of the facts that a run which is over could not put on the log.
func (r *Recorder) ObserveUnrecorded(ctx context.Context, facts []agentsvc.Event) {
	if r.service.options.Observer == nil || r.ended && len(facts) == 0 {
		return
	}
	o := Observation{Run: r.run, Events: facts}
	if !r.ended {
		o.Worked = max(time.Since(r.startedAt), time.Microsecond)
	}
	r.writeObservation(ctx, o)
}

func (r *Recorder) writeObservation(ctx context.Context, o Observation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observerTimeout)
	defer cancel()
	if err := r.service.options.Observer.WriteObservation(ctx, o); err != nil {
		r.service.log.Error("what a run has used could not be written down", "task", r.run.Task, "error", err)
	}
}

// observerTimeout bounds how long an observer may take to write by itself.
const observerTimeout = 5 * time.Second
