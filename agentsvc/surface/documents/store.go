package documents

import (
	"context"
	"errors"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy/audit"
)

// handleListStores answers with the app's document stores. To a caller without documents:write the counts are of the
// documents that it may read, and what depends on others (chunks, tokens, errors) is left out.
func handleListStores(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c := call{Request: v, stores: v.Runtime.Documents(), reader: newReader(v)}
	out := storeList{DocumentStores: []storeBody{}}
	for _, s := range c.stores.Stores() {
		c.store = s
		body, err := c.readStatus(r.Context())
		if err != nil {
			return err
		}
		out.DocumentStores = append(out.DocumentStores, body)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleReindex requests that the store is indexed again. With confirm=true the next listing of its source may also
// remove most of its documents.
func handleReindex(w http.ResponseWriter, r *http.Request) error {
	c, err := newCall(r)
	if err != nil {
		return err
	}
	confirmed, err := decode.ParseBool(r.URL.Query(), "confirm")
	if err != nil {
		return err
	}
	recorded := c.recorded("document.reindex", "", map[string]any{"confirm": confirmed})
	err = c.withStore(r.Context(), func() error {
		if confirmed {
			return recorded.AllowRemoval(r.Context(), c.store.Name)
		}
		return recorded.RequestListing(r.Context(), c.store.Name)
	})
	if err != nil {
		return err
	}
	body, err := c.readStatus(r.Context())
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusAccepted, body)
}

// readStatus returns the state of the call's store as its caller may see it.
func (c call) readStatus(ctx context.Context) (storeBody, error) {
	status, err := c.stores.Rows.Documents.StoreStatus(ctx, c.store.Name)
	if errors.Is(err, agentsvc.CodeNotFound) {
		status, err = newStatus(c.store), nil
	}
	if err != nil {
		return storeBody{}, err
	}
	// The rows may be those of a revision before: the type of the source is that of the configuration.
	status.Source = c.store.Config.Source.Type
	if c.reader.All {
		return newStoreBody(status), nil
	}
	body := storeBody{Name: status.Name, Source: status.Source, State: status.State, Generation: status.Generation, Embedder: status.Embedder, VectorIndex: status.VectorIndex}
	for state, count := range map[document.State]*int64{"": &body.Documents, document.Pending: &body.Pending, document.Failed: &body.Failed} {
		page, err := c.stores.Rows.Documents.List(ctx, c.store.Name, corpus.ListFilter{State: state, Size: 1, Reader: c.reader})
		if err != nil && !errors.Is(err, agentsvc.CodeNotFound) {
			return storeBody{}, err
		}
		*count = page.Total
	}
	return body, nil
}

// newStatus returns the state of a store that has no rows yet: one for uploads can be used, others are read first.
func newStatus(s *runtime.DocumentStore) document.StoreStatus {
	status := document.StoreStatus{Name: s.Name, State: "ready", Embedder: s.Spec.Embedder}
	if s.Config.Source.Type != uploadSource {
		status.State = "indexing"
	}
	return status
}

// withStore calls do, and once more with the rows of the store if the indexer has not created them yet. Then it wakes the
// indexer.
func (c call) withStore(ctx context.Context, do func() error) error {
	err := do()
	if errors.Is(err, agentsvc.CodeNotFound) {
		if err = c.stores.Ensure(ctx, c.store); err == nil {
			err = do()
		}
	}
	if err == nil {
		c.stores.NotifyChanged()
	}
	return err
}

// recorded returns the app's documents for a change by the caller, of a document or of the whole store (""): the change adds an
// entry to the audit trail.
func (c call) recorded(action, document string, detail map[string]any) *corpus.Documents {
	detail["store"] = c.store.Name
	return c.stores.Recorded(audit.Entry{Actor: c.Actor(), Action: action, Detail: detail}, document)
}
