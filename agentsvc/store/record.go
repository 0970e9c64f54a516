package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Record is what a worker adds to its task at once. Events have their sequence already.
type Record struct {
	Events []agentsvc.Event
	// EndState, where set, ends the run: its state, and with Pending the delay before its next attempt.
	EndState   RunState
	RetryDelay time.Duration
	Error      string
	// SessionEntries, where not empty, is what the turn adds to its session.
	SessionEntries []agentsvc.Entry
	// SideBatch is written in the same transaction whether or not the lease still holds; nil = nothing.
	SideBatch *db.Batch

	isFirstTurn bool // the turn is taken for the first of its session
}

// WriteRecord appends facts to the task of run, at run's epoch and sequence. It returns [agentsvc.ErrLeaseLost] if the lease is
// somebody else's by now, and an [*UnavailableError] if the session is kept apart and cannot be written; then nothing was
// written but what is beside it, if that.
func (s *Store) WriteRecord(ctx context.Context, run *Run, rec Record) error {
	if s.SessionStore.h != nil || len(rec.SessionEntries) == 0 {
		return s.appendRecord(ctx, run, rec)
	}
	// The session first: a turn that stands there and not on the log is written again by the next attempt, one that
	// stood on the log alone would be forgotten.
	if err := s.writeTurn(ctx, run, rec.SessionEntries); err != nil {
		return err
	}
	rec.SessionEntries = nil
	err := s.appendRecord(ctx, run, rec)
	if errors.Is(err, agentsvc.ErrLeaseLost) {
		err = errors.Join(err, s.deleteTurn(ctx, run))
	}
	return err
}

func (s *Store) appendRecord(ctx context.Context, run *Run, rec Record) error {
	g := precondition{run.Epoch, run.Seq + int64(len(rec.Events))}
	var n int64
	var err error
	rec.isFirstTurn = run.IsNewContext
	for range maxAttempts {
		n, err = s.tryAppendRecord(ctx, run, rec, &g)
		if len(rec.SessionEntries) == 0 || !db.IsDuplicate(err) {
			break
		}
		rec.isFirstTurn = false // another task of the session took the place; there is one behind the last turn
	}
	if errors.Is(err, db.ErrUnknownOutcome) {
		// At this epoch nobody but this run writes.
		if there, lookErr := s.hasReached(run.Task, g); lookErr == nil && there {
			n, err = 1, nil
			run.HasQueuedRuns = true // or not: the answer is lost
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

// maxAttempts bounds how often a turn looks for its place in a session that others write to.
const maxAttempts = 100

func (s *Store) tryAppendRecord(ctx context.Context, run *Run, rec Record, g *precondition) (n int64, err error) {
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresMore}
	if rec.EndState != "" {
		b.StorageKind = db.StoresEnd
	}
	record := s.recordPlain
	if s.h.Engine() == db.Postgres {
		record = s.recordFused
	}
	var w recordResult
	if err := record(&b, &w, run, rec, g, time.Now().UnixMicro()); err != nil {
		return 0, err
	}
	b.Append(rec.SideBatch)
	if err := s.h.Write(ctx, &b); err != nil {
		return 0, err
	}
	run.HasQueuedRuns = w.hasQueuedRuns || w.queuedRuns > 0
	return w.advanced, nil
}

// recordResult is what a record's statements say: whether the task stood where its writer last saw it, and whether others
// wait for the run's end. A writer that has given up does not read it, for the statements may come later.
type recordResult struct {
	advanced      int64
	hasQueuedRuns bool
	queuedRuns    int64 // 1 = followed, where records share their statements
}

// recordPlain adds rec's rows to b, if the task stands where run last saw it; w tells.
func (s *Store) recordPlain(b *db.Batch, w *recordResult, run *Run, rec Record, g *precondition, now int64) error {
	s.advanceTask(b, &w.advanced, run, rec, g.seq, now)
	if err := insertEvents(b, s.tenant, run.Task, rec.Events, g); err != nil {
		return err
	}
	s.insertApprovals(b, run.Task, rec.Events, g)
	if rec.EndState != "" {
		s.endRun(b, w, run, rec, g)
	}
	if len(rec.SessionEntries) > 0 {
		return s.insertSessionTurn(b, run, rec, g, now)
	}
	return nil
}

// lastStatus returns the last event of evs that holds a status, nil if there is none.
func lastStatus(evs []agentsvc.Event) *agentsvc.Event {
	for i := len(evs) - 1; i >= 0; i-- {
		if evs[i].Status != nil {
			return &evs[i]
		}
	}
	return nil
}

// taskState is where the task stands after rec. A record without events moves nothing else that would tell it from none.
func (rec Record) taskState() agentsvc.State {
	if ev := lastStatus(rec.Events); ev != nil {
		return ev.Status.State
	}
	return agentsvc.Working
}

// readySQL says in SQL whether the run, where it is pending again, may be claimed at once.
func (rec Record) readySQL() string {
	if rec.RetryDelay > 0 {
		return "FALSE"
	}
	return "TRUE"
}

// advanceTask adds the guarding statement: the task moves to seq, and to the last status among the events.
func (s *Store) advanceTask(b *db.Batch, n *int64, run *Run, rec Record, seq, now int64) {
	if ev := lastStatus(rec.Events); ev != nil {
		b.Exec(n, `UPDATE task SET seq = $5, status_seq = $6, state = $7, updated_at = $8
			WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
			s.tenant, string(run.Task), run.Epoch, run.Seq, seq, ev.Seq, string(ev.Status.State), now)
		return
	}
	b.Exec(n, `UPDATE task SET seq = $5, updated_at = $6 WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
		s.tenant, string(run.Task), run.Epoch, run.Seq, seq, now)
}

func (s *Store) endRun(b *db.Batch, w *recordResult, run *Run, rec Record, g *precondition) {
	b.Query(func(r db.Row) error { return r.Scan(&w.hasQueuedRuns) }, `UPDATE run SET state = $4, worker = '', available_at = stoa_now() + CAST($5 AS BIGINT), ready = `+rec.readySQL()+`, last_error = $6, cut_off = FALSE
		WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $7 AND seq = $8 AND state = $9)
		RETURNING followed`,
		s.tenant, string(run.Task), run.Turn, string(rec.EndState), rec.RetryDelay.Microseconds(), rec.Error, g.epoch, g.seq, string(rec.taskState()))
}
