// Package corpus has the rows of retrieval in the platform's database: documents and their bodies, the chunks and vectors
// that were made of them, who may read them, and the passes that index them. It contains all SQL of retrieval.
//
// A [Store] reaches the rows of one tenant, in four parts: [Documents] for the callers that keep documents, [Index] and
// [VectorIndexes] for the indexer, and [Search]. [Passes] works over all tenants: it decides which document store is indexed next.
//
// These rows are the source of truth. An external vector store only suggests ids of chunks; a chunk is returned only if
// [Search.LoadPassages] finds it to belong to a searchable revision of a document that the caller may read.
//
// Words used here:
//
//   - A revision is one content of a document. It is a random number, so that no revision of a document that was deleted
//     and uploaded again equals an earlier one. Revisions are compared for equality alone.
//   - A generation is one index of a document store: all chunks that were made by one recipe (extraction, chunking,
//     embedding). A store has one live generation, which is searched, and at most one that is being built.
//   - A document is live in a generation with the revision whose chunks are found there (table document_live). A search
//     reads nothing else, so that a change or a deletion takes effect with one row.
//   - A pass is the work of indexing a store, held by one process under a lease. Each claim increases the epoch, and a
//     write of a pass takes effect only at its epoch.
//   - A removal is a note that an external vector store still has to delete a vector.
//   - An approximate index finds the nearest vectors of a large generation without reading all of them, where PostgreSQL has the
//     extension vector. See vectorindex.go.
//
// Every transaction locks rows in this order, so that none of them deadlock: the tenant's lock, the document, the pass, the
// sums of table document_total (generation 0 first), which triggers of the other tables change.
package corpus

import (
	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Limits bound what a tenant stores for retrieval. A zero field means its default.
type Limits struct {
	Documents     int64 // of the app; 10,000
	BodyBytes     int64 // of all uploads of the app; 1 GiB
	DocumentBytes int64 // of one upload; 20 MiB
	Chunks        int64 // of one document store, in each generation; 100,000
	// ExactChunks is how many chunks a search compares one by one at most if the store can have an approximate index; 20,000.
	ExactChunks int64
}

// withDefaults returns l with the default of each zero field.
func (l Limits) withDefaults() Limits {
	set := func(field *int64, value int64) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.Documents, 10_000)
	set(&l.BodyBytes, 1<<30)
	set(&l.DocumentBytes, 20<<20)
	set(&l.Chunks, 100_000)
	set(&l.ExactChunks, defaultExactChunks)
	return l
}

// Names of the limits in errors.
const (
	limitDocuments     = "documents.count"
	limitBodyBytes     = "documents.bytes"
	limitDocumentBytes = "documents.document_bytes"
	limitChunks        = "documents.chunks"
)

// Errors of the indexer's writes. None of them has changed a row.
var (
	// ErrPassLost reports that another process has claimed the pass, or that the store is gone: the holder must stop.
	ErrPassLost = agentsvc.NewError(agentsvc.CodeConflict, "the lease on the indexing pass is lost")
	// ErrDocumentChanged reports that the document was deleted or replaced while it was indexed, or that the generation is
	// no longer one of the store's. The pass continues with the next document.
	ErrDocumentChanged = agentsvc.NewError(agentsvc.CodeConflict, "the document was changed while it was indexed")
)

// Store has the rows of one tenant. It is safe for concurrent use.
type Store struct {
	Documents *Documents
	Index     *Index
	Vectors   *VectorIndexes
	Search    *Search
}

// MaxChunks returns how many chunks a document store may have.
func (s *Store) MaxChunks() int64 { return s.Index.limits.Chunks }

// New returns the store of a tenant.
func New(d *db.DB, tenant db.ID, limits Limits) *Store {
	r := rows{h: d.Tenant(tenant), tenant: string(tenant), limits: limits.withDefaults()}
	vectors := &VectorIndexes{r, d.Platform()}
	return &Store{Documents: &Documents{rows: r}, Index: &Index{r, vectors}, Vectors: vectors, Search: &Search{r}}
}
