// Package vectorstore is the interface to storage that finds the nearest vectors: a [Store]. The folders below hold one
// kind each, remote what those on other machines share, and vectorstoretest the suite that all of them must pass.
//
// A store receives ids and vectors that were made elsewhere (package embedder), never a text: what a vector stands for
// is looked up by its id in the platform's database. Collections are isolated: a document of one is never found in
// another. The caller decides which collections a tenant may use.
package vectorstore

import (
	"context"
	"errors"
)

// Store stores vectors. Implementations are safe for concurrent use. A collection exists from its first document on; a
// missing collection is empty. All vectors of a collection have the same length. Every method may be repeated after an
// error. A store on another machine returns an [*UnavailableError] if the call may succeed later, and a
// [*RejectedError] if it cannot.
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

// MaxDimension is the largest length of a vector. Vendors' models have at most 4,096 numbers. A vector of this length takes
// 16 KiB, so it also bounds what one chunk costs in memory and in a database.
const MaxDimension = 4096

// ErrNoMemory is the Err of a [*RejectedError] of a store in this process that may not have more vectors in memory.
var ErrNoMemory = errors.New("no memory for more vectors")

// Document is a vector with its id, which is unique within a collection. The id is a UUID in its usual form: several
// kinds of stores accept no other.
type Document struct {
	ID     string
	Vector []float32
}

// Query selects at most Limit documents whose score is at least MinScore.
type Query struct {
	Vector   []float32
	Limit    int
	MinScore float32
}

// Match is a found document. Score is the cosine similarity of its vector and the query's: 1 for the same direction, 0
// for orthogonal ones, -1 for opposite ones.
type Match struct {
	ID    string
	Score float32
}

// UnavailableError reports that a store on another machine cannot be reached, has no capacity or did not answer in
// time. The same call may succeed later. It contains nothing of the store's text.
type UnavailableError struct {
	Store   string // its type, such as qdrant
	Message string
	// Err is the cause; it may contain addresses and is not part of the text.
	Err error
}

// Error returns one line for callers.
func (e *UnavailableError) Error() string {
	return "the vector store (" + e.Store + ") is not available: " + e.Message
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// RejectedError reports that a store on another machine refused a request or answered unusably, or that its address may
// not be called. The same call fails again until the configuration or the store is changed. It contains nothing of the
// store's text.
type RejectedError struct {
	Store   string // its type, such as qdrant
	Message string
	// Err is the cause; it may contain addresses and is not part of the text.
	Err error
}

// Error returns one line for callers.
func (e *RejectedError) Error() string { return "the vector store (" + e.Store + ") " + e.Message }

// Unwrap returns the cause.
func (e *RejectedError) Unwrap() error { return e.Err }
