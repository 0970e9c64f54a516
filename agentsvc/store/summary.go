package store

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Summary is an agent's summary of the first turns of a session. Turn is the position of the last turn that it
// covers, 0 if there is no summary.
type Summary struct {
	Turn int64
	Text string
}

// LoadSummary returns an agent's summary of a session, the zero Summary if there is none.
func (s *Sessions) LoadSummary(ctx context.Context, key agentsvc.SessionKey, agent string) (Summary, error) {
	var b db.Batch
	var sum Summary
	s.querySummary(&b, key, agent, &sum)
	if err := s.execBatch(ctx, &b); err != nil {
		return Summary{}, fmt.Errorf("read the summary of session %s: %w", key.Context, err)
	}
	return sum, nil
}

// SaveSummary stores sum unless a stored summary covers as many turns, and returns the stored one. So of two turns
// that summarise at the same time, the summary that covers more remains.
func (s *Sessions) SaveSummary(ctx context.Context, key agentsvc.SessionKey, agent string, sum Summary) (Summary, error) {
	b := db.Batch{StorageKind: db.StoresMore}
	// The condition on position makes a late, shorter summary lose.
	b.Exec(nil, `INSERT INTO session_summary (tenant, owner_iss, owner_sub, context_id, agent, position, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (tenant, owner_sub, owner_iss, context_id, agent) DO UPDATE SET position = excluded.position, body = excluded.body
		WHERE session_summary.position < excluded.position`,
		s.tenant, key.Owner.Issuer, key.Owner.Subject, string(key.Context), agent, sum.Turn, sum.Text)
	var current Summary
	s.querySummary(&b, key, agent, &current)
	if err := s.execBatch(ctx, &b); err != nil {
		return Summary{}, fmt.Errorf("store the summary of session %s: %w", key.Context, err)
	}
	return current, nil
}

// querySummary adds to b the read of a summary into into.
func (s *Sessions) querySummary(b *db.Batch, key agentsvc.SessionKey, agent string, into *Summary) {
	b.Query(func(r db.Row) error { return r.Scan(&into.Turn, &into.Text) },
		`SELECT position, body FROM session_summary WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4 AND agent = $5`,
		s.tenant, key.Owner.Subject, key.Owner.Issuer, string(key.Context), agent)
}
