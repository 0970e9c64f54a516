package task

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// Recorder writes the log of one run. It is not safe for concurrent use.
type Recorder struct {
	s       *Service
	run     *store.Run
	release func()
	began   time.Time
	over    bool // the end of the run is on record
}

// Recorder returns the writer for run, which stands at the run's sequence. Close it when the run is over.
func (s *Service) Recorder(run *store.Run) *Recorder {
	return &Recorder{s: s, run: run, release: s.hub.hold(s.key(run.Task)), began: time.Now()}
}

// Begin takes the lease of a run that was claimed from the queue. It returns [agentsvc.ErrLost] if the task no longer
// waits for it, or waited for somebody for too long.
func (r *Recorder) Begin(ctx context.Context) error {
	evs, err := r.s.store.Begin(ctx, r.run)
	switch {
	case err == nil:
		r.s.hub.publish(r.s.key(r.run.Task), evs...)
	case errors.Is(err, store.ErrWaiting):
		return r.s.expire(ctx, *r.run)
	}
	return err
}

// Running says that a tool call is under way, which stop ends, until over is called.
func (r *Recorder) Running(call agentsvc.CallID, stop context.CancelCauseFunc) (over func()) {
	return r.s.hub.running(r.s.key(r.run.Task), call, stop)
}

// Journal reads the facts of the run's turn so far.
func (r *Recorder) Journal(ctx context.Context) ([]agentsvc.Event, error) {
	return r.s.store.Journal(ctx, *r.run)
}

// Session reads the conversation that the run continues.
func (r *Recorder) Session(ctx context.Context) (agentsvc.Session, error) {
	if r.run.Fresh {
		return agentsvc.Session{Context: r.run.Context}, nil
	}
	return r.s.store.Before(ctx, *r.run)
}

// Chunk shows readers a piece of a message that is being written. It is kept nowhere.
func (r *Recorder) Chunk(c agentsvc.Chunk) {
	c.After = r.run.Seq
	r.s.hub.publish(r.s.key(r.run.Task), agentsvc.Event{Task: r.run.Task, Chunk: &c})
}

// Record appends facts, in one transaction with the run's end if rec has one. It returns [agentsvc.ErrLost] if the
// lease is somebody else's by now: then nothing was written and the run must stop. A [*store.AwayError] may pass.
func (r *Recorder) Record(ctx context.Context, rec store.Record) error {
	for i, ev := range rec.Events {
		rec.Events[i] = stamp(r.run.Task, r.run.Seq+1+int64(i), ev)
	}
	rec.Beside = r.beside(rec)
	if err := r.s.store.Record(ctx, r.run, rec); err != nil {
		return err
	}
	r.over = r.over || rec.End != ""
	r.apart(ctx, rec)
	r.s.hub.publish(r.s.key(r.run.Task), rec.Events...)
	if r.run.Followed && rec.End != store.Pending {
		r.s.callUp(ctx, r.run.Owner, r.run.Context)
	}
	return nil
}

// stopping is how long a fact may still be written after its run was told to stop: less than the grace that a process
// gives its runs when it stops.
const stopping = 2 * time.Second

// Linger returns a context that outlives ctx for as long as a fact of a run that is told to stop may still be written:
// one that says what has happened and cannot happen again. It ends with ctx where the run has lost its lease.
func (r *Recorder) Linger(ctx context.Context) (context.Context, context.CancelFunc) {
	lost := func() bool { return errors.Is(context.Cause(ctx), agentsvc.ErrLost) }
	if lost() {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !lost() {
			select {
			case <-time.After(stopping):
			case <-longer.Done():
			}
		}
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// Close lets readers know that this process no longer writes.
func (r *Recorder) Close() { r.release() }
