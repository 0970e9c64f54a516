// Package remote is what the vector stores on other machines share. A kind of store implements [Backend], a few requests
// with at most [MaxBatch] ids or documents each, and [NewStore] makes a vectorstore.Store of it: batches, names of
// collections, collections that do not exist yet, retries and errors stand here once.
//
// Requests go through the app's egress client: over HTTP by [Client], over gRPC by [NewConn].
package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/db"
)

// Bounds of calls.
const (
	// MaxBatch is the largest number of ids or documents in one request.
	MaxBatch = 100
	// maxBatchNumbers bounds the numbers in the vectors of one request: written as JSON they stay below the 2 MB that
	// Pinecone accepts, the least of all stores.
	maxBatchNumbers = 100_000
	// MaxMatches is the largest number of documents that a search returns.
	MaxMatches = 1000
	// maxTries is how often a request is sent, the first time included.
	maxTries = 3
)

// defaultTimeout bounds a request with all its retries.
const defaultTimeout = 30 * time.Second

// DefaultPrefix begins the names of collections if the configuration says nothing else.
const DefaultPrefix = "stoa"

// Options say where a store is. Egress is required.
type Options struct {
	// Host is a name or an address, Port 0 the usual one of its type.
	Host string
	Port int
	// APIKey is sent as the store's type requires, "" = none.
	APIKey string
	// EnableTLS encrypts the connection. Port 443 is always encrypted.
	EnableTLS bool
	// Prefix begins the names of collections: letters, digits and underscores, the first a letter; "" = DefaultPrefix.
	Prefix string
	// Tenant is the app. It is part of the hash in the name of each collection, so that apps which share a server cannot
	// share a collection.
	Tenant string
	// Timeout bounds a request with all its retries, 0 = 30 s.
	Timeout time.Duration
	// Egress makes the connections.
	Egress *egress.Client
	// Memory is what the memory of answers is reserved from for Tenant; nil = no bound in addition to that of each answer.
	Memory *capacity.Pool
}

// newReservation returns an empty reservation for one answer.
func (o Options) newReservation() *capacity.MemoryReservation {
	return o.Memory.NewReservation(db.ID(o.Tenant), answerFactor)
}

// withDefaults returns o with the port of the store's type, and with TLS where the port implies it.
func (o Options) withDefaults(port int) Options {
	o.Port = cmp.Or(o.Port, port)
	o.EnableTLS = o.EnableTLS || o.Port == 443
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	return o
}

// Backend is one kind of store. Its methods get names that [Store] has made, and at most [MaxBatch] ids or documents.
// All but CreateCollection and Close return [ErrNotFound] if the collection does not exist.
type Backend interface {
	// CreateCollection creates a collection for vectors of a length, compared by cosine. An existing one is no error.
	CreateCollection(ctx context.Context, collection string, dimension int) error
	// Upsert adds documents, which a following Search and Find see.
	Upsert(ctx context.Context, collection string, docs []vectorstore.Document) error
	// Find returns those of ids that exist, in any order.
	Find(ctx context.Context, collection string, ids []string) ([]string, error)
	// Search returns the limit nearest documents, in any order.
	Search(ctx context.Context, collection string, vector []float32, limit int) ([]vectorstore.Match, error)
	// Delete removes documents. Missing ids are no error.
	Delete(ctx context.Context, collection string, ids []string) error
	// DropCollection removes a collection.
	DropCollection(ctx context.Context, collection string) error
	// Close releases everything the backend has acquired.
	Close() error
}

// ErrNotFound is what a [Backend] returns for a collection that does not exist.
var ErrNotFound = errors.New("the collection does not exist")

// Store is a vectorstore.Store on another machine.
type Store struct {
	kind           string // its type, for errors
	prefix, tenant string // of the options
	backend        Backend
}

// NewStore returns the store of a type with a backend. Of the options it uses Prefix and Tenant.
func NewStore(kind string, o Options, b Backend) *Store {
	return &Store{kind, cmp.Or(o.Prefix, DefaultPrefix), o.Tenant, b}
}

// collectionName returns the name of a collection in the store: the prefix, and a hash of prefix, tenant and name. It
// consists of letters, digits and underscores and is short, so that all kinds of stores accept it.
func (s *Store) collectionName(collection string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", s.prefix, s.tenant, collection))
	return forbidden.ReplaceAllString(s.prefix, "_") + "_" + hex.EncodeToString(sum[:16])
}

// forbidden matches what the name of a collection has not.
var forbidden = regexp.MustCompile(`[^A-Za-z0-9_]`)

// UpsertDocuments implements [vectorstore.Store]. If a batch fails, those before it remain stored.
func (s *Store) UpsertDocuments(ctx context.Context, collection string, docs []vectorstore.Document) error {
	name := s.collectionName(collection)
	for len(docs) > 0 {
		n := countBatch(docs)
		err := s.backend.Upsert(ctx, name, docs[:n])
		if errors.Is(err, ErrNotFound) {
			if err = s.backend.CreateCollection(ctx, name, len(docs[0].Vector)); err == nil {
				err = s.backend.Upsert(ctx, name, docs[:n])
			}
		}
		if errors.Is(err, ErrNotFound) {
			// It was dropped at the same time, or the server is of another kind.
			return &vectorstore.UnavailableError{Store: s.kind, Message: "a collection that was created does not exist", Err: err}
		}
		if err != nil {
			return fmt.Errorf("put documents: %w", err)
		}
		docs = docs[n:]
	}
	return nil
}

// countBatch returns how many of docs go into one request, at least one.
func countBatch(docs []vectorstore.Document) int {
	n, numbers := 0, 0
	for n < min(len(docs), MaxBatch) && (n == 0 || numbers+len(docs[n].Vector) <= maxBatchNumbers) {
		numbers += len(docs[n].Vector)
		n++
	}
	return n
}

// FindMissing implements [vectorstore.Store].
func (s *Store) FindMissing(ctx context.Context, collection string, ids []string) ([]string, error) {
	var missing []string
	for batch := range slices.Chunk(ids, MaxBatch) {
		found, err := s.backend.Find(ctx, s.collectionName(collection), batch)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("find documents: %w", err)
		}
		for _, id := range batch {
			if !slices.Contains(found, id) {
				missing = append(missing, id)
			}
		}
	}
	return missing, nil
}

// Search implements [vectorstore.Store]. It returns at most [MaxMatches] documents.
func (s *Store) Search(ctx context.Context, collection string, q vectorstore.Query) ([]vectorstore.Match, error) {
	if q.Limit < 1 {
		return nil, nil
	}
	limit := min(q.Limit, MaxMatches)
	matches, err := s.backend.Search(ctx, s.collectionName(collection), q.Vector, limit)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("search documents: %w", err)
	}
	// A score that is no number is not at least MinScore either.
	matches = slices.DeleteFunc(matches, func(m vectorstore.Match) bool { return !(m.Score >= q.MinScore) })
	slices.SortStableFunc(matches, func(a, b vectorstore.Match) int { return cmp.Compare(b.Score, a.Score) })
	return matches[:min(limit, len(matches))], nil
}

// DeleteDocuments implements [vectorstore.Store].
func (s *Store) DeleteDocuments(ctx context.Context, collection string, ids []string) error {
	for batch := range slices.Chunk(ids, MaxBatch) {
		if err := s.backend.Delete(ctx, s.collectionName(collection), batch); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("delete documents: %w", err)
		}
	}
	return nil
}

// DropCollection implements [vectorstore.Store].
func (s *Store) DropCollection(ctx context.Context, collection string) error {
	if err := s.backend.DropCollection(ctx, s.collectionName(collection)); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("drop a collection: %w", err)
	}
	return nil
}

// Close implements [vectorstore.Store].
func (s *Store) Close() error { return s.backend.Close() }
