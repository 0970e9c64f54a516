package store

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// recordReservation adds to b that run, which b writes, notes what is reserved for it.
func (s *Store) recordReservation(b *db.Batch, run Run) {
	if run.Reservation == "" {
		return
	}
	b.Exec(nil, `UPDATE run SET reserved = $4 WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $5 AND seq = $6)`,
		s.tenant, string(run.Task), run.Turn, run.Reservation, run.Epoch, run.Seq)
}

// LoadReservation returns the note of what a turn of a task holds of the limits, "" where it holds nothing or a model has answered: then
// it is settled by whoever ran the turn.
func (s *Store) LoadReservation(ctx context.Context, id agentsvc.TaskID, turn int64) (note string, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&note) }, `SELECT r.reserved FROM run r WHERE r.tenant = $1 AND r.task = $2 AND r.turn = $3
		AND NOT EXISTS (SELECT 1 FROM event e WHERE e.tenant = r.tenant AND e.task = r.task AND e.seq >= r.first_seq AND e.kind = 'usage')`,
		s.tenant, string(id), turn)
	if err := s.h.Do(ctx, &b); err != nil {
		return "", fmt.Errorf("read what turn %d of task %s holds: %w", turn, id, err)
	}
	return note, nil
}
