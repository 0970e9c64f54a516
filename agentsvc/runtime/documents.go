package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/chunk"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Documents are the app's document stores: their settings, of this revision of the configuration, and their rows. Build
// sets all fields.
type Documents struct {
	// Rows has the documents of the app, also those of stores that have left the configuration.
	Rows   *corpus.Store
	stores map[string]*DocumentStore
	// openVectorStore is that of [indexing.App].
	openVectorStore func(key string) (s vectorstore.Store, closeStore func() error, found bool)
	vectorMemory    *capacity.MemoryReservation // that of [indexing.App]
	tenant          db.ID
	hash            func(text []byte) string // see [Tenant.Hash]; nil = no ids are recorded
	// onChanged is [Dependencies].OnDocumentsChanged.
	onChanged func(tenant db.ID)
}

// DocumentStore is a document store as the configuration describes it.
type DocumentStore struct {
	Name   string
	Config *config.DocumentStore
	// Embedder is the configuration of what makes the vectors, nil = the store is searched by words only.
	Embedder *config.Embedder
	// Spec is what the rows of the store know of its configuration.
	Spec corpus.StoreSpec
	// Vectors makes the vectors of the store, nil = the store is searched by words only. See retrieval.go.
	Vectors *DocumentVectors
	// Searcher searches the store. See retrieval.go.
	Searcher DocumentSearcher
	// agentSearcher is what Searcher searches with, for the agents of the app.
	agentSearcher *retrieval.Searcher
	// indexed is what the store is indexed with. See indexing.go.
	indexed *indexing.Store
}

// DocumentSearcher searches one document store. The model calls of a search are counted as usage of payer.
type DocumentSearcher interface {
	Search(ctx context.Context, payer agentsvc.Payer, q document.Query) (document.Result, error)
}

// newDocuments returns the document stores of the configuration, whose rows are in the durable database.
func (b *build) newDocuments(h Dependencies) *Documents {
	d := h.DB
	all := &Documents{Rows: corpus.New(d, b.tenant.ID, b.newDocumentLimits(h)), stores: map[string]*DocumentStore{}, tenant: b.tenant.ID, hash: b.tenant.Hash, onChanged: h.OnDocumentsChanged}
	for name, c := range b.cfg.DocumentStores {
		s := &DocumentStore{Name: name, Config: c, Embedder: b.cfg.Embedders[c.Embedder]}
		s.Spec = corpus.StoreSpec{Name: name, Source: c.Source.Type, Recipe: newRecipe(c, s.Embedder), Revision: cmp.Or(b.tenant.ConfiguredAt, b.tenant.Revision)}
		if s.Embedder != nil {
			s.Spec.Embedder = s.Embedder.Provider + "/" + s.Embedder.Model
		}
		all.stores[name] = s
	}
	return all
}

// newDocumentLimits returns the bounds of what the app stores for retrieval: those of its plan, else the defaults.
func (b *build) newDocumentLimits(h Dependencies) corpus.Limits {
	if h.Billing == nil {
		return corpus.Limits{}
	}
	plan, _ := h.Billing.Prices.CachedPlan(b.tenant.Plan)
	l := plan.Documents
	return corpus.Limits{Documents: l.Count, BodyBytes: l.Bytes, DocumentBytes: l.DocumentBytes, Chunks: l.Chunks}
}

// newRecipe returns what identifies how a store's chunks and vectors are made: a store with another recipe is indexed
// again, also by a version of Stoa that reads or divides documents otherwise.
func newRecipe(c *config.DocumentStore, e *config.Embedder) string {
	recipe := struct {
		Chunking config.Chunking
		Parsers  *config.MCPParsers
		Versions []string
		Vectors  []any
	}{c.Chunking, c.MCPParsers, []string{extract.Version, chunk.Version}, nil}
	if e != nil {
		// Of the embedder only what changes its vectors: an address or a key that was replaced does not.
		recipe.Vectors = []any{e.Provider, e.Model, e.Dimension, e.OutputDimension, e.InputType, e.Truncate, c.VectorStore, c.Collection}
	}
	encoded, _ := json.Marshal(recipe) // of texts and numbers, which can always be encoded
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16])
}

// Store returns a document store of the configuration, [agentsvc.ErrNotFound] if it has none of that name.
func (d *Documents) Store(name string) (*DocumentStore, error) {
	if s := d.stores[name]; s != nil {
		return s, nil
	}
	return nil, agentsvc.ErrNotFound
}

// Stores returns the document stores of the configuration, ordered by name.
func (d *Documents) Stores() []*DocumentStore {
	list := make([]*DocumentStore, 0, len(d.stores))
	for _, name := range slices.Sorted(maps.Keys(d.stores)) {
		list = append(list, d.stores[name])
	}
	return list
}

// Ensure creates the rows of a store, or adapts them to the configuration, for a caller that is faster than the indexer.
func (d *Documents) Ensure(ctx context.Context, s *DocumentStore) error {
	_, err := d.Rows.Index.EnsureStore(ctx, s.Spec)
	return err
}

// NotifyChanged wakes the indexer after a change that waits for it: it would find it by itself some seconds later.
func (d *Documents) NotifyChanged() {
	if d.onChanged != nil {
		d.onChanged(d.tenant)
	}
}

// Recorded returns the app's documents, each change of which adds an entry to the audit trail in its transaction. id is that of
// the document, "" = none. The entry has its keyed hash, because the trail outlives the app and an id may be a text of its
// users. Of an upload it also has the outcome and the size.
func (d *Documents) Recorded(e audit.Entry, id string) *corpus.Documents {
	e.AppID, e.Detail = d.tenant, maps.Clone(e.Detail)
	if id != "" && d.hash != nil {
		e.Detail["document"] = d.hash([]byte(id))
	}
	return d.Rows.Documents.Recorded(func(ctx context.Context, tx *db.Tx, o corpus.Outcome, changed document.Document) error {
		entry := e
		if o != "" {
			entry.Detail = maps.Clone(e.Detail)
			entry.Detail["outcome"], entry.Detail["bytes"] = string(o), changed.Bytes
		}
		return audit.Insert(ctx, tx, entry)
	})
}

// Documents returns the app's document stores.
func (rt *Runtime) Documents() *Documents { return rt.documents }
