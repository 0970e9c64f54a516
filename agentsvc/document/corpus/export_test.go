package corpus

import (
	"context"
	"strings"

	"stoa/tenancy/db"
)

// Scans is exported for the test that occupies all of its permits.
var Scans = scans

// ExplainIndexed returns PostgreSQL's plan of the search by an approximate index.
func ExplainIndexed(ctx context.Context, s *Search, scope Scope, model string, query []float32, limit int) (string, error) {
	in, err := s.readIndexedScope(ctx, scope)
	if err != nil {
		return "", err
	}
	table, err := in.table()
	if err != nil {
		return "", err
	}
	args := s.scopeArgs(scope)
	var lines []string
	var b db.Batch
	b.Query(func(db.Row) error { return nil }, indexSettingsSQL, "100")
	b.Query(func(r db.Row) error {
		var line string
		err := r.Scan(&line)
		lines = append(lines, line)
		return err
	}, `EXPLAIN (ANALYZE) `+s.candidatesSQL(scope, in.vectorIndex, table, len(args)+1), append(args, model, int64(4*len(query)), in.generation, encodeHalfVector(query), int64(limit))...)
	err = s.h.Do(ctx, &b)
	return strings.Join(lines, "\n"), err
}
