package indexing

import (
	"context"
	"io"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
)

// App is an app as its runtime has it. It is read-only.
type App struct {
	Name string
	// Stores are the document stores of the configuration by name.
	Stores map[string]*Store
	// Rows are the rows of all of the app's document stores, also of those that have left the configuration.
	Rows *corpus.Store
	// OpenVectorStore opens the external vector store of a [Store].VectorStore that may have left the configuration, to
	// remove vectors. found is false if its address is not known any more. closeStore must be called.
	OpenVectorStore func(name string) (s vectorstore.Store, closeStore func() error, found bool)
	// VectorMemory names the pool and the app that the memory of a document's vectors is reserved from; nil = no bound.
	VectorMemory *capacity.MemoryReservation
	// Release must be called when the app is no longer used.
	Release func()
}

// Store is a document store as a revision of an app's configuration describes it. It is read-only.
type Store struct {
	Spec corpus.StoreSpec
	// Version changes when the source has to be listed again although the time for it has not come: it names the revision
	// of the configuration.
	Version string
	// Source has the documents; nil = they are uploaded.
	Source source.Source
	// Watch has the source listed when it changes, see [source.Source].Wait.
	Watch bool
	// Incremental has the source listed every incrementalInterval. Without it and Watch the source is listed every
	// listInterval. A source is also listed at each start of a process and for each Version.
	Incremental bool
	// Read reads the text of a document. name is its id, which may be a path.
	Read func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error)
	// Cut divides a document into chunks.
	Cut func(ctx context.Context, c document.Content) ([]document.Chunk, error)
	// Embedder makes the vectors; nil = the store is searched by words only.
	Embedder embedder.Embedder
	// VectorStore names the external store that keeps the vectors, without a slash, Vectors is the store; "" and nil = the
	// platform's database keeps them. Collection returns the collection of a generation there.
	VectorStore string
	Vectors     vectorstore.Store
	Collection  func(generation int64) string
	// MaxConcurrent bounds the documents at work in a pass; 0 = defaultConcurrent.
	MaxConcurrent int
	Retry         Retry
}
