package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Record is what a worker adds to its task in one transaction. Its events are numbered already.
type Record struct {
	Events []agentsvc.Event
	// EndState, if not empty, ends the run's attempt. With Pending the run is tried again after RetryDelay; any other
	// state ends it.
	EndState   RunState
	RetryDelay time.Duration
	// Error is stored as the run's last error.
	Error string
	// SessionEntries, if not empty, are what the turn adds to its session.
	SessionEntries []agentsvc.Entry
	// UsageRows inserts the usage rows of billing in the same transaction, even if the lease is lost: spent usage is
	// never fenced. nil = none.
	UsageRows *db.Batch
}

// WriteRecord appends facts to the task of run, conditional on run's epoch and sequence, and advances run.Seq. It
// returns [agentsvc.ErrLeaseLost] if the task has another epoch or sequence, and an [*UnavailableError] if the
// session is in an external database that cannot be written. In both cases the task is unchanged; after a lost lease
// UsageRows are still committed.
func (s *Runs) WriteRecord(ctx context.Context, run *Run, rec Record) error {
	if s.sessions.h != nil || len(rec.SessionEntries) == 0 {
		return s.appendRecord(ctx, run, rec)
	}
	// The external session first, since two databases have no common transaction. If the log then fails, the next
	// attempt overwrites the session's turn; in the other order a crash would leave a turn that the session never
	// learns of.
	if err := s.sessions.writeTurn(ctx, run, rec.SessionEntries); err != nil {
		return err
	}
	rec.SessionEntries = nil
	err := s.appendRecord(ctx, run, rec)
	if errors.Is(err, agentsvc.ErrLeaseLost) {
		err = errors.Join(err, s.sessions.deleteTurn(ctx, run))
	}
	return err
}

// appendRecord writes rec to the tasks' database and finds out what happened where that is not certain.
func (s *Runs) appendRecord(ctx context.Context, run *Run, rec Record) error {
	g := precondition{run.Epoch, run.Seq + int64(len(rec.Events))}
	var n int64
	var err error
	position := run.SessionPosition
	if run.IsNewContext {
		position = 1
	}
	for range maxAttempts {
		if len(rec.SessionEntries) > 0 && position == 0 {
			if position, err = s.nextSessionPosition(ctx, run); err != nil {
				break
			}
		}
		n, err = s.tryAppendRecord(ctx, run, rec, position, &g)
		if len(rec.SessionEntries) == 0 || !db.IsDuplicate(err) {
			break
		}
		position = 0 // a concurrent task of the session wrote this position
	}
	if errors.Is(err, db.ErrUnknownOutcome) {
		// Only this run writes at this epoch: if the task has reached the sequence, this record was committed.
		if there, lookErr := s.hasReached(run.Task, g); lookErr == nil && there {
			n, err = 1, nil
			run.HasQueuedRuns = true // unknown, because the answer was lost; promoting is harmless
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("record task %s: %w", run.Task, err)
	case n == 0:
		return agentsvc.ErrLeaseLost
	}
	run.Seq = g.seq
	return nil
}

// maxAttempts bounds the retries of a write that loses races, each of which another writer must win.
const maxAttempts = 100

// tryAppendRecord executes the record once.
func (s *Runs) tryAppendRecord(ctx context.Context, run *Run, rec Record, position int64, g *precondition) (n int64, err error) {
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresMore}
	if rec.EndState != "" {
		b.StorageKind = db.StoresEnd
	}
	var w recordResult
	if err := s.addRecord(&b, &w, run, rec, position, g, time.Now().UnixMicro()); err != nil {
		return 0, err
	}
	b.Append(rec.UsageRows)
	if err := s.h.Write(ctx, &b); err != nil {
		return 0, err
	}
	run.HasQueuedRuns = w.hasQueuedRuns || w.queuedRuns > 0
	return w.advanced, nil
}

// recordResult receives what a record's statements return. It is separate from Run because the statements may still
// execute after a writer whose context ended has returned; nothing reads the result then.
type recordResult struct {
	advanced      int64 // 1 if the precondition held
	hasQueuedRuns bool  // the run's column followed: others of its session wait
	queuedRuns    int64 // the same, 1 for true, from shared statements
}

// addRecord adds rec's statements to b, one for each table, and their shared form.
func (s *Runs) addRecord(b *db.Batch, w *recordResult, run *Run, rec Record, position int64, g *precondition, now int64) error {
	events, err := eventRows(s.tenant, run.Task, rec.Events)
	if err != nil {
		return err
	}
	session, err := encodeEntries(rec.SessionEntries)
	if err != nil {
		return err
	}
	s.advanceTask(b, &w.advanced, run, rec, g.seq, now)
	insertEventRows(b, events, g)
	s.insertApprovals(b, run.Task, rec.Events, g)
	if rec.EndState != "" {
		s.endRun(b, w, run, rec, g)
	}
	if len(rec.SessionEntries) > 0 {
		s.insertSessionTurn(b, run, rec, position, g, session, now)
	}
	b.Shared = s.recordShared(w, run, rec, position, g, events, session, now)
	return nil
}

// lastStatus returns the last event that contains a status, nil if none does.
func lastStatus(evs []agentsvc.Event) *agentsvc.Event {
	for i := len(evs) - 1; i >= 0; i-- {
		if evs[i].Status != nil {
			return &evs[i]
		}
	}
	return nil
}

// taskState returns the task's state after rec: that of its last status, else working, the state in which workers
// write. A record without events does not change the sequence, so endRun compares the state as well.
func (rec Record) taskState() agentsvc.State {
	if ev := lastStatus(rec.Events); ev != nil {
		return ev.Status.State
	}
	return agentsvc.Working
}

// endRun adds the statement that ends the run's attempt, if the task is at g.
func (s *Runs) endRun(b *db.Batch, w *recordResult, run *Run, rec Record, g *precondition) {
	b.Query(func(r db.Row) error { return r.Scan(&w.hasQueuedRuns) }, `UPDATE run SET state = $4, worker = '', available_at = stoa_now() + CAST($5 AS BIGINT), ready = CAST($5 AS BIGINT) <= 0, last_error = $6, cut_off = FALSE
		WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $7 AND seq = $8 AND state = $9)
		RETURNING followed`,
		s.tenant, string(run.Task), run.Turn, string(rec.EndState), rec.RetryDelay.Microseconds(), rec.Error, g.epoch, g.seq, string(rec.taskState()))
}
