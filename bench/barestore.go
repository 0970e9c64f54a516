package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// bareStore reads a document store in the database itself.
type bareStore struct {
	db            *sql.DB
	postgres      bool
	tenant, store string
	chunks        *sql.Stmt // with any of some words
	vectors       *sql.Stmt
}

// The shortest statements that read the rows of a search, with the product's tables: no reader, no filter, no check of what
// is live, no row-level security (the login is a superuser's).
const (
	bareVectors = `SELECT id, vector FROM chunk_vector WHERE tenant = $1 AND store = $2`
	barePG      = `SELECT id, words FROM chunk WHERE tenant = $1 AND store = $2 AND lexemes @@ CAST(CAST($3 AS TEXT) AS tsquery)`
	bareSQLite  = `SELECT c.id, c.words FROM chunk_words JOIN chunk c ON c.n = chunk_words.rowid WHERE chunk_words MATCH $1`
)

// openBareStore finds the store of that name, which only one tenant has.
func openBareStore(ctx context.Context, url, store string) (*bareStore, error) {
	path, isFile := strings.CutPrefix(url, "sqlite://")
	driver, address := pick(isFile, "sqlite", "pgx"), pick(isFile, path, url)
	d, err := sql.Open(driver, address)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	d.SetMaxOpenConns(1)
	b := &bareStore{db: d, postgres: !isFile, store: store}
	err = d.QueryRowContext(ctx, `SELECT tenant FROM document_store WHERE store = $1`, store).Scan(&b.tenant)
	if err == nil {
		b.vectors, err = d.PrepareContext(ctx, bareVectors)
	}
	if err == nil {
		b.chunks, err = d.PrepareContext(ctx, pick(isFile, bareSQLite, barePG))
	}
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("prepare the bare queries of %s: %w", store, err)
	}
	return b, nil
}

func (b *bareStore) close() { _ = b.db.Close() }

// read reads what a search in that mode reads, and does nothing with it.
func (b *bareStore) read(ctx context.Context, q question) error {
	if q.mode != "vector" {
		args := []any{b.tenant, b.store, `'` + strings.Join(q.words, `' | '`) + `'`}
		if !b.postgres {
			scope := strings.ToUpper(hex.EncodeToString([]byte(b.tenant + "\x1f" + b.store)))
			args = []any{`scope : "` + scope + `" AND words : ("` + strings.Join(q.words, `" OR "`) + `")`}
		}
		if err := drain(ctx, b.chunks, args...); err != nil {
			return err
		}
	}
	if q.mode != "text" {
		return drain(ctx, b.vectors, b.tenant, b.store)
	}
	return nil
}

func drain(ctx context.Context, s *sql.Stmt, args ...any) error {
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return fmt.Errorf("read without the server: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var id string
	var raw sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&id, &raw); err != nil {
			return fmt.Errorf("read without the server: %w", err)
		}
	}
	return rows.Err()
}

// embeddedText is a chunk with its vector.
type embeddedText struct {
	document, text string
	vector         []float32
}

// group returns the chunks of the documents of a group.
func (b *bareStore) group(ctx context.Context, group string) (found []embeddedText, err error) {
	rows, err := b.db.QueryContext(ctx, `SELECT c.document, c.text, v.vector FROM chunk c
			JOIN chunk_vector v ON v.tenant = c.tenant AND v.store = c.store AND v.document = c.document AND v.generation = c.generation AND v.revision = c.revision AND v.ordinal = c.ordinal
			JOIN document d ON d.tenant = c.tenant AND d.store = c.store AND d.id = c.document
		WHERE c.tenant = $1 AND c.store = $2 AND d.metadata LIKE $3 ORDER BY c.document, c.ordinal`, b.tenant, b.store, `%"`+group+`"%`)
	if err != nil {
		return nil, fmt.Errorf("read a group of documents: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var l embeddedText
		var raw []byte
		if err := rows.Scan(&l.document, &l.text, &raw); err != nil {
			return nil, fmt.Errorf("read a group of documents: %w", err)
		}
		for ; len(raw) >= 4; raw = raw[4:] {
			l.vector = append(l.vector, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
		found = append(found, l)
	}
	return found, rows.Err()
}

// nearest returns the n chunks that are nearest to one of them, compared one by one.
func nearest(all []embeddedText, to embeddedText, n int) []embeddedText {
	dot := func(l embeddedText) (sum float64) {
		for i := range min(len(l.vector), len(to.vector)) {
			sum += float64(l.vector[i]) * float64(to.vector[i])
		}
		return sum
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b embeddedText) int { return cmp.Compare(dot(b), dot(a)) })
	return sorted[:min(n, len(sorted))]
}
