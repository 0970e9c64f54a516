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
	service      *Service
	run          *store.Run
	removeWriter func()
	startedAt    time.Time
	ended        bool // the end of the run is on record
}

// NewRecorder returns the writer for run, which stands at the run's sequence. Close it when the run is over.
func (s *Service) NewRecorder(run *store.Run) *Recorder {
	return &Recorder{service: s, run: run, removeWriter: s.hub.addWriter(s.newTopicKey(run.Task)), startedAt: time.Now()}
}

// BeginRun takes the lease of a run that was claimed from the queue. It returns [agentsvc.ErrLeaseLost] if the task no longer
// waits for it, or waited for somebody for too long.
func (r *Recorder) BeginRun(ctx context.Context) error {
	evs, err := r.service.store.AcquireTaskLease(ctx, r.run)
	switch {
	case err == nil:
		r.service.hub.publishEvents(r.service.newTopicKey(r.run.Task), evs...)
	case errors.Is(err, store.ErrTaskInterrupted):
		return r.service.expireApprovals(ctx, *r.run)
	}
	return err
}

// RegisterCall says that a tool call is under way, which stop ends, until over is called.
func (r *Recorder) RegisterCall(call agentsvc.CallID, stop context.CancelCauseFunc) (over func()) {
	return r.service.hub.registerCall(r.service.newTopicKey(r.run.Task), call, stop)
}

// ReadJournal reads the facts of the run's turn so far.
func (r *Recorder) ReadJournal(ctx context.Context) ([]agentsvc.Event, error) {
	return r.service.store.LoadJournal(ctx, *r.run)
}

// ReadSession reads the conversation that the run continues.
func (r *Recorder) ReadSession(ctx context.Context) (agentsvc.Session, error) {
	if r.run.IsNewContext {
		return agentsvc.Session{Context: r.run.Context}, nil
	}
	return r.service.store.LoadConversation(ctx, *r.run)
}

// PublishChunk shows readers a piece of a message that is being written. It is kept nowhere.
func (r *Recorder) PublishChunk(c agentsvc.Chunk) {
	c.After = r.run.Seq
	r.service.hub.publishEvents(r.service.newTopicKey(r.run.Task), agentsvc.Event{Task: r.run.Task, Chunk: &c})
}

// RecordFacts appends facts, in one transaction with the run's end if rec has one. It returns [agentsvc.ErrLeaseLost] if the
// lease is somebody else's by now: then nothing was written and the run must stop. A [*store.UnavailableError] may pass.
func (r *Recorder) RecordFacts(ctx context.Context, rec store.Record) error {
	for i, ev := range rec.Events {
		rec.Events[i] = stampEvent(r.run.Task, r.run.Seq+1+int64(i), ev)
	}
	rec.SideBatch = r.newObserverBatch(rec)
	if err := r.service.store.WriteRecord(ctx, r.run, rec); err != nil {
		return err
	}
	r.ended = r.ended || rec.EndState != ""
	r.observeSeparately(ctx, rec)
	r.service.hub.publishEvents(r.service.newTopicKey(r.run.Task), rec.Events...)
	if r.run.HasQueuedRuns && rec.EndState != store.Pending {
		r.service.promoteNextRun(ctx, r.run.Owner, r.run.Context)
	}
	return nil
}

// stopGrace is how long a fact may still be written after its run was told to stop: less than the grace that a process
// gives its runs when it stops.
const stopGrace = 2 * time.Second

// WithStopGrace returns a context that outlives ctx for as long as a fact of a run that is told to stop may still be written:
// one that says what has happened and cannot happen again. It ends with ctx where the run has lost its lease.
func (r *Recorder) WithStopGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	lost := func() bool { return errors.Is(context.Cause(ctx), agentsvc.ErrLeaseLost) }
	if lost() {
		return ctx, func() {}
	}
	extended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !lost() {
			select {
			case <-time.After(stopGrace):
			case <-extended.Done():
			}
		}
		cancel()
	})
	return extended, func() { stop(); cancel() }
}

// Close lets readers know that this process no longer writes.
func (r *Recorder) Close() { r.removeWriter() }
