package task

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Recorders makes the recorders of a tenant's runs.
type Recorders struct {
	store    *store.Store
	tenant   db.ID
	hub      *Hub
	sessions *sessionQueues
	expiry   *approvalExpiry
	// usageMeter and writeUsageSeparately are those of [Options].
	usageMeter           UsageMeter
	writeUsageSeparately bool
	log                  *slog.Logger
}

// Recorder writes the log of one run. Every write is conditional on the run's epoch and sequence, which the store
// advances in run, so a worker that has lost its lease cannot write. It is used by the run's goroutine only, except
// RegisterCall.
type Recorder struct {
	shared       *Recorders
	run          *store.Run
	memory       *capacity.MemoryReservation // what reads for the run reserve; nil = without a bound
	removeWriter func()                      // removes the run from the hub's writers
	startedAt    time.Time                   // for [RunFacts].Worked
	ended        bool                        // the run's end is committed
}

// New returns the recorder of run, whose reads reserve memory, and registers the run as a writer in the hub. Close must
// be called when the run is over.
func (r *Recorders) New(run *store.Run, memory *capacity.MemoryReservation) *Recorder {
	return &Recorder{shared: r, run: run, memory: memory, removeWriter: r.hub.addWriter(topicKey{r.tenant, run.Task}), startedAt: time.Now()}
}

// BeginRun begins a run that was claimed from the queue ([store.Runs.BeginRun]): it raises the task's epoch, which
// fences all earlier workers, and completes run. It returns [agentsvc.ErrLeaseLost] if the task no longer waits for
// the run, also after it handled an expired approval or a budget wait (approvalExpiry).
func (r *Recorder) BeginRun(ctx context.Context) error {
	evs, err := r.shared.store.Runs.BeginRun(ctx, r.run)
	switch {
	case err == nil:
		r.shared.hub.publishEvents(topicKey{r.shared.tenant, r.run.Task}, evs...)
	case errors.Is(err, store.ErrTaskInterrupted):
		return r.shared.expiry.handleTimeout(ctx, r.memory, *r.run)
	}
	return err
}

// RegisterCall makes a tool call cancellable by [Canceller.CancelCall] until over is called; stop cancels the call's
// context.
func (r *Recorder) RegisterCall(call agentsvc.CallID, stop context.CancelCauseFunc) (over func()) {
	return r.shared.hub.registerCall(topicKey{r.shared.tenant, r.run.Task}, call, stop)
}

// ReadJournal returns the facts of the run's turn so far, beginning with the message that opened it. Directly after
// BeginRun no query is needed if the facts were small.
func (r *Recorder) ReadJournal(ctx context.Context) ([]agentsvc.Event, error) {
	if evs := r.run.TurnEvents; len(evs) > 0 && evs[len(evs)-1].Seq == r.run.Seq {
		return evs, nil
	}
	return r.shared.store.Runs.LoadJournal(ctx, r.memory, r.run.Task, r.run.FirstSeq)
}

// ReadSession returns the conversation that the run continues. A new context has none, which saves the query.
func (r *Recorder) ReadSession(ctx context.Context) (agentsvc.Session, error) {
	if r.run.IsNewContext {
		return agentsvc.Session{Context: r.run.Context}, nil
	}
	session, err := r.shared.store.Sessions.LoadConversation(ctx, r.memory, *r.run)
	if n := len(session.Entries); n > 0 {
		r.run.SessionPosition = session.Entries[n-1].Turn + 1
	}
	return session, err
}

// PublishChunk delivers a piece of an unfinished message to readers. It is not stored.
func (r *Recorder) PublishChunk(c agentsvc.Chunk) {
	c.After = r.run.Seq
	r.shared.hub.publishEvents(topicKey{r.shared.tenant, r.run.Task}, agentsvc.Event{Task: r.run.Task, Chunk: &c})
}

// RecordFacts appends facts to the log, in one transaction with the run's end if rec has one and with the usage
// rows of billing. It returns [agentsvc.ErrLeaseLost] if the lease is lost: then the log is unchanged and the run must
// stop. After a [*store.UnavailableError] a retry may succeed. The events are published after the commit, and the
// session's next run is promoted when this one has ended.
func (r *Recorder) RecordFacts(ctx context.Context, rec store.Record) error {
	for i, ev := range rec.Events {
		rec.Events[i] = stampEvent(r.run.Task, r.run.Seq+1+int64(i), ev)
	}
	rec.UsageRows = r.newUsageRows(rec)
	if err := r.shared.store.Runs.WriteRecord(ctx, r.run, rec); err != nil {
		return err
	}
	r.ended = r.ended || rec.EndState != ""
	r.writeUsageSeparately(ctx, rec)
	r.shared.hub.publishEvents(topicKey{r.shared.tenant, r.run.Task}, rec.Events...)
	if r.run.HasQueuedRuns && rec.EndState != store.Pending {
		r.shared.sessions.promoteNext(ctx, r.run.Owner, r.run.Context)
	}
	return nil
}

// stopGrace is how long a fact may be written after its run was cancelled. It must be shorter than the grace that
// a stopping process gives its runs (queue's drainGrace).
const stopGrace = 2 * time.Second

// WithStopGrace returns a context for writing a fact that must not be lost when the run is stopped, such as the
// result of a tool call: it ends stopGrace after ctx. Where the run has lost its lease it ends with ctx, because no
// write can succeed.
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

// Close removes the run from the hub's writers: readers then follow other processes.
func (r *Recorder) Close() { r.removeWriter() }
