// Package vectorstoretest is the suite that every implementation of vectorstore.Store must pass. A test of an
// implementation calls [RunSuite] with a constructor.
package vectorstoretest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"stoa/agentsvc/vectorstore"
)

// RunSuite checks that stores behave as [vectorstore.Store] requires. Each test gets a new store from newStore.
func RunSuite(t *testing.T, newStore func(t *testing.T) vectorstore.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s vectorstore.Store)
	}{
		{"search", testSearch}, {"score", testScore}, {"limits", testLimits}, {"replace", testReplace}, {"missing", testMissing},
		{"delete", testDelete}, {"drop", testDropCollection}, {"collections are apart", testCollectionsIsolated}, {"empty", testEmpty}, {"many", testManyDocuments},
		{"names", testCollectionNames}, {"concurrent", testConcurrentUse},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			c.test(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The ids of the tests' documents, which are UUIDs as some stores require.
var (
	east, north = newID("east"), newID("north")
	west, south = newID("west"), newID("south")
)

// newID returns the id for a name.
func newID(name string) string { return uuid.NewSHA1(uuid.Nil, []byte(name)).String() }

// compassDocuments returns four documents with perpendicular or opposite vectors.
func compassDocuments() []vectorstore.Document {
	return []vectorstore.Document{
		{ID: east, Vector: []float32{1, 0}}, {ID: north, Vector: []float32{0, 3}},
		{ID: west, Vector: []float32{-1, 0}}, {ID: south, Vector: []float32{0, -1}},
	}
}

// upsertDocuments adds documents or fails the test.
func upsertDocuments(t *testing.T, s vectorstore.Store, collection string, docs ...vectorstore.Document) {
	t.Helper()
	if err := s.UpsertDocuments(t.Context(), collection, docs); err != nil {
		t.Fatal(err)
	}
}

// searchIDs returns the ids that a search finds, in order.
func searchIDs(t *testing.T, s vectorstore.Store, collection string, q vectorstore.Query) []string {
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

// requireIDs fails the test if got differs from want.
func requireIDs(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Error(diff)
	}
}

// testSearch checks the order of matches; the length of vectors must not matter.
func testSearch(t *testing.T, s vectorstore.Store) {
	upsertDocuments(t, s, "c", compassDocuments()...)
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{10, 1}, Limit: 2}), east, north)
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{-1, -2}, Limit: 4, MinScore: -2}), south, west, east, north)
}

// testScore checks the score.
func testScore(t *testing.T, s vectorstore.Store) {
	upsertDocuments(t, s, "c", compassDocuments()...)
	got, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{5, 5}, Limit: 1})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if math.Abs(float64(got[0].Score)-math.Sqrt2/2) > 1e-3 {
		t.Errorf("the score is %v, want %v", got[0].Score, math.Sqrt2/2)
	}
}

// testLimits checks Limit, also 0, and MinScore.
func testLimits(t *testing.T, s vectorstore.Store) {
	upsertDocuments(t, s, "c", compassDocuments()...)
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 100, MinScore: 0.5}), east)
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}}))
}

// testReplace checks that an existing id is replaced.
func testReplace(t *testing.T, s vectorstore.Store) {
	upsertDocuments(t, s, "c", compassDocuments()...)
	upsertDocuments(t, s, "c", vectorstore.Document{ID: west, Vector: []float32{1, 0.01}})
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.02}, Limit: 2}), west, east)
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{-1, 0.02}, Limit: 4, MinScore: 0.5}))
}

// testMissing checks FindMissing with and without a collection.
func testMissing(t *testing.T, s vectorstore.Store) {
	up, down := newID("up"), newID("down")
	ids := []string{up, east, down, south}
	got, err := s.FindMissing(t.Context(), "c", ids)
	if err != nil {
		t.Fatal(err)
	}
	requireIDs(t, got, ids...)
	upsertDocuments(t, s, "c", compassDocuments()...)
	if got, err = s.FindMissing(t.Context(), "c", ids); err != nil {
		t.Fatal(err)
	}
	requireIDs(t, got, up, down)
}

// testDelete checks that deleting is repeatable and ignores missing ids.
func testDelete(t *testing.T, s vectorstore.Store) {
	upsertDocuments(t, s, "c", compassDocuments()...)
	for range 2 {
		if err := s.DeleteDocuments(t.Context(), "c", []string{east, newID("nowhere")}); err != nil {
			t.Fatal(err)
		}
	}
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2}), north, south, west)
}

// testDropCollection checks that only the given collection is removed, repeatably.
func testDropCollection(t *testing.T, s vectorstore.Store) {
	upsertDocuments(t, s, "c", compassDocuments()...)
	upsertDocuments(t, s, "d", compassDocuments()...)
	for range 2 {
		if err := s.DropCollection(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}))
	requireIDs(t, searchIDs(t, s, "d", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}), east)
}

// testCollectionsIsolated checks that no operation reaches another collection.
func testCollectionsIsolated(t *testing.T, s vectorstore.Store) {
	mine := newID("mine")
	upsertDocuments(t, s, "alice", compassDocuments()...)
	upsertDocuments(t, s, "bob", vectorstore.Document{ID: mine, Vector: []float32{0, 1}})
	requireIDs(t, searchIDs(t, s, "bob", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 4, MinScore: -2}), mine)
	if err := s.DeleteDocuments(t.Context(), "bob", []string{east}); err != nil {
		t.Fatal(err)
	}
	requireIDs(t, searchIDs(t, s, "alice", vectorstore.Query{Vector: []float32{1, 0.1}, Limit: 1}), east)
	got, err := s.FindMissing(t.Context(), "bob", []string{east})
	if err != nil {
		t.Fatal(err)
	}
	requireIDs(t, got, east)
}

// testEmpty checks operations on a missing collection.
func testEmpty(t *testing.T, s vectorstore.Store) {
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}))
	if err := s.DeleteDocuments(t.Context(), "c", []string{newID("x")}); err != nil {
		t.Error(err)
	}
	upsertDocuments(t, s, "c")
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1}))
}

// testManyDocuments checks that more documents than fit in one request are written, found and deleted.
func testManyDocuments(t *testing.T, s vectorstore.Store) {
	const many = 230
	docs, ids := make([]vectorstore.Document, many), make([]string, many)
	for i := range docs {
		angle := math.Pi / 2 * float64(i) / many
		ids[i] = newID(fmt.Sprint(i))
		docs[i] = vectorstore.Document{ID: ids[i], Vector: []float32{float32(math.Cos(angle)), float32(math.Sin(angle))}}
	}
	upsertDocuments(t, s, "c", docs...)
	if missing, err := s.FindMissing(t.Context(), "c", ids); err != nil || len(missing) != 0 {
		t.Errorf("%d of %d documents are missing: %v", len(missing), many, err)
	}
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 3}), ids[:3]...)
	if got := searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 50}); len(got) != 50 {
		t.Errorf("a search for 50 documents finds %d", len(got))
	}
	if err := s.DeleteDocuments(t.Context(), "c", ids[:many-1]); err != nil {
		t.Fatal(err)
	}
	requireIDs(t, searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 3, MinScore: -2}), ids[many-1])
}

// testCollectionNames checks that names of any length and alphabet work, and that names with a common beginning or in
// another case are different.
func testCollectionNames(t *testing.T, s vectorstore.Store) {
	long := strings.Repeat("a-long.name/", 60)
	for i, name := range []string{"a", "A", "é 世界 \"'\\", long, long + "x"} {
		id := newID(fmt.Sprint(i))
		upsertDocuments(t, s, name, vectorstore.Document{ID: id, Vector: []float32{1, 0}})
		requireIDs(t, searchIDs(t, s, name, vectorstore.Query{Vector: []float32{1, 0}, Limit: 5}), id)
	}
}

// testConcurrentUse writes, searches and deletes at the same time.
func testConcurrentUse(t *testing.T, s vectorstore.Store) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := newID(fmt.Sprint(i))
			if err := s.UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: id, Vector: []float32{1, float32(i)}}}); err != nil {
				t.Error(err)
			}
			if _, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1, 1}, Limit: 3}); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if err := s.DeleteDocuments(t.Context(), "c", []string{id}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(searchIDs(t, s, "c", vectorstore.Query{Vector: []float32{1, 1}, Limit: 100, MinScore: -2})); n != 4 {
		t.Errorf("%d documents are left, want 4", n)
	}
}
