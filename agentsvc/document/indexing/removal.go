package indexing

import (
	"context"
	"errors"
	"slices"

	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/vectorstore"
)

// removalBatch is how many removals are carried out at once.
const removalBatch = 500

// remover is the part of a pass that removes what is not searchable any more: vectors in external vector stores, and chunks.
type remover struct{ *passRun }

// carryOutRemovals deletes in external vector stores what the database notes, until nothing is due or the slice is over.
// A note stays until its store has confirmed.
func (r remover) carryOutRemovals(ctx context.Context) error {
	for {
		notes, err := r.app.Rows.Index.ListRemovals(ctx, r.pass.Store, removalBatch)
		if err != nil || len(notes) == 0 {
			return err
		}
		if noted, err := r.noteUnused(ctx, notes); err != nil {
			return err
		} else if noted {
			continue // the notes for whole collections come first
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

// noteUnused notes for removal the collections of notes that no generation uses, and reports whether there are any.
func (r remover) noteUnused(ctx context.Context, notes []corpus.Removal) (bool, error) {
	isOther := func(n corpus.Removal) bool { return n.Chunk != "" && n.Collection != r.collectionNote }
	if !slices.ContainsFunc(notes, isOther) {
		return false, nil
	}
	n, err := r.app.Rows.Index.NoteUnusedCollections(ctx, r.pass, r.collectionNote)
	return n > 0, err
}

// deleteHidden deletes the chunks that are not searchable any more, until there are none or the slice is over.
func (r remover) deleteHidden(ctx context.Context) error {
	more, err := r.app.Rows.Index.DeleteHidden(ctx, r.pass.Store, r.isOver)
	if err == nil && more {
		err = errYield
	}
	return err
}

// removeVectors carries out removals of one collection, named by its note, and deletes their notes.
func (r remover) removeVectors(ctx context.Context, note string, notes []corpus.Removal) error {
	name, collection := parseCollectionNote(note)
	vectors, closeStore, found := r.openVectorStore(name)
	if !found {
		// Its address and key are gone, so that no further attempt could succeed.
		r.log().WarnContext(ctx, "vectors stay in a vector store that has left the configuration", "vector_store", name, "collection", collection)
		return r.app.Rows.Index.ConfirmRemovals(ctx, notes)
	}
	err := deleteVectors(ctx, vectors, collection, notes)
	if err := errors.Join(err, closeStore()); err != nil {
		return err
	}
	return r.app.Rows.Index.ConfirmRemovals(ctx, notes)
}

// openVectorStore returns the vector store of that name: that of the document store, or another.
func (r remover) openVectorStore(name string) (s vectorstore.Store, closeStore func() error, found bool) {
	if r.store != nil && r.store.VectorStore == name {
		return r.store.Vectors, func() error { return nil }, true
	}
	return r.app.OpenVectorStore(name)
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

// DropCollections removes all vectors of an app in external vector stores, for an app that is being deleted. Nothing is
// indexed any more from its beginning on. It returns the collections that stay because their vector store has left the
// configuration.
func DropCollections(ctx context.Context, app *App) (left []string, err error) {
	index := app.Rows.Index
	if err := index.EndPasses(ctx); err != nil {
		return nil, err
	}
	all, err := index.ListCollections(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, note := range all {
		name, collection := parseCollectionNote(note)
		vectors, closeStore, found := app.OpenVectorStore(name)
		if !found {
			left = append(left, note)
			continue
		}
		errs = append(errs, vectors.DropCollection(ctx, collection), closeStore())
	}
	return left, errors.Join(errs...)
}
