package indexing

import (
	"context"
	"strings"

	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/vectorstore"
)

// removalBatch is how many removals are carried out at once.
const removalBatch = 500

// carryOutRemovals deletes in external vector stores what the database notes, until nothing is due or the slice is over.
// A note stays until its store has confirmed.
func (r *passRun) carryOutRemovals(ctx context.Context) error {
	for {
		notes, err := r.app.Rows.Index.ListRemovals(ctx, r.pass.Store, removalBatch)
		if err != nil || len(notes) == 0 {
			return err
		}
		byCollection := map[string][]corpus.Removal{}
		for _, n := range notes {
			byCollection[n.Collection] = append(byCollection[n.Collection], n)
		}
		for collection, group := range byCollection {
			err := r.runStep(ctx, stepStore, func(ctx context.Context) error { return r.removeVectors(ctx, collection, group) })
			if err != nil {
				return err
			}
		}
		if r.isOver() {
			return errYield
		}
	}
}

// removeVectors carries out removals of one collection and deletes their notes.
func (r *passRun) removeVectors(ctx context.Context, collection string, notes []corpus.Removal) error {
	name, _, _ := strings.Cut(collection, "/")
	vectors := r.app.VectorStores[name]
	if vectors == nil {
		// Its address and key are gone, so that no further attempt could succeed.
		r.log().WarnContext(ctx, "vectors stay in a vector store that has left the configuration", "vector_store", name, "collection", collection)
		return r.app.Rows.Index.ConfirmRemovals(ctx, notes)
	}
	if err := deleteVectors(ctx, vectors, collection, notes); err != nil {
		return err
	}
	return r.app.Rows.Index.ConfirmRemovals(ctx, notes)
}

// deleteVectors deletes what the notes name: single vectors, or the collection.
func deleteVectors(ctx context.Context, s vectorstore.Store, collection string, notes []corpus.Removal) error {
	ids := make([]string, 0, len(notes))
	for _, n := range notes {
		if n.Chunk == "" {
			return s.DropCollection(ctx, collection)
		}
		ids = append(ids, n.Chunk)
	}
	return s.DeleteDocuments(ctx, collection, ids)
}
