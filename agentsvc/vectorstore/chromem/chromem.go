// Package chromem keeps vectors inside this process, and in a folder where it is given one. A search looks at every
// vector of its collection: right for thousands of them, not for millions.
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

// Options say where vectors are kept.
type Options struct {
	Path     string // folder that outlives the process, made if missing; in memory alone if empty
	Compress bool   // what stands in the folder
}

// Store is a vector store in this process.
type Store struct {
	options Options
	mu      sync.RWMutex // the library reads some of its maps without its own
	db      *chromem.DB  // nil until it is first used
}

// New returns a store. It touches the folder when it is first used.
func New(o Options) *Store { return &Store{options: o} }

// openDB reads the folder once. The caller holds the lock for writing.
func (s *Store) openDB() error {
	switch {
	case s.db != nil:
		return nil
	case s.options.Path == "":
		s.db = chromem.NewDB()
		return nil
	}
	db, err := chromem.NewPersistentDB(s.options.Path, s.options.Compress)
	if err != nil {
		return fmt.Errorf("open the vector store at %s: %w", s.options.Path, err)
	}
	s.db = db
	return nil
}

// findCollection returns a collection, nil for one that is not there. The caller holds the lock for reading.
func (s *Store) findCollection(name string) *chromem.Collection {
	return s.db.GetCollection(name, rejectEmbedding)
}

// lockForRead locks for reading what is open.
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

// rejectEmbedding is called for documents without a vector, of which there are none.
func rejectEmbedding(context.Context, string) ([]float32, error) {
	return nil, errors.New("a document has no vector")
}

// UpsertDocuments implements [vectorstore.Store].
func (s *Store) UpsertDocuments(ctx context.Context, collection string, docs []vectorstore.Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openDB(); err != nil || len(docs) == 0 {
		return err
	}
	c, err := s.db.GetOrCreateCollection(collection, nil, rejectEmbedding)
	if err != nil {
		return fmt.Errorf("open collection %s: %w", collection, err)
	}
	for _, d := range docs {
		if err := c.AddDocument(ctx, chromem.Document{ID: d.ID, Embedding: d.Vector, Content: d.Text, Metadata: d.Metadata}); err != nil {
			return fmt.Errorf("put document %s: %w", d.ID, err)
		}
	}
	return nil
}

// FindMissing implements [vectorstore.Store].
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

// Search implements [vectorstore.Store].
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
	found, err := c.QueryEmbedding(ctx, q.Vector, min(q.Limit, c.Count()), q.Where, nil)
	if err != nil {
		return nil, fmt.Errorf("search collection %s: %w", collection, err)
	}
	var matches []vectorstore.Match
	for _, f := range found {
		if f.Similarity >= q.MinScore {
			matches = append(matches, vectorstore.Match{
				Document: vectorstore.Document{ID: f.ID, Text: f.Content, Metadata: f.Metadata}, Score: f.Similarity,
			})
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

// DropCollection implements [vectorstore.Store].
func (s *Store) DropCollection(_ context.Context, collection string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openDB(); err != nil {
		return err
	}
	if err := s.db.DeleteCollection(collection); err != nil {
		return fmt.Errorf("drop collection %s: %w", collection, err)
	}
	return nil
}

// Close implements [vectorstore.Store]. What was put stands in the folder already.
func (s *Store) Close() error { return nil }
