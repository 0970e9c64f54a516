package corpus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/pgvector/pgvector-go"

	"stoa/tenancy/db"
)

// An approximate index is a copy of the vectors of a generation in a table of its own with an index of the type HNSW, by
// PostgreSQL's extension vector. It belongs to one generation of one store: an index over all tenants returns too few rows for
// a tenant with a small share of them (docs/decisions/exact-search.md). Three rules make it safe:
//
//   - It only suggests chunks. A search takes their documents, readers, revisions and vectors from the tables that it reads
//     without the index as well, so that rows that are left in the index by mistake change nothing.
//   - document_live.indexed_revision says which revision of a document is in the index. What is not is compared exactly. The
//     commit of a document therefore does not have to insert anything: the pass that made it does so afterwards.
//   - It can be missing at any time, for instance after a restoration without it. Then a search is exact, and the next pass
//     makes another one from chunk_vector.
const (
	// defaultExactChunks is the default of [Limits.ExactChunks]. Comparing 20,000 vectors takes tens of milliseconds, which is about
	// what reading the scope and checking the candidates of an index take; below it an index cannot be worth its memory.
	defaultExactChunks = 20_000
	// maxIndexedDimensions is the length of the longest vector of 16-bit numbers that HNSW accepts.
	maxIndexedDimensions = 4000
)

// VectorIndexes makes and drops the approximate indexes of a tenant. On SQLite it does nothing.
type VectorIndexes struct {
	rows
	// platform is for the tables, which the tenant's role cannot create.
	platform *db.Handle
}

// vectorIndex is a row of the table vector_index, and what PostgreSQL says about it.
type vectorIndex struct {
	generation int64
	id         string // "" = there is no row
	dimensions int
	// schema is that of the extension, "" if the caller's role finds none that can be used.
	schema string
}

// newIndexID returns the id of the index of a generation. No two tenants, stores or generations share one.
func newIndexID(tenant, store string, generation int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", tenant, store, generation))
	return hex.EncodeToString(sum[:16])
}

var indexIDPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// table returns the name of the index's table for SQL. The id was read from a row that the tenant's role may write.
func (v vectorIndex) table() (string, error) {
	if !indexIDPattern.MatchString(v.id) {
		return "", fmt.Errorf("an approximate index has the id %q, which is not 32 hexadecimal digits", v.id)
	}
	return "chunk_hnsw_" + v.id, nil
}

// halfvec returns the SQL of a vector of 16-bit numbers from its text in an expression.
func (v vectorIndex) halfvec(text string) string {
	return `CAST(CAST(` + text + ` AS TEXT) AS ` + quoteIdentifier(v.schema) + `.halfvec)`
}

// negativeProduct returns the SQL operator by which the index is ordered.
func (v vectorIndex) negativeProduct() string {
	return `OPERATOR(` + quoteIdentifier(v.schema) + `.<#>)`
}

// quoteIdentifier quotes a name for SQL.
func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// indexTableSQL is the condition that the table of the row v of vector_index is there, with its vectors: dropping the
// extension removes them and leaves the table.
const indexTableSQL = `EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = to_regclass('chunk_hnsw_' || v.id) AND a.attname = 'embedding' AND NOT a.attisdropped)`

// IndexedVectors is what [VectorIndexes.Update] has found and done.
type IndexedVectors struct {
	// More means that there are vectors left to be inserted.
	More bool
	// Created means that the call has created the index.
	Created bool
	// Obstacle is why a generation with more than [Limits.ExactChunks] chunks has no index, and what to do; "" = nothing.
	Obstacle string
}

// Update brings the approximate index over the vectors of a generation up to date, by up to limit vectors a call, and creates
// it first if the generation has more than [Limits.ExactChunks] chunks. It is called until there are no more.
func (x *VectorIndexes) Update(ctx context.Context, pass Pass, generation int64, limit int) (IndexedVectors, error) {
	if x.h.Engine() != db.Postgres {
		return IndexedVectors{}, nil
	}
	var v vectorIndex
	var chunks int64
	err := x.read(ctx, "read the approximate index of a document store", func(r db.Row) error {
		return r.Scan(&v.id, &v.dimensions, &v.schema, &chunks)
	}, `SELECT COALESCE(v.id, ''), COALESCE(v.dimensions, 0), COALESCE(stoa_vector_schema(), ''),
			(SELECT CAST(COALESCE(SUM(l.chunks), 0) AS BIGINT) FROM document_live l WHERE l.tenant = $1 AND l.store = $2 AND l.generation = $3 AND l.collection = '')
		FROM (SELECT 1) always LEFT JOIN vector_index v ON v.tenant = $1 AND v.store = $2 AND v.generation = $3 AND `+indexTableSQL, x.tenant, pass.Store, generation)
	if err != nil {
		return IndexedVectors{}, err
	}
	v.generation = generation
	switch {
	case v.id == "" && chunks <= x.limits.ExactChunks:
		return IndexedVectors{}, nil
	case v.schema == "":
		return IndexedVectors{Obstacle: "PostgreSQL has no extension vector of version 0.8 or later that the roles of Stoa may use: install pgvector, and let an administrator run CREATE EXTENSION vector in this database"}, nil
	case v.id == "":
		return x.createIndex(ctx, pass, v)
	}
	more, err := x.fillIndex(ctx, pass, v, limit)
	return IndexedVectors{More: more}, err
}

// createIndex creates the index of a generation, empty.
func (x *VectorIndexes) createIndex(ctx context.Context, pass Pass, v vectorIndex) (IndexedVectors, error) {
	err := x.read(ctx, "read the length of vectors", func(r db.Row) error { return r.Scan(&v.dimensions) },
		`SELECT octet_length(vector) / 4 FROM chunk_vector WHERE tenant = $1 AND store = $2 AND generation = $3 LIMIT 1`, x.tenant, pass.Store, v.generation)
	switch {
	case err != nil || v.dimensions == 0:
		return IndexedVectors{}, err
	case v.dimensions > maxIndexedDimensions:
		return IndexedVectors{Obstacle: fmt.Sprintf("its vectors have %d numbers, and an approximate index may have %d: use an embedder with shorter ones, or an external vector store",
			v.dimensions, maxIndexedDimensions)}, nil
	}
	v.id = newIndexID(x.tenant, pass.Store, v.generation)
	// Only the platform's role may execute the function, whose table belongs to the owner of the schema.
	err = x.runPlatformTx(ctx, "create an approximate index", func(t *tx) error {
		if err := t.lockPass(ctx, pass); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `SELECT stoa_create_vector_index($1, $2)`, v.id, int64(v.dimensions)); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `INSERT INTO vector_index (tenant, store, generation, id, dimensions) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (tenant, store, generation) DO UPDATE SET id = excluded.id, dimensions = excluded.dimensions`,
			t.tenant, pass.Store, v.generation, v.id, int64(v.dimensions)); err != nil {
			return err
		}
		_, err := t.Exec(ctx, `UPDATE document_live SET indexed_revision = 0 WHERE tenant = $1 AND store = $2 AND generation = $3 AND indexed_revision <> 0`,
			t.tenant, pass.Store, v.generation)
		return err
	})
	return IndexedVectors{More: err == nil, Created: err == nil}, err
}

// runPlatformTx is runTx under the role of the platform.
func (x *VectorIndexes) runPlatformTx(ctx context.Context, what string, f func(t *tx) error) error {
	platform := x.rows
	platform.h = x.platform
	return platform.runTx(ctx, what, f)
}

// maxLockedDocuments bounds the documents that one transaction of fillIndex locks.
const maxLockedDocuments = 50

// fillIndex inserts up to limit vectors of documents that are not in the index. more is false if there were none.
func (x *VectorIndexes) fillIndex(ctx context.Context, pass Pass, v vectorIndex, limit int) (more bool, err error) {
	table, err := v.table()
	if err != nil {
		return false, err
	}
	err = x.runTx(ctx, "insert vectors into an approximate index", func(t *tx) error {
		// The locks keep a deletion, which locks the document first, from missing the rows that are inserted here.
		var documents []string
		err := t.Query(ctx, func(r db.Row) error {
			var id string
			err := r.Scan(&id)
			documents = append(documents, id)
			return err
		}, `SELECT d.id FROM document d WHERE d.tenant = $1 AND d.store = $2 AND d.id = ANY (ARRAY(SELECT l.document FROM document_live l
				WHERE l.tenant = $1 AND l.store = $2 AND l.generation = $3 AND l.collection = '' AND l.indexed_revision <> l.revision ORDER BY l.document LIMIT $4))
			ORDER BY d.id FOR SHARE`, t.tenant, pass.Store, v.generation, int64(maxLockedDocuments))
		if err == nil {
			err = t.lockPass(ctx, pass)
		}
		if err != nil {
			return err
		}
		if more = len(documents) > 0; !more {
			return deleteUnknownVectors(ctx, t, table, pass.Store, v.generation)
		}
		left := limit
		for _, id := range documents {
			n, err := t.fillDocument(ctx, v, table, pass.Store, id, left)
			if err != nil {
				return err
			}
			if left -= n; left <= 0 {
				return nil
			}
		}
		return nil
	})
	return more && err == nil, err
}

// fillDocument inserts up to limit vectors of a document behind those that are in the index, and returns their number. If
// there are fewer, the document's revision is in the index from now on.
func (t *tx) fillDocument(ctx context.Context, v vectorIndex, table, store, id string, limit int) (int, error) {
	// Of a revision that the former version of the program has replaced.
	_, err := t.Exec(ctx, `DELETE FROM `+table+` h WHERE h.tenant = $1 AND h.document = $3 AND h.revision <> COALESCE((SELECT l.revision FROM document_live l
		WHERE l.tenant = $1 AND l.store = $2 AND l.document = $3 AND l.generation = $4), 0)`, t.tenant, store, id, v.generation)
	if err != nil {
		return 0, err
	}
	var revisions, ordinals []int64
	var vectors []string
	err = t.Query(ctx, func(r db.Row) error {
		var revision, ordinal int64
		var raw db.RowBytes
		if err := r.Scan(&revision, &ordinal, &raw); err != nil {
			return err
		}
		revisions, ordinals = append(revisions, revision), append(ordinals, ordinal)
		vectors = append(vectors, encodeHalfVector(decodeVector(raw)))
		return nil
	}, `SELECT c.revision, c.ordinal, c.vector FROM document_live l JOIN chunk_vector c`+chunkOfLive+`
		WHERE l.tenant = $1 AND l.store = $2 AND l.document = $3 AND l.generation = $4 AND octet_length(c.vector) = $5
			AND c.ordinal > COALESCE((SELECT MAX(h.ordinal) FROM `+table+` h WHERE h.tenant = $1 AND h.document = $3 AND h.revision = l.revision), -1)
		ORDER BY c.ordinal LIMIT $6`, t.tenant, store, id, v.generation, int64(4*v.dimensions), int64(limit))
	if err != nil {
		return 0, err
	}
	if len(vectors) > 0 {
		_, err = t.Exec(ctx, `INSERT INTO `+table+` (tenant, document, revision, ordinal, embedding)
			SELECT $1, $2, x.revision, x.ordinal, `+v.halfvec("x.embedding")+`
			FROM unnest(CAST($3 AS BIGINT[]), CAST($4 AS BIGINT[]), CAST($5 AS TEXT[])) x (revision, ordinal, embedding)`, t.tenant, id, revisions, ordinals, vectors)
	}
	if err == nil && len(vectors) < limit {
		_, err = t.Exec(ctx, `UPDATE document_live SET indexed_revision = revision WHERE tenant = $1 AND store = $2 AND document = $3 AND generation = $4`,
			t.tenant, store, id, v.generation)
	}
	return len(vectors), err
}

// encodeHalfVector returns the text of a vector for a statement. Text needs no types that a connection has learned: the
// extension may be installed after the connection was made, and poolers give it to others.
func encodeHalfVector(vector []float32) string { return pgvector.NewHalfVector(vector).String() }

// deleteUnknownVectors deletes the rows of an index whose documents are gone. The former version of the program leaves them
// when it deletes a document.
func deleteUnknownVectors(ctx context.Context, t *tx, table, store string, generation int64) error {
	_, err := t.Exec(ctx, `DELETE FROM `+table+` h WHERE h.tenant = $1 AND NOT EXISTS (SELECT 1 FROM document_live l
		WHERE l.tenant = $1 AND l.store = $2 AND l.document = h.document AND l.generation = $3 AND l.revision = h.revision)`, t.tenant, store, generation)
	return err
}

// deleteIndexed deletes a document from the approximate index of a generation, 0 = from those of all. The transaction has
// locked the document.
func (t *tx) deleteIndexed(ctx context.Context, store, document string, generation int64) error {
	if t.h.Engine() != db.Postgres {
		return nil
	}
	var all []vectorIndex
	// The lock keeps the tables from being dropped.
	err := t.Query(ctx, func(r db.Row) error {
		var v vectorIndex
		err := r.Scan(&v.id)
		all = append(all, v)
		return err
	}, `SELECT v.id FROM vector_index v WHERE v.tenant = $1 AND v.store = $2 AND (v.generation = $3 OR $3 = 0) AND `+indexTableSQL+` FOR SHARE`,
		t.tenant, store, generation)
	for _, v := range all {
		var table string
		if err == nil {
			table, err = v.table()
		}
		if err == nil {
			_, err = t.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1 AND document = $2`, t.tenant, document)
		}
	}
	return err
}

// Drop drops the approximate indexes of the tenant of which no generation is searched or built any more, with all
// every one.
func (x *VectorIndexes) Drop(ctx context.Context, all bool) error {
	if x.h.Engine() != db.Postgres {
		return nil
	}
	const obsolete = ` FROM vector_index v WHERE v.tenant = $1 AND ($2 OR NOT EXISTS (SELECT 1 FROM document_store s
		WHERE s.tenant = v.tenant AND s.store = v.store AND s.state = '' AND v.generation IN (s.generation, s.building)))`
	found := false
	err := x.read(ctx, "look for approximate indexes that are not used", func(db.Row) error { found = true; return nil }, `SELECT 1`+obsolete, x.tenant, all)
	if err != nil || !found {
		return err
	}
	return x.runPlatformTx(ctx, "drop approximate indexes", func(t *tx) error {
		var ids []string
		err := t.Query(ctx, func(r db.Row) error {
			var id string
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}, `SELECT v.id`+obsolete+` ORDER BY v.store, v.generation FOR UPDATE`, t.tenant, all)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := t.Exec(ctx, `DELETE FROM vector_index WHERE tenant = $1 AND id = $2`, t.tenant, id); err != nil {
				return err
			}
			if _, err := t.Exec(ctx, `SELECT stoa_drop_vector_index($1)`, id); err != nil {
				return err
			}
		}
		return nil
	})
}
