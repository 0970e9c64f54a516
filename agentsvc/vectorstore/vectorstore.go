// Package vectorstore is the interface to storage that finds the nearest vectors: a [Store]. The folders below hold one
// kind each, and vectorstoretest the suite that all of them must pass.
//
// A store receives vectors that were made elsewhere (package embedder); texts are only stored and returned. Collections
// are isolated: a document of one is never found in another. The caller decides which collections a tenant may use.
package vectorstore

import "context"

// Store stores vectors. Implementations are safe for concurrent use. A collection exists from its first document on; a
// missing collection is empty. All vectors of a collection have the same length.
type Store interface {
	// UpsertDocuments adds documents to a collection. A document whose id exists replaces the one before.
	UpsertDocuments(ctx context.Context, collection string, docs []Document) error
	// FindMissing returns the ids that the collection does not contain, in the given order.
	FindMissing(ctx context.Context, collection string, ids []string) ([]string, error)
	// Search returns the nearest documents of a collection, the nearest first.
	Search(ctx context.Context, collection string, q Query) ([]Match, error)
	// DeleteDocuments removes documents. Missing ids are ignored.
	DeleteDocuments(ctx context.Context, collection string, ids []string) error
	// DropCollection removes a collection and its documents. A missing one is no error.
	DropCollection(ctx context.Context, collection string) error
	// Close releases everything the store has acquired.
	Close() error
}

// Document is a vector with its text. ID is unique within a collection. Metadata can be filtered by Query.Where.
type Document struct {
	ID       string
	Vector   []float32
	Text     string
	Metadata map[string]string
}

// Query selects at most Limit documents whose score is at least MinScore and whose metadata has every value of Where.
type Query struct {
	Vector   []float32
	Limit    int
	MinScore float32
	Where    map[string]string
}

// Match is a found document, without its vector. Score is the cosine similarity of its vector and the query's: 1 for
// the same direction, 0 for orthogonal ones, -1 for opposite ones.
type Match struct {
	Document
	Score float32
}
