// Package vectorstoretest is the suite that every vector store passes.
package vectorstoretest

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/vectorstore"
)

// Run holds the stores that open returns to what [vectorstore.Store] promises. Each test has one of its own.
func Run(t *testing.T, open func(t *testing.T) vectorstore.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s vectorstore.Store)
	}{
		{"search", search}, {"score", score}, {"limits", limits}, {"where", where}, {"replace", replace}, {"missing", missing},
		{"delete", remove}, {"drop", drop}, {"collections are apart", apart}, {"empty", empty}, {"concurrent", concurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			c.test(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// compass are documents that point in four directions.
func compass() []vectorstore.Document {
	return []vectorstore.Document{
		{ID: "east", Vector: []float32{1, 0}, Text: "east of here", Metadata: map[string]string{"axis": "x", "sign": "+"}},
		{ID: "north", Vector: []float32{0, 3}, Text: "north of here", Metadata: map[string]string{"axis": "y", "sign": "+"}},
		{ID: "west", Vector: []float32{-1, 0}, Text: "west of here", Metadata: map[string]string{"axis": "x", "sign": "-"}},
		{ID: "south", Vector: []float32{0, -1}, Text: "south of here", Metadata: map[string]string{"axis": "y", "sign": "-"}},
	}
}

func put(t *testing.T, s vectorstore.Store, collection string, docs ...vectorstore.Document) {
	t.Helper()
	if err := s.Put(t.Context(), collection, docs); err != nil {
		t.Fatal(err)
	}
}

// found returns the ids of what a search finds.
func found(t *testing.T, s vectorstore.Store, collection string, q vectorstore.Query) []string {
	t.Helper()
	matches, err := s.Search(t.Context(), collection, q)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, m := range matches {
		ids = append(ids, m.ID)
	}
	return ids
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Error(diff)
	}
}

func search(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{10, 1}, Limit: 2}), "east", "north")
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{-1, -2}, Limit: 4, MinScore: -2}), "south", "west", "east", "north")
}

func score(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	got, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{5, 5}, Limit: 1})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if math.Abs(float64(got[0].Score)-math.Sqrt2/2) > 1e-3 {
		t.Errorf("the score is %v, want %v", got[0].Score, math.Sqrt2/2)
	}
	if got[0].Text != got[0].ID+" of here" || got[0].Metadata["sign"] != "+" {
		t.Errorf("the document came back as %+v", got[0])
	}
}

func limits(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 100, MinScore: 0.5}), "east")
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}}))
}

func where(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2, Where: map[string]string{"axis": "y"}}), "north", "south")
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2, Where: map[string]string{"axis": "y", "sign": "-"}}), "south")
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2, Where: map[string]string{"axis": "z"}}))
}

func replace(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	put(t, s, "c", vectorstore.Document{ID: "west", Vector: []float32{1, 0.01}, Text: "moved"})
	got, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1, 0.02}, Limit: 2})
	if err != nil || len(got) != 2 || got[0].Text != "moved" || got[1].ID != "east" {
		t.Error(got, err)
	}
}

func missing(t *testing.T, s vectorstore.Store) {
	ids := []string{"up", "east", "down", "south"}
	got, err := s.Missing(t.Context(), "c", ids)
	if err != nil {
		t.Fatal(err)
	}
	want(t, got, ids...)
	put(t, s, "c", compass()...)
	if got, err = s.Missing(t.Context(), "c", ids); err != nil {
		t.Fatal(err)
	}
	want(t, got, "up", "down")
}

func remove(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	for range 2 {
		if err := s.Delete(t.Context(), "c", []string{"east", "nowhere"}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2}), "north", "south", "west")
}

func drop(t *testing.T, s vectorstore.Store) {
	put(t, s, "c", compass()...)
	put(t, s, "d", compass()...)
	for range 2 {
		if err := s.Drop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}))
	want(t, found(t, s, "d", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}), "east")
}

func apart(t *testing.T, s vectorstore.Store) {
	put(t, s, "alice", compass()...)
	put(t, s, "bob", vectorstore.Document{ID: "mine", Vector: []float32{0, 1}})
	want(t, found(t, s, "bob", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2}), "mine")
	if err := s.Delete(t.Context(), "bob", []string{"east"}); err != nil {
		t.Fatal(err)
	}
	want(t, found(t, s, "alice", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 1}), "east")
	got, err := s.Missing(t.Context(), "bob", []string{"east"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, got, "east")
}

func empty(t *testing.T, s vectorstore.Store) {
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}))
	if err := s.Delete(t.Context(), "c", []string{"x"}); err != nil {
		t.Error(err)
	}
	put(t, s, "c")
	want(t, found(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}))
}

func concurrent(t *testing.T, s vectorstore.Store) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := fmt.Sprint(i)
			if err := s.Put(t.Context(), "c", []vectorstore.Document{{ID: id, Vector: []float32{1, float32(i)}}}); err != nil {
				t.Error(err)
			}
			if _, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1, 1}, Limit: 3}); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if err := s.Delete(t.Context(), "c", []string{id}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(found(t, s, "c", vectorstore.Query{Vector: []float32{1, 1}, Limit: 100, MinScore: -2})); n != 4 {
		t.Errorf("%d documents are left, want 4", n)
	}
}
