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
	// End, where set, ends the run: its state, and with Pending the delay before its next attempt.
	End   RunState
	Delay time.Duration
	Error string
	// Session, where not empty, is what the turn adds to its session.
	Session []agentsvc.Entry
	// Beside is written in the same transaction whether or not the lease still holds; nil = nothing.
	Beside *db.Batch

	first bool // the turn is taken for the first of its session
}

// Record appends facts to the task of run, at run's epoch and sequence. It returns [agentsvc.ErrLost] if the lease is
// somebody else's by now, and an [*AwayError] if the session is kept apart and cannot be written; then nothing was
// written but what is beside it, if that.
func (s *Store) Record(ctx context.Context, run *Run, rec Record) error {
	if s.Sessions.h != nil || len(rec.Session) == 0 {
		return s.append(ctx, run, rec)
	}
	// The session first: a turn that stands there and not on the log is written again by the next attempt, one that
	// stood on the log alone would be forgotten.
	if err := s.keep(ctx, run, rec.Session); err != nil {
		return err
	}
	rec.Session = nil
	err := s.append(ctx, run, rec)
	if errors.Is(err, agentsvc.ErrLost) {
		err = errors.Join(err, s.retract(ctx, run))
	}
	return err
}

func (s *Store) append(ctx context.Context, run *Run, rec Record) error {
	g := guard{run.Epoch, run.Seq + int64(len(rec.Events))}
	var n int64
	var err error
	rec.first = run.Fresh
	for range maxTries {
		n, err = s.record(ctx, run, rec, &g)
		if len(rec.Session) == 0 || !db.IsDuplicate(err) {
			break
		}
		rec.first = false // another task of the session took the place; there is one behind the last turn
	}
	if errors.Is(err, db.ErrUnknownOutcome) {
		// At this epoch nobody but this run writes.
		if there, lookErr := s.stands(run.Task, g); lookErr == nil && there {
			n, err = 1, nil
			run.Followed = true // or not: the answer is lost
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("record task %s: %w", run.Task, err)
	case n == 0:
		return agentsvc.ErrLost
	}
	run.Seq = g.seq
	return nil
}

// maxTries bounds how often a turn looks for its place in a session that others write to.
const maxTries = 100

func (s *Store) record(ctx context.Context, run *Run, rec Record, g *guard) (n int64, err error) {
	b := db.Batch{Key: string(run.Task), Stores: db.StoresMore}
	if rec.End != "" {
		b.Stores = db.StoresEnd
	}
	record := s.recordPlain
	if s.h.Engine() == db.Postgres {
		record = s.recordFused
	}
	var w written
	if err := record(&b, &w, run, rec, g, time.Now().UnixMicro()); err != nil {
		return 0, err
	}
	b.Append(rec.Beside)
	if err := s.h.Write(ctx, &b); err != nil {
		return 0, err
	}
	run.Followed = w.followed || w.told > 0
	return w.n, nil
}

// written is what a record's statements say: whether the task stood where its writer last saw it, and whether others
// wait for the run's end. A writer that has given up does not read it, for the statements may come later.
type written struct {
	n        int64
	followed bool
	told     int64 // 1 = followed, where records share their statements
}

// recordPlain adds rec's rows to b, if the task stands where run last saw it; w tells.
func (s *Store) recordPlain(b *db.Batch, w *written, run *Run, rec Record, g *guard, now int64) error {
	s.advance(b, &w.n, run, rec, g.seq, now)
	if err := insertEvents(b, s.tenant, run.Task, rec.Events, g); err != nil {
		return err
	}
	s.insertApprovals(b, run.Task, rec.Events, g)
	if rec.End != "" {
		s.endRun(b, w, run, rec, g)
	}
	if len(rec.Session) > 0 {
		return s.appendSession(b, run, rec, g, now)
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

// state is where the task stands after rec. A record without events moves nothing else that would tell it from none.
func (rec Record) state() agentsvc.State {
	if ev := lastStatus(rec.Events); ev != nil {
		return ev.Status.State
	}
	return agentsvc.Working
}

// ready says in SQL whether the run, where it is pending again, may be claimed at once.
func (rec Record) ready() string {
	if rec.Delay > 0 {
		return "FALSE"
	}
	return "TRUE"
}

// advance adds the guarding statement: the task moves to seq, and to the last status among the events.
func (s *Store) advance(b *db.Batch, n *int64, run *Run, rec Record, seq, now int64) {
	if ev := lastStatus(rec.Events); ev != nil {
		b.Exec(n, `UPDATE task SET seq = $5, status_seq = $6, state = $7, updated_at = $8
			WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
			s.tenant, string(run.Task), run.Epoch, run.Seq, seq, ev.Seq, string(ev.Status.State), now)
		return
	}
	b.Exec(n, `UPDATE task SET seq = $5, updated_at = $6 WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
		s.tenant, string(run.Task), run.Epoch, run.Seq, seq, now)
}

func (s *Store) endRun(b *db.Batch, w *written, run *Run, rec Record, g *guard) {
	b.Query(func(r db.Row) error { return r.Scan(&w.followed) }, `UPDATE run SET state = $4, worker = '', available_at = stoa_now() + CAST($5 AS BIGINT), ready = `+rec.ready()+`, last_error = $6, cut_off = FALSE
		WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $7 AND seq = $8 AND state = $9)
		RETURNING followed`,
		s.tenant, string(run.Task), run.Turn, string(rec.End), rec.Delay.Microseconds(), rec.Error, g.epoch, g.seq, string(rec.state()))
}
