package remotetest

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"

	"stoa/agentsvc/vectorstore"
)

// Index has the collections of a server in the test's own process.
type Index struct {
	mu          sync.Mutex
	collections map[string]map[string][]float32 // vectors by collection and id
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{collections: map[string]map[string][]float32{}}
}

// Create creates a collection and reports whether it is new.
func (x *Index) Create(collection string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.collections[collection] != nil {
		return false
	}
	x.collections[collection] = map[string][]float32{}
	return true
}

// Has reports whether a collection exists.
func (x *Index) Has(collection string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.collections[collection] != nil
}

// Drop removes a collection and reports whether it existed.
func (x *Index) Drop(collection string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, existed := x.collections[collection]
	delete(x.collections, collection)
	return existed
}

// Put adds a document to a collection that exists.
func (x *Index) Put(collection, id string, vector []float32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.collections[collection]; c != nil {
		c[id] = slices.Clone(vector)
	}
}

// Delete removes documents.
func (x *Index) Delete(collection string, ids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		delete(x.collections[collection], id)
	}
}

// Find returns those of ids that exist.
func (x *Index) Find(collection string, ids []string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return x.collections[collection][id] == nil })
}

// List returns the ids of all documents by collection.
func (x *Index) List() map[string][]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[string][]string{}
	for name, c := range x.collections {
		all[name] = slices.Sorted(maps.Keys(c))
	}
	return all
}

// Search returns the limit nearest documents of a collection.
func (x *Index) Search(collection string, vector []float32, limit int) []vectorstore.Match {
	x.mu.Lock()
	defer x.mu.Unlock()
	matches := []vectorstore.Match{}
	for _, id := range slices.Sorted(maps.Keys(x.collections[collection])) {
		matches = append(matches, vectorstore.Match{ID: id, Score: cosine(x.collections[collection][id], vector)})
	}
	slices.SortStableFunc(matches, func(a, b vectorstore.Match) int { return cmp.Compare(b.Score, a.Score) })
	return matches[:min(limit, len(matches))]
}

// cosine returns the cosine of the angle between two vectors.
func cosine(a, b []float32) float32 {
	var product, squareA, squareB float64
	for i := range min(len(a), len(b)) {
		product += float64(a[i]) * float64(b[i])
		squareA += float64(a[i]) * float64(a[i])
		squareB += float64(b[i]) * float64(b[i])
	}
	return float32(product / math.Sqrt(squareA*squareB))
}
