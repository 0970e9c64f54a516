// Package chromem implements vectorstore.Store inside this process, optionally with a folder that persists the
// documents. A search compares the query with every vector of the collection: suited for thousands of them, not for
// millions.
package chromem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	chromem "github.com/philippgille/chromem-go"

	"stoa/agentsvc/vectorstore"
)

// Options configure a store.
type Options struct {
	// Path is the folder for the documents, created if missing; "" = memory only.
	Path string
	// Compress compresses the files in the folder.
	Compress bool
	// Prefix begins the names of collections; it has no slash. Stores with different prefixes do not see each other's.
	Prefix string
}

// collectionName returns the library's name of a collection.
func (o Options) collectionName(collection string) string {
	if o.Prefix == "" {
		return collection
	}
	return o.Prefix + "/" + collection
}

// Store is a vector store in this process. One process at a time may use a folder.
type Store struct {
	options Options
	// mu guards db, and serialises writes to the library, which reads some of its maps without its own lock.
	mu sync.RWMutex
	// db is nil until the store is first used, or as long as the folder cannot be read.
	db *chromem.DB
}

// New returns a store. It does not access the folder before the first use.
func New(o Options) *Store { return &Store{options: o} }

// openDB opens the library's store if it is not open. The caller holds mu for writing.
func (s *Store) openDB() error {
	switch {
	case s.db != nil:
		return nil
	case s.options.Path == "":
		s.db = chromem.NewDB()
		return nil
	}
	// All documents of the folder are read into memory.
	db, err := chromem.NewPersistentDB(s.options.Path, s.options.Compress)
	if err != nil {
		return fmt.Errorf("open the vector store at %s: %w", s.options.Path, err)
	}
	s.db = db
	return nil
}

// findCollection returns a collection, or nil. The caller holds mu for reading at least.
func (s *Store) findCollection(name string) *chromem.Collection {
	return s.db.GetCollection(s.options.collectionName(name), rejectEmbedding)
}

// lockForRead opens the store if necessary and locks mu for reading; unlock releases it. The lock is not upgraded but
// taken again: db, once set, is never reset.
func (s *Store) lockForRead() (unlock func(), err error) {
	s.mu.RLock()
	if s.db == nil {
		s.mu.RUnlock()
		s.mu.Lock()
		err := s.openDB()
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		s.mu.RLock()
	}
	return s.mu.RUnlock, nil
}

// rejectEmbedding is the embedding function that the library requires. It is never called, since every document has a
// vector.
func rejectEmbedding(context.Context, string) ([]float32, error) {
	return nil, errors.New("a document has no vector")
}

// UpsertDocuments implements [vectorstore.Store]. If a document fails, those before it remain stored.
func (s *Store) UpsertDocuments(ctx context.Context, collection string, docs []vectorstore.Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openDB(); err != nil || len(docs) == 0 {
		return err
	}
	// The library normalises vectors, so the similarity is the cosine.
	c, err := s.db.GetOrCreateCollection(s.options.collectionName(collection), nil, rejectEmbedding)
	if err != nil {
		return fmt.Errorf("open collection %s: %w", collection, err)
	}
	for _, d := range docs {
		if err := c.AddDocument(ctx, chromem.Document{ID: d.ID, Embedding: d.Vector}); err != nil {
			return fmt.Errorf("put document %s: %w", d.ID, err)
		}
	}
	return nil
}

// FindMissing implements [vectorstore.Store]. It returns ids itself if the collection does not exist.
func (s *Store) FindMissing(ctx context.Context, collection string, ids []string) ([]string, error) {
	unlock, err := s.lockForRead()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := s.findCollection(collection)
	if c == nil {
		return ids, nil
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		_, err := c.GetByID(ctx, id)
		return err == nil
	}), nil
}

// Search implements [vectorstore.Store]. The library requires a limit no larger than the collection.
func (s *Store) Search(ctx context.Context, collection string, q vectorstore.Query) ([]vectorstore.Match, error) {
	unlock, err := s.lockForRead()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := s.findCollection(collection)
	if c == nil || c.Count() == 0 || q.Limit < 1 {
		return nil, nil
	}
	// MinScore is applied afterwards: the library has no such bound.
	found, err := c.QueryEmbedding(ctx, q.Vector, min(q.Limit, c.Count()), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("search collection %s: %w", collection, err)
	}
	// The library returns matches in descending order of similarity.
	var matches []vectorstore.Match
	for _, f := range found {
		if f.Similarity >= q.MinScore {
			matches = append(matches, vectorstore.Match{ID: f.ID, Score: f.Similarity})
		}
	}
	return matches, nil
}

// DeleteDocuments implements [vectorstore.Store].
func (s *Store) DeleteDocuments(ctx context.Context, collection string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openDB(); err != nil {
		return err
	}
	c := s.findCollection(collection)
	if c == nil {
		return nil
	}
	// The library fails for ids that do not exist.
	existing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		_, err := c.GetByID(ctx, id)
		return err != nil
	})
	if len(existing) == 0 {
		return nil
	}
	if err := c.Delete(ctx, nil, nil, existing...); err != nil {
		return fmt.Errorf("delete from collection %s: %w", collection, err)
	}
	return nil
}

// DropCollection implements [vectorstore.Store]. The library ignores a missing collection.
func (s *Store) DropCollection(_ context.Context, collection string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openDB(); err != nil {
		return err
	}
	if err := s.db.DeleteCollection(s.options.collectionName(collection)); err != nil {
		return fmt.Errorf("drop collection %s: %w", collection, err)
	}
	return nil
}

// Close implements [vectorstore.Store]. Documents are written to the folder when they are added, so nothing is left to
// do.
func (s *Store) Close() error { return nil }
