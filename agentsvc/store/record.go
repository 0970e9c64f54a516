package store

import (
	"context"
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
}

// Record appends facts to the task of run, at run's epoch and sequence. It returns [agentsvc.ErrLost] if the lease is
// somebody else's by now; then nothing was written.
func (s *Store) Record(ctx context.Context, run *Run, rec Record) error {
	for {
		err := s.record(ctx, run, rec)
		if !db.IsDuplicate(err) || len(rec.Session) == 0 {
			return err
		}
		// Another task of the session took the place behind the last turn; there is one behind that.
	}
}

func (s *Store) record(ctx context.Context, run *Run, rec Record) error {
	b := db.Batch{Key: string(run.Task)}
	seq := run.Seq + int64(len(rec.Events))
	n := s.advance(&b, run, rec.Events, seq)
	g := &guard{run.Epoch, seq}
	if err := insertEvents(&b, s.tenant, run.Task, rec.Events, g); err != nil {
		return err
	}
	if rec.End != "" {
		s.endRun(&b, run, rec, g)
	}
	if len(rec.Session) > 0 {
		if err := s.appendSession(&b, run, rec.Session, g); err != nil {
			return err
		}
	}
	if err := s.guarded(ctx, &b, n, "record task "+string(run.Task)); err != nil {
		return err
	}
	run.Seq = seq
	return nil
}

// advance adds the guarding statement: the task moves to seq, and to the last status among the events.
func (s *Store) advance(b *db.Batch, run *Run, evs []agentsvc.Event, seq int64) *int64 {
	n := new(int64)
	now := time.Now().UnixMicro()
	for i := len(evs) - 1; i >= 0; i-- {
		if st := evs[i].Status; st != nil {
			b.Exec(n, `UPDATE task SET seq = $5, status_seq = $6, state = $7, updated_at = $8
				WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
				s.tenant, string(run.Task), run.Epoch, run.Seq, seq, evs[i].Seq, string(st.State), now)
			return n
		}
	}
	b.Exec(n, `UPDATE task SET seq = $5, updated_at = $6 WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4 AND state = 'working'`,
		s.tenant, string(run.Task), run.Epoch, run.Seq, seq, now)
	return n
}

func (s *Store) endRun(b *db.Batch, run *Run, rec Record, g *guard) {
	b.Exec(nil, `UPDATE run SET state = $4, worker = '', available_at = stoa_now() + CAST($5 AS BIGINT), last_error = $6
		WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $7 AND seq = $8)`,
		s.tenant, string(run.Task), run.Turn, string(rec.End), rec.Delay.Microseconds(), rec.Error, g.epoch, g.seq)
}
