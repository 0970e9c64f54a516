package corpus

import "stoa/tenancy/db"

// liveRevision is a document in a scope, at the revision that is searched.
type liveRevision struct {
	id                   string
	generation, revision int64
}

// scopeRows are the documents in a scope, as a query has read them. The query that then reads chunks passes each through find: a join of
// every row of chunks with its document takes longer than reading the rows (docs/performance.md has both).
type scopeRows struct {
	all           []liveRevision
	byID          map[string]int // index in all
	last          int            // index in all: the rows of chunks come one document after the other
	chunks, words int64
}

// addScopeQuery adds the query that reads a scope's documents to b. It comes before the one that reads chunks.
func (s *Search) addScopeQuery(b *db.Batch, scope Scope) *scopeRows {
	x := &scopeRows{byID: map[string]int{}}
	var l liveRevision
	var chunks, words int64
	b.Query(func(r db.Row) error {
		if err := r.Scan(&l.id, &l.generation, &l.revision, &chunks, &words); err != nil {
			return err
		}
		x.byID[l.id] = len(x.all)
		x.all = append(x.all, l)
		x.chunks, x.words = x.chunks+chunks, x.words+words
		return nil
	}, `SELECT l.document, l.generation, l.revision, l.chunks, l.word_count FROM `+s.scopeSQL(scope), s.scopeArgs(scope)...)
	return x
}

// find returns the index in all of the document that a chunk belongs to, -1 if the chunk is not in the scope. Its generation is checked by
// the query that reads chunks.
func (x *scopeRows) find(document []byte, revision int64) int {
	if len(x.all) == 0 {
		return -1
	}
	if x.all[x.last].id != string(document) {
		at, ok := x.byID[string(document)]
		if !ok {
			return -1
		}
		x.last = at
	}
	if x.all[x.last].revision != revision {
		return -1
	}
	return x.last
}

// chunksSQL returns the condition on rows c of chunk or chunk_vector which a search of the scope reads: those of its store's live generation;
// with a filter those of the documents in the scope, which may be a small part of the store. It returns its arguments and the number of
// the next one as well.
func (s *Search) chunksSQL(scope Scope) (condition string, args []any, next int) {
	const all = `c.tenant = $1 AND c.store = $2 AND c.generation = ` + generationSQL
	if len(scope.Filter) == 0 {
		return all, []any{s.tenant, scope.Store}, 3
	}
	args = s.scopeArgs(scope)
	return all + ` AND c.document IN (SELECT l.document FROM ` + s.scopeSQL(scope) + `)`, args, len(args) + 1
}

// withIDs sets the ids of the chunks that were found. They follow from what the rows say, so that no row of a chunk that was not found is
// read with its id.
func (s *Search) withIDs(found []Match, scope Scope, in *scopeRows) []Match {
	for i, m := range found {
		l := in.all[in.byID[m.Document]]
		found[i].Chunk = s.ChunkID(scope.Store, l.id, l.generation, l.revision, m.Ordinal)
	}
	return found
}
