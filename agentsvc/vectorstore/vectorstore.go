// Package vectorstore is the seam to what keeps vectors and finds the nearest: a [Store]. The folders below hold one
// kind each, and vectorstoretest the suite that every one of them passes.
//
// A store is handed vectors that are made already and knows no text but as something to give back. Collections are
// apart: nothing of one is ever found in another. Who may see which is its caller's affair.
package vectorstore

import "context"

// Store keeps vectors. It is safe for concurrent use. A collection comes into being with its first document; one that
// is not there is empty. All vectors of a collection have one length.
type Store interface {
	// UpsertDocuments adds documents to a collection. One whose id is there already takes its place.
	UpsertDocuments(ctx context.Context, collection string, docs []Document) error
	// FindMissing returns those of ids that the collection does not hold, in their order.
	FindMissing(ctx context.Context, collection string, ids []string) ([]string, error)
	// Search returns the documents of a collection that are nearest, the nearest first.
	Search(ctx context.Context, collection string, q Query) ([]Match, error)
	// DeleteDocuments removes documents. Ids that are not there are passed over.
	DeleteDocuments(ctx context.Context, collection string, ids []string) error
	// DropCollection removes a collection with everything in it.
	DropCollection(ctx context.Context, collection string) error
	// Close gives back what the store holds outside its memory.
	Close() error
}

// Document is a vector with what it stands for.
type Document struct {
	ID       string
	Vector   []float32
	Text     string
	Metadata map[string]string
}

// Query says what is looked for: at most Limit documents whose score is at least MinScore and whose metadata has every
// value of Where.
type Query struct {
	Vector   []float32
	Limit    int
	MinScore float32
	Where    map[string]string
}

// Match is a document that was found. Score is the cosine of the angle between its vector and the query's: 1 for the
// same direction, 0 for nothing in common. Its vector is left out.
type Match struct {
	Document
	Score float32
}
