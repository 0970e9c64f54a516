package corpus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// ExpireLeases ends the leases of all passes, so that they can be claimed at once. It is for the start of a process that is
// alone on its database: what held them was killed.
func (p *Passes) ExpireLeases(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `UPDATE index_pass SET holder = '', due_at = stoa_now() WHERE holder <> ''`)
	if err := p.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("end the leases of indexing: %w", err)
	}
	return nil
}

// RequestListings makes the next pass of each store with a source begin with a listing, and makes it due now unless a
// process holds it. Stores that had a pass within age are left out. It is for the start of a process.
func (p *Passes) RequestListings(ctx context.Context, age time.Duration) error {
	var b db.Batch
	b.Exec(nil, `UPDATE index_pass SET cursor = '', due_at = CASE WHEN holder = '' AND due_at > stoa_now() THEN stoa_now() ELSE due_at END
		WHERE served_at < stoa_now() - $1 AND EXISTS (SELECT 1 FROM document_store s
			WHERE s.tenant = index_pass.tenant AND s.store = index_pass.store AND s.source <> 'upload')`, age.Microseconds())
	if err := p.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("request listings of all sources: %w", err)
	}
	return nil
}

// RequestIndexes makes the passes due of stores on PostgreSQL that are large enough for an approximate index and have none, if
// the extension for it is there. It is for the start of a process.
func (p *Passes) RequestIndexes(ctx context.Context) error {
	if p.h.Engine() != db.Postgres {
		return nil
	}
	var b db.Batch
	b.Exec(nil, `UPDATE index_pass SET due_at = stoa_now() WHERE holder = '' AND due_at > stoa_now() AND stoa_vector_schema() IS NOT NULL
		AND EXISTS (SELECT 1 FROM document_store s WHERE s.tenant = index_pass.tenant AND s.store = index_pass.store AND s.state = '' AND s.embedder <> ''
			AND NOT EXISTS (SELECT 1 FROM vector_index v WHERE v.tenant = s.tenant AND v.store = s.store AND v.generation = s.generation AND `+indexTableSQL+`)
			AND (SELECT SUM(l.chunks) FROM document_live l
				WHERE l.tenant = s.tenant AND l.store = s.store AND l.generation = s.generation AND l.collection = '') > $1)`, int64(defaultExactChunks))
	if err := p.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("request approximate indexes: %w", err)
	}
	return nil
}

// DropUnknownIndexes drops the tables of approximate indexes on PostgreSQL that no row of vector_index names, as after the restoration of
// a part of a backup, and returns their number. One that is locked stays until the next call. A table and its row are made by one
// transaction, so that a table without a row is not one that is being made.
func (p *Passes) DropUnknownIndexes(ctx context.Context) (dropped int, err error) {
	if p.h.Engine() != db.Postgres {
		return 0, nil
	}
	var ids []string
	var b db.Batch
	b.Query(func(r db.Row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT substr(CAST(c.relname AS TEXT), length('chunk_hnsw_') + 1) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname = current_schema() AND c.relname ~ '^chunk_hnsw_[0-9a-f]{32}$'
			AND NOT EXISTS (SELECT 1 FROM vector_index v WHERE 'chunk_hnsw_' || v.id = CAST(c.relname AS TEXT)) ORDER BY 1`)
	if err := p.h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("look for tables of approximate indexes that nothing names: %w", err)
	}
	var errs []error
	for _, id := range ids {
		// If a pass makes the index of this id meanwhile and its table is dropped, the next pass makes it again.
		var drop db.Batch
		drop.Query(func(db.Row) error { dropped++; return nil }, `SELECT stoa_drop_vector_index($1) WHERE NOT EXISTS (SELECT 1 FROM vector_index v WHERE v.id = $1)`, id)
		if err := p.h.Do(ctx, &drop); err != nil {
			errs = append(errs, fmt.Errorf("drop the table of the approximate index %s: %w", id, err))
		}
	}
	return dropped, errors.Join(errs...)
}
