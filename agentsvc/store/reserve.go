package store

import "stoa/tenancy/db"

// reserve adds to b that run, which b writes, notes what is reserved for it.
func (s *Store) reserve(b *db.Batch, run Run) {
	if run.Reserved == "" {
		return
	}
	b.Exec(nil, `UPDATE run SET reserved = $4 WHERE tenant = $1 AND task = $2 AND turn = $3
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $5 AND seq = $6)`,
		s.tenant, string(run.Task), run.Turn, run.Reserved, run.Epoch, run.Seq)
}
