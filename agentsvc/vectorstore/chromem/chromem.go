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
	o  Options
	mu sync.RWMutex // the library reads some of its maps without its own
	db *chromem.DB  // nil until it is first used
}

// New returns a store. It touches the folder when it is first used.
func New(o Options) *Store { return &Store{o: o} }

// open reads the folder once. The caller holds the lock for writing.
func (s *Store) open() error {
	switch {
	case s.db != nil:
		return nil
	case s.o.Path == "":
		s.db = chromem.NewDB()
		return nil
	}
	db, err := chromem.NewPersistentDB(s.o.Path, s.o.Compress)
	if err != nil {
		return fmt.Errorf("open the vector store at %s: %w", s.o.Path, err)
	}
	s.db = db
	return nil
}

// collection returns a collection, nil for one that is not there. The caller holds the lock for reading.
func (s *Store) collection(name string) *chromem.Collection {
	return s.db.GetCollection(name, noEmbedding)
}

// reading locks for reading what is open.
func (s *Store) reading() (unlock func(), err error) {
	s.mu.RLock()
	if s.db == nil {
		s.mu.RUnlock()
		s.mu.Lock()
		err := s.open()
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		s.mu.RLock()
	}
	return s.mu.RUnlock, nil
}

// noEmbedding is called for documents without a vector, of which there are none.
func noEmbedding(context.Context, string) ([]float32, error) {
	return nil, errors.New("a document has no vector")
}

// Put implements [vectorstore.Store].
func (s *Store) Put(ctx context.Context, collection string, docs []vectorstore.Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil || len(docs) == 0 {
		return err
	}
	c, err := s.db.GetOrCreateCollection(collection, nil, noEmbedding)
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

// Missing implements [vectorstore.Store].
func (s *Store) Missing(ctx context.Context, collection string, ids []string) ([]string, error) {
	unlock, err := s.reading()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := s.collection(collection)
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
	unlock, err := s.reading()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := s.collection(collection)
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

// Delete implements [vectorstore.Store].
func (s *Store) Delete(ctx context.Context, collection string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	c := s.collection(collection)
	if c == nil {
		return nil
	}
	there := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		_, err := c.GetByID(ctx, id)
		return err != nil
	})
	if len(there) == 0 {
		return nil
	}
	if err := c.Delete(ctx, nil, nil, there...); err != nil {
		return fmt.Errorf("delete from collection %s: %w", collection, err)
	}
	return nil
}

// Drop implements [vectorstore.Store].
func (s *Store) Drop(_ context.Context, collection string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	if err := s.db.DeleteCollection(collection); err != nil {
		return fmt.Errorf("drop collection %s: %w", collection, err)
	}
	return nil
}

// Close implements [vectorstore.Store]. What was put stands in the folder already.
func (s *Store) Close() error { return nil }
