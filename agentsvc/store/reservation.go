package store

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// recordReservation adds to b that run, which b writes, has its reservation's note. A separate statement, because
// most runs have none.
func (s *Store) recordReservation(b *db.Batch, run Run) {
	if run.Reservation == "" {
		return
	}
	b.Exec(nil, `UPDATE run SET reserved = $4 WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $5 AND seq = $6)`,
		s.tenant, string(run.Task), run.Turn, run.Reservation, run.Epoch, run.Seq)
}

// LoadReservation returns the note of what a turn has reserved from the tenant's limits. It returns "" where nothing
// was reserved, and where a usage event is on the log: then the worker of the turn has settled it, and releasing it
// again would be wrong.
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
