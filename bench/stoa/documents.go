package stoa

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"stoa/bench/load"
)

// Library is Plain with a document store of uploads and the embedder that computes vectors in the server itself.
func Library(name, store string) App {
	a := Plain(name)
	config := a.Config.(object)
	config["embedders"] = object{"words": object{"provider": "hashing"}}
	config["document_stores"] = object{store: object{
		"source": object{"type": "upload"}, "embedder": "words", "chunking": object{"strategy": "simple", "size": 400},
	}}
	return a
}

// CreateLibrary makes the app and returns a token that may change its documents, and one of a caller that may search those
// that all may read.
func (s *Server) CreateLibrary(ctx context.Context, name, store string) (writer, reader string, err error) {
	if err := s.post(ctx, "/admin/apps", Library(name, store), nil); err != nil {
		return "", "", fmt.Errorf("create the app %s: %w", name, err)
	}
	if writer, err = s.token(ctx, name, "developer", "documents:read documents:write"); err == nil {
		reader, err = s.token(ctx, name, "caller", "documents:read")
	}
	return writer, reader, err
}

const stores = "/v1/document-stores"

// Put uploads a text with a value of its metadata, "group".
func (s *Server) Put(ctx context.Context, token, store, id, group, text string) error {
	_, err := s.exchange(ctx, http.MethodPut, stores+"/"+store+"/documents/"+id, token, []byte(text),
		"Content-Type", "text/plain", "X-Document-Metadata", fmt.Sprintf(`{"group":%q}`, group))
	return err
}

// Stored is what a tenant's only document store has.
type Stored struct{ Documents, Chunks, Pending, Failed int }

// Stored asks for it.
func (s *Server) Stored(ctx context.Context, token string) (Stored, error) {
	var all struct{ DocumentStores []Stored }
	err := s.send(ctx, http.MethodGet, stores, token, nil, &all)
	if err != nil || len(all.DocumentStores) == 0 {
		return Stored{}, err
	}
	return all.DocumentStores[0], nil
}

// Query is a search of documents.
type Query struct {
	Query  string            `json:"query"`
	Mode   string            `json:"mode"`
	Limit  int               `json:"limit"`
	Filter map[string]string `json:"filter,omitempty"`
}

// Found is the answer to a search.
type Found struct {
	Results        []struct{ Document, Text string }
	Mode, Degraded string
}

// Search searches once.
func (s *Server) Search(ctx context.Context, token, store string, q Query) (f Found, err error) {
	err = s.send(ctx, http.MethodPost, stores+"/"+store+":search", token, q, &f)
	return f, err
}

// Searching is that search, to be repeated.
func (s *Server) Searching(token, store string, q Query) (load.Target, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return load.Target{}, fmt.Errorf("encode the search: %w", err)
	}
	return load.NewTarget(load.Spec{
		URL: s.URL + stores + "/" + store + ":search", Header: map[string]string{"Authorization": "Bearer " + token},
		Body: body, Want: fmt.Sprintf(`"mode":%q`, q.Mode),
	})
}
