package corpus

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc/document"
)

// Index is the indexer's access to a tenant's documents. The methods that take a [Pass] write only while it is held.
type Index struct{ rows }

// StoreSpec is a document store as the configuration describes it.
type StoreSpec struct {
	Name   string
	Source string // its type
	// Recipe identifies how chunks and vectors are made: versions of extraction and chunking, their settings, the model of
	// the vectors and their dimension. Another recipe means another generation.
	Recipe string
	// Embedder is the model of the vectors, "" = none.
	Embedder string
	// Revision is that of the configuration. A spec of an earlier revision than the stored one changes nothing, so that two
	// processes with different revisions do not replace each other's recipe.
	Revision int64
}

// Generations are the generations of a store.
type Generations struct {
	Live     int64
	Building int64 // 0 = none
	// Changed means that the call has changed the row.
	Changed bool
	// Outdated means that the row is of a later revision than the spec, which has changed nothing: who has it must not
	// index by it.
	Outdated bool
}

// Target returns the generation that documents are indexed in: the one being built, else the live one.
func (g Generations) Target() int64 {
	if g.Building != 0 {
		return g.Building
	}
	return g.Live
}

// EnsureStore creates the rows of a document store, or adapts them to the configuration. If the recipe has changed it
// begins a new generation and marks every document as pending; if it has changed back it abandons the one being built. It
// requests a pass when it has changed something. The error is [agentsvc.CodeState] while a store of that name is being
// removed (see [Index.DropStore]).
func (x *Index) EnsureStore(ctx context.Context, spec StoreSpec) (Generations, error) {
	return Generations{}, errors.ErrUnsupported
}

// RequestPass makes the pass of a store due now. One that runs is followed by another.
func (x *Index) RequestPass(ctx context.Context, store string) error {
	return errors.ErrUnsupported
}

// Listed is a document as its source lists it.
type Listed struct {
	ID        string
	Title     string
	MediaType string
	Bytes     int64
	// Version is what changes with the content (an ETag, a time of change, a hash).
	Version  string
	URL      string
	Metadata map[string]string
	Access   document.Access
}

// UpsertListed records documents that a source has listed, at most 1,000 a call. A document that is new, or whose version
// or title has changed, becomes pending; a change of metadata, URL or access takes effect at once. With force every document
// becomes pending. changed is the number of documents that became pending. Nothing of items is written if one is invalid or
// exceeds a limit: the error names it.
func (x *Index) UpsertListed(ctx context.Context, pass Pass, items []Listed, force bool) (changed int, err error) {
	return 0, errors.ErrUnsupported
}

// UnlistedRemoval is the detail of an error of [Index.DeleteUnlisted] that needs a confirmation.
type UnlistedRemoval struct{ Documents, Missing int64 }

// DeleteUnlisted deletes the documents of the store that are not in listed. It must be called only after the source was
// listed to its end without an error. If more than half of at least 20 documents would be deleted it deletes nothing and
// returns an error of [agentsvc.CodeState] with an [UnlistedRemoval], unless [Documents.AllowRemoval] was called before.
func (x *Index) DeleteUnlisted(ctx context.Context, pass Pass, listed map[string]struct{}) (deleted int, err error) {
	return 0, errors.ErrUnsupported
}

// PendingDocument is a document that waits for its indexing, at the revision that is to be indexed.
type PendingDocument struct {
	document.Document
	Revision int64
	Attempts int64 // that failed
}

// NextPending returns up to n documents of a store that wait for their indexing and whose next attempt is due, with an id
// after after, ordered by id.
func (x *Index) NextPending(ctx context.Context, store, after string, n int) ([]PendingDocument, error) {
	return nil, errors.ErrUnsupported
}

// ReadBody returns the body of an upload at a revision. The error is [ErrDocumentChanged] if it has another one by now.
func (x *Index) ReadBody(ctx context.Context, store, id string, revision int64) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// EmbeddedChunk is a chunk with its vector, nil if the store has no embedder or keeps its vectors elsewhere.
type EmbeddedChunk struct {
	document.Chunk
	// Vector is normalised when it is stored.
	Vector []float32
	// TextHash identifies the text that was embedded, for [Index.FindVectors]; "" without a vector.
	TextHash string
}

// Commit is an indexed document.
type Commit struct {
	Document   string // its id
	Revision   int64  // that was indexed
	Generation int64
	// Title, if not empty, replaces the title of a document that has none.
	Title     string
	MediaType string // as Title
	// Model identifies what made the vectors: provider, model, dimension and prefix. "" = there are none.
	Model string
	// Collection is the collection of the external vector store that has the vectors, "" = this database.
	Collection string
	Chunks     []EmbeddedChunk
	// ContentHash is the hex SHA-256 of the content, for documents that were not uploaded.
	ContentHash string
}

// ChunkID returns the id of a chunk: a UUID version 5 (RFC 9562) of its place in the corpus.
func (x *Index) ChunkID(store, document string, generation, revision int64, ordinal int) string {
	return ""
}

// ReserveVectors must be called before vectors are sent to an external store: it notes the chunks' vectors for removal, and
// [Index.CommitDocument] deletes the notes. Vectors of a commit that never happened are therefore removed later.
func (x *Index) ReserveVectors(ctx context.Context, pass Pass, c Commit) error {
	return errors.ErrUnsupported
}

// CommitDocument makes a revision of a document searchable in a generation, in place of the revision before, whose chunks it
// deletes. It renews the lease. Errors: [ErrPassLost], [ErrDocumentChanged] (a deletion or a newer version wins),
// [agentsvc.CodeExhausted] naming the limit.
func (x *Index) CommitDocument(ctx context.Context, pass Pass, c Commit) error {
	return errors.ErrUnsupported
}

// FailDocument records that a document could not be indexed, for a reason in words for its uploader. It is tried again after
// retry; 0 means that it has failed for good, until it is changed. What was indexed of it before stays searchable.
func (x *Index) FailDocument(ctx context.Context, pass Pass, d PendingDocument, reason string, retry time.Duration) error {
	return errors.ErrUnsupported
}

// SwitchGeneration makes the generation that is being built the live one, in one statement. It does nothing (switched is
// false) if none is being built, a document is pending, or more than maxLost documents that are searchable now would not be
// in the new generation.
func (x *Index) SwitchGeneration(ctx context.Context, pass Pass, maxLost int64) (switched bool, err error) {
	return false, errors.ErrUnsupported
}

// DropGenerations deletes the rows of a store's generations other than the live one and the one being built, about limit
// rows a call, and notes their external collections for removal. It is called until more is false.
func (x *Index) DropGenerations(ctx context.Context, store string, limit int) (more bool, err error) {
	return false, errors.ErrUnsupported
}

// DropStore deletes a store that has left the configuration. Its first call makes the store invisible; each call deletes about
// limit rows. It is called until done. With removals left (see [Index.ListRemovals]) it is not done until they are confirmed.
func (x *Index) DropStore(ctx context.Context, store string, limit int) (done bool, err error) {
	return false, errors.ErrUnsupported
}

// FindVectors returns the stored vectors of texts by hash, made by model for the tenant's documents.
func (x *Index) FindVectors(ctx context.Context, model string, textHashes []string) (map[string][]float32, error) {
	return nil, errors.ErrUnsupported
}

// AddEmbeddedTokens adds to the tokens that the store's embedding has used.
func (x *Index) AddEmbeddedTokens(ctx context.Context, store string, tokens int64) error {
	return errors.ErrUnsupported
}

// Removal is a note that an external vector store still has to delete a vector.
type Removal struct {
	Store      string
	Collection string
	Chunk      string // "" = the whole collection
}

// ListRemovals returns up to n due removals of a store.
func (x *Index) ListRemovals(ctx context.Context, store string, n int) ([]Removal, error) {
	return nil, errors.ErrUnsupported
}

// ConfirmRemovals deletes the notes of removals that the external store has carried out.
func (x *Index) ConfirmRemovals(ctx context.Context, done []Removal) error {
	return errors.ErrUnsupported
}
