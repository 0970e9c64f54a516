package corpus

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// Search finds chunks of a tenant. Reader and filter are conditions of each statement, so that they restrict what is ranked.
// It reads the whole store, or its approximate index if the store is large and has one: docs/decisions/exact-search.md.
type Search struct{ rows }

// Scope is where a search looks: the live generation of a store, of that the documents which the reader may read and whose
// metadata has every value of the filter.
type Scope struct {
	Store  string
	Filter map[string]string
	Reader document.Reader
}

// isEmpty reports whether no document can be in the scope.
func (s Scope) isEmpty() bool { return !isStorableText(s.Store) || !isStorableFilter(s.Filter) }

// scopeSQL is the table l of the documents in a scope: their rows of document_live in the live generation. The arguments of
// scopeArgs are the first.
//
// The materialized steps and the scalar sub-select make PostgreSQL look up each next table by its whole key. In one join, as
// long as it has no statistics of the tables, it expects one row everywhere and reads the whole store for each document:
// 2.7 s instead of 0.1 s for 10,000 chunks (BenchmarkSearch). The statement of a query must begin
// with SELECT, or it would use SQLite's writing connection. SQLite joins the tables in the order of a CROSS JOIN.
func (s *Search) scopeSQL(scope Scope) string {
	if s.h.Engine() == db.SQLite {
		return `(SELECT l.* FROM document_live l CROSS JOIN document d ON d.tenant = l.tenant AND d.store = l.store AND d.id = l.document
			WHERE l.tenant = $1 AND l.store = $2 AND l.generation = ` + generationSQL + ` AND ` + s.documentSQL(scope) + `) l`
	}
	return `(WITH live AS MATERIALIZED (SELECT tenant, store, document, generation, revision, chunks, word_count, indexed_revision FROM document_live
				WHERE tenant = $1 AND store = $2 AND generation = ` + generationSQL + `),
			readable AS MATERIALIZED (SELECT * FROM live WHERE (SELECT ` + s.documentSQL(scope) + `
				FROM document d WHERE d.tenant = live.tenant AND d.store = live.store AND d.id = live.document))
		SELECT * FROM readable) l`
}

// documentSQL restricts documents d to a scope.
func (s *Search) documentSQL(scope Scope) string {
	if len(scope.Filter) == 0 {
		return s.readableSQL(3)
	}
	return s.readableSQL(3) + ` AND ` + s.filterSQL("$7")
}

// filterSQL is the condition that the metadata of d has every value of the object in the parameter.
func (s *Search) filterSQL(parameter string) string {
	if s.h.Engine() == db.Postgres {
		return `CAST(d.metadata AS jsonb) @> CAST(CAST(` + parameter + ` AS TEXT) AS jsonb)`
	}
	// The filter is read once for the statement, the metadata once for a document.
	return `(SELECT COUNT(*) FROM json_each(d.metadata) m WHERE (m.key, m.value) IN (SELECT f.key, f.value FROM json_each(` + parameter + `) f))
		= (SELECT COUNT(*) FROM json_each(` + parameter + `))`
}

func (s *Search) scopeArgs(scope Scope) []any {
	args := append([]any{s.tenant, scope.Store}, readerArgs(scope.Reader)...)
	if len(scope.Filter) > 0 {
		args = append(args, encodeJSON(scope.Filter))
	}
	return args
}

// chunkOfLive joins chunks c with the row l of document_live that they belong to.
const chunkOfLive = ` ON c.tenant = l.tenant AND c.store = l.store AND c.document = l.document AND c.generation = l.generation AND c.revision = l.revision`

// Match is a chunk that a leg of a search has found, with the leg's score.
type Match struct {
	Chunk    string // id
	Document string
	Ordinal  int
	Score    float64
}

// Generations returns the generations of a store, and the model of the vectors in the live one, "" = none. An external
// collection is searched for the live generation. The error is [agentsvc.ErrNotFound] if the store does not exist.
func (s *Search) Generations(ctx context.Context, store string) (g Generations, embedder string, err error) {
	if !isStorableText(store) {
		return g, "", agentsvc.ErrNotFound
	}
	err = s.read(ctx, "read the generations of a document store", func(r db.Row) error { return r.Scan(&g.Live, &g.Building, &embedder) },
		`SELECT generation, building, embedder FROM document_store WHERE tenant = $1 AND store = $2 AND state = ''`, s.tenant, store)
	if err == nil && g.Live == 0 {
		err = agentsvc.ErrNotFound
	}
	return g, embedder, err
}

// FoundChunk is a chunk of a searchable document.
type FoundChunk struct {
	ID        string
	Document  string
	Title     string
	MediaType string
	URL       string
	Metadata  map[string]string
	document.Chunk
}

// passageColumns are the columns of a chunk c and its document d, for scanPassage.
const passageColumns = `SELECT c.id, c.document, d.title, d.media_type, d.url, d.metadata, c.ordinal, c.start_at, c.end_at, c.page, c.heading, c.sheet, c.line, c.text`

// scanPassage reads passageColumns.
func scanPassage(r db.Row) (f FoundChunk, err error) {
	var metadata string
	err = r.Scan(&f.ID, &f.Document, &f.Title, &f.MediaType, &f.URL, &metadata, &f.Ordinal, &f.Start, &f.End, &f.Place.Page, &f.Place.Heading, &f.Place.Sheet,
		&f.Place.Line, &f.Text)
	if err == nil {
		f.Metadata, _, err = decodeMetadata(metadata, openAccess)
	}
	return f, err
}

// LoadPassages returns the chunks with these ids, in their order. Those that are not in the scope are left out, whatever
// suggested them.
func (s *Search) LoadPassages(ctx context.Context, scope Scope, ids []string) ([]FoundChunk, error) {
	if len(ids) == 0 || scope.isEmpty() || !isStorableText(ids...) {
		return nil, nil
	}
	found := make(map[string]FoundChunk, len(ids))
	args := append(s.scopeArgs(scope), encodeJSON(ids))
	err := s.read(ctx, "read passages", func(r db.Row) error {
		f, err := scanPassage(r)
		found[f.ID] = f
		return err
	}, passageColumns+` FROM (WITH found AS MATERIALIZED (SELECT tenant, store, document, generation, revision, id, ordinal, start_at, end_at, page, heading, sheet,
				line, text FROM chunk WHERE tenant = $1 AND `+s.inList("id", fmt.Sprintf("$%d", len(args)))+`),
			live AS MATERIALIZED (SELECT * FROM found f WHERE f.store = $2 AND f.generation = `+generationSQL+` AND f.revision = (SELECT l.revision
				FROM document_live l WHERE l.tenant = f.tenant AND l.store = f.store AND l.document = f.document AND l.generation = f.generation))
			SELECT * FROM live) c `+s.joinDocument()+` WHERE `+s.documentSQL(scope), args...)
	if err != nil {
		return nil, err
	}
	out := make([]FoundChunk, 0, len(found))
	for _, id := range ids {
		if f, ok := found[id]; ok {
			out = append(out, f)
			delete(found, id)
		}
	}
	return out, nil
}

// joinDocument joins chunks c with their documents d. OFFSET keeps PostgreSQL from joining otherwise than by the whole key: without
// statistics of the tables it compares each chunk with every document of the store.
func (s *Search) joinDocument() string {
	const key = `d.tenant = c.tenant AND d.store = c.store AND d.id = c.document`
	if s.h.Engine() == db.Postgres {
		return `CROSS JOIN LATERAL (SELECT * FROM document d WHERE ` + key + ` OFFSET 0) d`
	}
	return `JOIN document d ON ` + key
}

// Span is a range of ordinals of a document, both inclusive.
type Span struct {
	Document string
	From, To int
}

// maxSpans bounds the spans of [Search.LoadNeighbours].
const maxSpans = 200

// LoadNeighbours returns the chunks of spans that are in the scope, ordered by span and ordinal.
func (s *Search) LoadNeighbours(ctx context.Context, scope Scope, spans []Span) (found []FoundChunk, err error) {
	if scope.isEmpty() || len(spans) == 0 {
		return nil, nil
	}
	if len(spans) > maxSpans {
		return nil, fmt.Errorf("%d neighbours are read at once, at most %d may be", len(spans), maxSpans)
	}
	// One statement for each span keeps their order; they are one round trip and see one state.
	var b db.Batch
	args := s.scopeArgs(scope)
	args = args[:len(args):len(args)]
	next := len(args) + 1
	for _, span := range spans {
		if !isStorableText(span.Document) {
			continue
		}
		b.Query(func(r db.Row) error {
			f, err := scanPassage(r)
			found = append(found, f)
			return err
		}, passageColumns+` FROM document_live l JOIN document d ON d.tenant = l.tenant AND d.store = l.store AND d.id = l.document
				JOIN chunk c`+chunkOfLive+`
			WHERE l.tenant = $1 AND l.store = $2 AND l.generation = `+generationSQL+` AND `+s.documentSQL(scope)+
			fmt.Sprintf(` AND l.document = $%d AND c.ordinal BETWEEN $%d AND $%d ORDER BY c.ordinal`, next, next+1, next+2),
			append(args, span.Document, int64(span.From), int64(span.To))...)
	}
	if b.IsEmpty() {
		return nil, nil
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read neighbouring passages: %w", err)
	}
	return found, nil
}
