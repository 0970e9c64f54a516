package corpus

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"stoa/agentsvc/processor"
	"stoa/tenancy/db"
)

// scans lets a bounded number of searches read the rows of their stores at the same time, the apps in turn: each reads up
// to some hundred MiB from the database, of which one row at a time is in memory. More of them at once would not be faster,
// since they need the processor; one processor is left to the other work.
var scans = processor.NewPermits(max(1, runtime.GOMAXPROCS(0)-1))

// MatchVectors returns up to limit chunks by the cosine similarity of their vectors, made by model, and vector, best first. It
// compares every vector of the scope that has the length of vector, in the app's turn, or, in a large scope, those that the
// store's approximate index has found. It finds nothing in a generation whose vectors another model made, or of another length.
func (s *Search) MatchVectors(ctx context.Context, scope Scope, model string, vector []float32, limit int) ([]Match, error) {
	query := decodeVector(encodeVector(vector))
	if len(query) == 0 || limit <= 0 || scope.isEmpty() || !isStorableText(model) {
		return nil, nil
	}
	if err := scans.Acquire(ctx, s.tenant); err != nil {
		return nil, err
	}
	defer scans.Release()
	if found, ok, err := s.matchIndexed(ctx, scope, model, query, limit); ok || err != nil {
		return found, err
	}
	best := newTopMatches(limit)
	var b db.Batch
	in := s.addScopeQuery(&b, scope)
	condition, args, next := s.chunksSQL(scope)
	var id, raw db.RowBytes
	var revision int64
	var m Match
	b.Query(func(r db.Row) error {
		if err := r.Scan(&id, &revision, &m.Ordinal, &raw); err != nil {
			return err
		}
		document := in.find(id, revision)
		if document < 0 || len(raw) != 4*len(query) {
			return nil
		}
		m.Document, m.Score = in.all[document].id, dotProduct(raw, query)
		best.add(m)
		return nil
	}, `SELECT c.document, c.revision, c.ordinal, c.vector FROM chunk_vector c WHERE `+condition+fmt.Sprintf(` AND c.model = $%d AND octet_length(c.vector) = $%d`, next, next+1),
		append(args, model, 4*len(query))...)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("compare vectors: %w", err)
	}
	return s.withIDs(best.sorted(), scope, in), nil
}

// topMatches keeps the best matches of any number, in memory for limit of them.
type topMatches struct {
	worstFirst matchHeap
	limit      int
}

func newTopMatches(limit int) *topMatches {
	return &topMatches{worstFirst: make(matchHeap, 0, min(limit, 1024)), limit: limit}
}

func (t *topMatches) add(m Match) {
	switch {
	case len(t.worstFirst) < t.limit:
		heap.Push(&t.worstFirst, m)
	case compareMatches(m, t.worstFirst[0]) < 0:
		t.worstFirst[0] = m
		heap.Fix(&t.worstFirst, 0)
	}
}

// sorted returns the matches, the best first.
func (t *topMatches) sorted() []Match {
	slices.SortFunc(t.worstFirst, compareMatches)
	return t.worstFirst
}

// compareMatches orders matches by score, the best first, and equal ones by their place, so that the order does not depend on
// the engine.
func compareMatches(a, b Match) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Document, b.Document), cmp.Compare(a.Ordinal, b.Ordinal))
}

// matchHeap implements [heap.Interface]; the worst match is at index 0.
type matchHeap []Match

func (h matchHeap) Len() int           { return len(h) }
func (h matchHeap) Less(i, j int) bool { return compareMatches(h[i], h[j]) > 0 }
func (h matchHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *matchHeap) Push(m any) { *h = append(*h, m.(Match)) }

// Pop implements [heap.Interface]. It is not used.
func (h *matchHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
