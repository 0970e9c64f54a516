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
	// Observe adds to b what is to be written in the transaction of what it is told. It may be told the same again.
	Observe(b *db.Batch, o Observed)
	// Write writes by itself what it is told: where no transaction of the log takes it along.
	Write(ctx context.Context, o Observed) error
}

// Observed is what a run has done.
type Observed struct {
	Run    *store.Run
	Events []agentsvc.Event
	Worked time.Duration // where the run is over, how long it was at work
	Ended  bool          // and so is its turn
}

// beside is what an observer has to write beside rec.
func (r *Recorder) beside(rec store.Record) *db.Batch {
	if r.s.o.Observer == nil || r.s.o.Apart {
		return nil
	}
	var b db.Batch
	r.s.o.Observer.Observe(&b, r.observed(rec))
	return &b
}

// observed is what rec does.
func (r *Recorder) observed(rec store.Record) Observed {
	o := Observed{Run: r.run, Events: rec.Events}
	if rec.End != "" {
		o.Worked, o.Ended = max(time.Since(r.began), time.Microsecond), rec.End != store.Pending
	}
	return o
}

// apart tells an observer of rec, which is written, where the transaction of the log could not take that along.
func (r *Recorder) apart(ctx context.Context, rec store.Record) {
	if r.s.o.Observer != nil && r.s.o.Apart {
		r.tell(ctx, r.observed(rec))
	}
}

// Leave tells an observer of the facts that a run which is over could not put on the log.
func (r *Recorder) Leave(ctx context.Context, facts []agentsvc.Event) {
	if r.s.o.Observer == nil || r.over && len(facts) == 0 {
		return
	}
	o := Observed{Run: r.run, Events: facts}
	if !r.over {
		o.Worked = max(time.Since(r.began), time.Microsecond)
	}
	r.tell(ctx, o)
}

func (r *Recorder) tell(ctx context.Context, o Observed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), telling)
	defer cancel()
	if err := r.s.o.Observer.Write(ctx, o); err != nil {
		r.s.log.Error("what a run has used could not be written down", "task", r.run.Task, "error", err)
	}
}

// telling bounds how long an observer may take to write by itself.
const telling = 5 * time.Second
