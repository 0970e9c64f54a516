package store

import (
	"context"
	"fmt"
	"slices"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// maxTurns bounds how many turns of a session are read.
const maxTurns = 1000

// Session reads what owner and agents said in a context: its last turns, oldest first.
func (s *Store) Session(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) (agentsvc.Session, error) {
	var turns [][]agentsvc.Entry
	var b db.Batch
	b.Query(func(r db.Row) error {
		var body []byte
		var position int64
		if err := r.Scan(&position, &body); err != nil {
			return err
		}
		entries, err := decodeEntries(body)
		for i := range entries {
			entries[i].Turn = position
		}
		turns = append(turns, entries)
		return err
	}, `SELECT position, body FROM session_turn WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4 ORDER BY position DESC LIMIT $5`,
		s.tenant, owner.Subject, owner.Issuer, string(id), maxTurns)
	if err := s.h.Do(ctx, &b); err != nil {
		return agentsvc.Session{}, fmt.Errorf("read session %s: %w", id, err)
	}
	slices.Reverse(turns)
	return agentsvc.Session{Context: id, Entries: slices.Concat(turns...)}, nil
}

// appendSession adds rec's turn behind the last one, if the guard holds.
func (s *Store) appendSession(b *db.Batch, run *Run, rec Record, g *guard) error {
	body, err := encodeEntries(rec.Session)
	if err != nil {
		return err
	}
	b.Exec(nil, `INSERT INTO session_turn (tenant, owner_iss, owner_sub, context_id, position, task, body)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),
			COALESCE((SELECT MAX(position) FROM session_turn WHERE tenant = $1 AND owner_sub = $3 AND owner_iss = $2 AND context_id = $4), 0) + 1,
			CAST($5 AS TEXT), CAST($6 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $5 AND epoch = $7 AND seq = $8 AND state = $9)`,
		s.tenant, run.Owner.Issuer, run.Owner.Subject, string(run.Context), string(run.Task), body, g.epoch, g.seq, string(rec.state()))
	return nil
}
