package corpus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"stoa/tenancy/db"
)

// indexedScope is what a search by an approximate index has to know of its scope.
type indexedScope struct {
	vectorIndex
	// chunks are those of the scope, unindexed those of them that are not in the index.
	chunks, unindexed int64
}

// matchIndexed is [Search.MatchVectors] by the approximate index of the store. ok is false if the scope has to be compared
// exactly: there is no index, the scope is so small that an exact comparison is fast, or so selective that the index has
// returned fewer than limit chunks.
func (s *Search) matchIndexed(ctx context.Context, scope Scope, model string, query []float32, limit int) (found []Match, ok bool, err error) {
	if s.h.Engine() != db.Postgres {
		return nil, false, nil
	}
	in, err := s.readIndexedScope(ctx, scope)
	switch {
	case err != nil:
		return nil, false, err
	case in.id == "" || in.schema == "" || in.dimensions != len(query) || in.chunks <= s.limits.ExactChunks || in.unindexed > s.limits.ExactChunks:
		return nil, false, nil
	}
	table, err := in.table()
	if err != nil {
		return nil, false, err
	}
	best := newTopMatches(limit)
	var raw db.RowBytes
	read := func(r db.Row) error {
		var m Match
		var revision int64
		if err := r.Scan(&m.Document, &revision, &m.Ordinal, &raw); err != nil {
			return err
		}
		m.Chunk = s.ChunkID(scope.Store, m.Document, in.generation, revision, m.Ordinal)
		m.Score = dotProduct(raw, query)
		best.add(m)
		return nil
	}
	// The index has 16-bit numbers: some more candidates than are returned, so that rounding loses none of them.
	candidates := limit + limit/2 + 10
	var b db.Batch
	b.Query(func(db.Row) error { return nil }, indexSettingsSQL, strconv.Itoa(min(max(2*candidates, 100), 1000)))
	args := s.scopeArgs(scope)
	b.Query(read, s.candidatesSQL(scope, in.vectorIndex, table, len(args)+1),
		append(args, model, int64(4*len(query)), in.generation, encodeHalfVector(query), int64(candidates))...)
	switch err := s.h.Do(ctx, &b); {
	case isMissingObject(err): // the index was dropped meanwhile
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("search an approximate index: %w", err)
	}
	found = best.sorted()
	return found, len(found) == limit, nil
}

// isMissingObject reports whether err is PostgreSQL's answer that a table, column, type or operator of the statement does not
// exist (SQLSTATE 42P01, 42703, 42704, 42883).
func isMissingObject(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && slices.Contains([]string{"42P01", "42703", "42704", "42883"}, state.SQLState())
}

// readIndexedScope returns the index of the store's live generation, with the size of the scope; an id of "" means that there
// is none, and then the scope is not read.
func (s *Search) readIndexedScope(ctx context.Context, scope Scope) (in indexedScope, err error) {
	err = s.read(ctx, "read the approximate index of a document store", func(r db.Row) error {
		return r.Scan(&in.generation, &in.id, &in.dimensions, &in.schema, &in.chunks, &in.unindexed)
	}, `SELECT v.generation, v.id, v.dimensions, v.extension_schema, n.chunks, n.unindexed
		FROM (SELECT v.generation, v.id, v.dimensions, COALESCE(stoa_vector_schema(), '') AS extension_schema FROM vector_index v
			WHERE v.tenant = $1 AND v.store = $2 AND v.generation = `+generationSQL+` AND `+indexTableSQL+` OFFSET 0) v
		CROSS JOIN LATERAL (SELECT CAST(COALESCE(SUM(l.chunks), 0) AS BIGINT) AS chunks,
				CAST(COALESCE(SUM(l.chunks) FILTER (WHERE l.indexed_revision <> l.revision), 0) AS BIGINT) AS unindexed
			FROM `+s.scopeSQL(scope)+` WHERE l.generation = v.generation) n`, s.scopeArgs(scope)...)
	return in, err
}

// indexSettingsSQL sets, for the transaction, how many candidates the index keeps ($1), and that it is read on, in the right
// order, until enough rows have passed the filter or many have not. The planner, which cannot know how many rows a filter keeps,
// is kept from reading and sorting the whole table.
const indexSettingsSQL = `SELECT set_config('hnsw.ef_search', $1, true), set_config('hnsw.iterative_scan', 'strict_order', true),
	set_config('hnsw.max_scan_tuples', '20000', true), set_config('hnsw.scan_mem_multiplier', '4', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

// candidatesSQL returns the statement that reads the vectors of the chunks that an index finds in a scope, and those of the
// documents in the scope that are not in the index. It is one statement, so that a document that gets into the index meanwhile is in
// exactly one of its parts. Its arguments after those of the scope, from number next, are model, size of a vector, generation, vector
// and number of chunks. The scalar sub-selects are conditions of each row that the index returns, in its order; EXISTS would become
// a join of all rows.
func (s *Search) candidatesSQL(scope Scope, v vectorIndex, table string, next int) string {
	const vectorOf = `CROSS JOIN LATERAL (SELECT c.document, c.revision, c.ordinal, c.vector FROM chunk_vector c
			WHERE c.tenant = $1 AND c.store = $2 AND c.document = h.document AND c.generation = $%[3]d AND c.revision = h.revision AND c.model = $%[1]d
				AND octet_length(c.vector) = $%[2]d`
	readable := `(SELECT ` + s.documentSQL(scope) + ` FROM document d WHERE d.tenant = $1 AND d.store = $2 AND d.id = h.document)`
	return fmt.Sprintf(`SELECT c.document, c.revision, c.ordinal, c.vector
		FROM (SELECT h.document, h.revision, h.ordinal FROM `+table+` h
			WHERE $%[3]d = `+generationSQL+` AND (SELECT l.revision = h.revision AND l.indexed_revision = h.revision FROM document_live l
					WHERE l.tenant = $1 AND l.store = $2 AND l.document = h.document AND l.generation = $%[3]d) AND `+readable+`
			ORDER BY h.embedding `+v.negativeProduct()+` `+v.halfvec("$%[4]d")+` LIMIT $%[5]d) h
		`+vectorOf+` AND c.ordinal = h.ordinal OFFSET 0) c
		UNION ALL SELECT c.document, c.revision, c.ordinal, c.vector
		FROM (SELECT h.document, h.revision FROM document_live h
			WHERE h.tenant = $1 AND h.store = $2 AND h.generation = $%[3]d AND $%[3]d = `+generationSQL+` AND h.indexed_revision <> h.revision AND `+readable+` OFFSET 0) h
		`+vectorOf+` OFFSET 0) c`, next, next+1, next+2, next+3, next+4)
}
