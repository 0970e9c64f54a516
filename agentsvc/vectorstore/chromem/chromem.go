// Package chromem implements vectorstore.Store inside this process, optionally with a folder that persists the
// documents. A search compares the query with every vector of the collection: suited for thousands of them, not for
// millions.
package chromem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	chromem "github.com/philippgille/chromem-go"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/processor"
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
	// App shares the turns of searches with the other apps of the process.
	App string
	// Memory is what the memory of all vectors is reserved from until Close; nil = no bound. It belongs to this store alone.
	Memory *capacity.MemoryReservation
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
	// db is nil until the store is first used, or as long as the folder cannot be read, and after Close.
	db *chromem.DB
	// sizes are what the vectors of each collection take, in bytes, by the library's name. Guarded by mu.
	sizes map[string]*size
	// isClosed is set by Close. Guarded by mu.
	isClosed bool
}

// size is what the vectors of a collection take in memory.
type size struct {
	bytes int64
	// dimension is the length of the vectors, 0 = not known: no vector was added since the folder was read.
	dimension int
}

// documentBytes is what a document takes besides the numbers of its vector: its id, and the library's structures.
const documentBytes = 320

// vectorBytes returns what a document with a vector of a length takes, in bytes.
func vectorBytes(dimension int) int64 { return documentBytes + 4*int64(dimension) }

// errNoMemory reports that the vectors would take more memory than the app may have.
var errNoMemory = &vectorstore.RejectedError{Store: "chromem", Message: "has no memory left for the vectors of this app: store fewer documents, " +
	"leave out vector_store so that the platform's database has the vectors, or use a vector store on another machine", Err: vectorstore.ErrNoMemory}

// errClosed reports that a store is used after Close.
var errClosed = errors.New("the vector store is closed")

// New returns a store. It does not access the folder before the first use.
func New(o Options) *Store { return &Store{options: o, sizes: map[string]*size{}} }

// openDB opens the library's store if it is not open. The caller holds mu for writing.
func (s *Store) openDB() error {
	switch {
	case s.isClosed:
		return errClosed
	case s.db != nil:
		return nil
	case s.options.Path == "":
		s.db = chromem.NewDB()
		return nil
	}
	// All documents of the folder are read into memory. A file is at least as long as what it becomes there, unless it is
	// compressed; vectors hardly can be.
	total, err := folderBytes(s.options.Path)
	if err != nil {
		return fmt.Errorf("open the vector store at %s: %w", s.options.Path, err)
	}
	if !s.options.Memory.TryReserveBytes(total) {
		return errNoMemory
	}
	db, err := chromem.NewPersistentDB(s.options.Path, s.options.Compress)
	if err != nil {
		s.options.Memory.ReturnBytes(total)
		return fmt.Errorf("open the vector store at %s: %w", s.options.Path, err)
	}
	s.db = db
	s.divideLoaded(total)
	return nil
}

// divideLoaded sets the sizes of the collections that were read from the folder: each document has the same part of total.
// The caller holds mu for writing.
func (s *Store) divideLoaded(total int64) {
	var documents int64
	loaded := s.db.ListCollections()
	for _, c := range loaded {
		documents += int64(c.Count())
	}
	for name, c := range loaded {
		s.sizes[name] = &size{bytes: total * int64(c.Count()) / max(documents, 1)}
	}
}

// folderBytes returns the length of all files below a folder, 0 if it does not exist.
func folderBytes(path string) (total int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return total, err
}

// findCollection returns a collection, or nil. The caller holds mu for reading at least.
func (s *Store) findCollection(name string) *chromem.Collection {
	return s.db.GetCollection(s.options.collectionName(name), rejectEmbedding)
}

// lockForRead opens the store if necessary and locks mu for reading; unlock releases it. The lock is not upgraded but
// taken again: db, once set, is reset by Close only.
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
		if s.db == nil { // closed meanwhile
			s.mu.RUnlock()
			return nil, errClosed
		}
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
	z := s.sizes[c.Name]
	if z == nil {
		z = &size{}
		s.sizes[c.Name] = z
	}
	for _, d := range docs {
		if err := s.addDocument(ctx, c, z, d); err != nil {
			return fmt.Errorf("put document %s: %w", d.ID, err)
		}
	}
	return nil
}

// addDocument adds a document to a collection with the size z, within the memory of the app. The caller holds mu for
// writing.
func (s *Store) addDocument(ctx context.Context, c *chromem.Collection, z *size, d vectorstore.Document) error {
	if n := len(d.Vector); n > vectorstore.MaxDimension || z.dimension != 0 && n != z.dimension {
		return &vectorstore.RejectedError{Store: "chromem", Message: fmt.Sprintf("refused a vector of %d numbers: a collection has vectors of one length, and of at most %d numbers", n, vectorstore.MaxDimension)}
	}
	added := vectorBytes(len(d.Vector))
	if !s.options.Memory.TryReserveBytes(added) {
		return errNoMemory
	}
	before := c.Count()
	err := c.AddDocument(ctx, chromem.Document{ID: d.ID, Embedding: d.Vector})
	if c.Count() == before { // it failed, or replaced a document of the same size
		s.options.Memory.ReturnBytes(added)
	} else {
		z.bytes += added
	}
	if err == nil {
		z.dimension = len(d.Vector)
	}
	return err
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

// searches lets one search at a time run in this process, the apps in turn: the library compares on all processors, so that more at once
// would not be faster, and one app's many searches would delay those of others.
var searches = processor.NewPermits(1)

// Search implements [vectorstore.Store], in the app's turn. The library requires a limit no larger than the collection.
func (s *Store) Search(ctx context.Context, collection string, q vectorstore.Query) ([]vectorstore.Match, error) {
	if err := searches.Acquire(ctx, s.options.App); err != nil {
		return nil, err
	}
	defer searches.Release()
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
	count := int64(c.Count())
	err := c.Delete(ctx, nil, nil, existing...)
	if z := s.sizes[c.Name]; z != nil {
		returned := z.bytes * (count - int64(c.Count())) / count
		z.bytes -= returned
		s.options.Memory.ReturnBytes(returned)
	}
	if err != nil {
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
	name := s.options.collectionName(collection)
	if err := s.db.DeleteCollection(name); err != nil {
		return fmt.Errorf("drop collection %s: %w", collection, err)
	}
	if z := s.sizes[name]; z != nil {
		s.options.Memory.ReturnBytes(z.bytes)
		delete(s.sizes, name)
	}
	return nil
}

// Close implements [vectorstore.Store]. Documents are written to the folder when they are added, so only the memory is
// released.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed, s.db, s.sizes = true, nil, nil
	s.options.Memory.ReleaseBytes()
	return nil
}
