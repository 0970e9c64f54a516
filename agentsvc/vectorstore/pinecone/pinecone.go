// Package pinecone implements vectorstore.Store with one index of Pinecone, over its HTTP API. A collection is a
// namespace of the index.
//
// The index is created by its owner, with the embedder's dimension and the metric cosine. Pinecone is eventually
// consistent: a search may miss what was written seconds ago and may still find what was deleted.
package pinecone

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
)

// store is the type's name, port that of an index: port 443 implies TLS.
const (
	store = "pinecone"
	port  = 443
	// apiVersion is the version of the API that the requests are written for.
	apiVersion = "2025-10"
	// maxFetch is the largest number of documents that one request fetches: 2 MiB of vectors of the largest length.
	maxFetch = 20
)

// backend implements [remote.Backend].
type backend struct{ client *remote.Client }

// The bodies of the API, as far as they are used.
type (
	vector struct {
		ID     string    `json:"id"`
		Values []float32 `json:"values"`
	}
	upsertRequest struct {
		Vectors   []vector `json:"vectors"`
		Namespace string   `json:"namespace"`
	}
	fetchAnswer struct {
		Vectors map[string]struct{} `json:"vectors"`
	}
	queryRequest struct {
		Vector    []float32 `json:"vector"`
		TopK      int       `json:"topK"`
		Namespace string    `json:"namespace"`
	}
	queryAnswer struct {
		Matches remote.Entries[match] `json:"matches"`
	}
	match struct {
		ID    string  `json:"id"`
		Score float32 `json:"score"`
	}
	deleteRequest struct {
		IDs       []string `json:"ids,omitempty"`
		DeleteAll bool     `json:"deleteAll,omitempty"`
		Namespace string   `json:"namespace"`
	}
)

// New returns a store. Options.Host is that of the index. It sends nothing before its first use.
func New(o remote.Options) vectorstore.Store {
	header := http.Header{"X-Pinecone-Api-Version": {apiVersion}}
	if o.APIKey != "" {
		header.Set("Api-Key", o.APIKey)
	}
	return remote.NewStore(store, o, &backend{remote.NewClient(store, o, port, header)})
}

// CreateCollection implements [remote.Backend]. A namespace exists from its first vector on.
func (b *backend) CreateCollection(context.Context, string, int) error { return nil }

// Upsert implements [remote.Backend].
func (b *backend) Upsert(ctx context.Context, collection string, docs []vectorstore.Document) error {
	in := upsertRequest{Namespace: collection}
	for _, d := range docs {
		in.Vectors = append(in.Vectors, vector{d.ID, d.Vector})
	}
	return b.client.Call(ctx, http.MethodPost, "/vectors/upsert", in, nil, 0)
}

// Find implements [remote.Backend]. The answers contain the vectors, which are not used; there are several so that none is
// large.
func (b *backend) Find(ctx context.Context, collection string, ids []string) ([]string, error) {
	var found []string
	for part := range slices.Chunk(ids, maxFetch) {
		var out fetchAnswer
		path := "/vectors/fetch?" + url.Values{"ids": part, "namespace": {collection}}.Encode()
		if err := b.client.Call(ctx, http.MethodGet, path, nil, &out, remote.AnswerBytes(len(part), len(part)*vectorstore.MaxDimension)); err != nil {
			return nil, err
		}
		for _, id := range part {
			if _, ok := out.Vectors[id]; ok {
				found = append(found, id)
			}
		}
	}
	return found, nil
}

// Search implements [remote.Backend].
func (b *backend) Search(ctx context.Context, collection string, vector []float32, limit int) ([]vectorstore.Match, error) {
	out := queryAnswer{remote.NewEntries[match](limit)}
	err := b.client.Call(ctx, http.MethodPost, "/query", queryRequest{vector, limit, collection}, &out, remote.AnswerBytes(limit, 0))
	var matches []vectorstore.Match
	for _, m := range out.Matches.List {
		matches = append(matches, vectorstore.Match{ID: m.ID, Score: m.Score})
	}
	return matches, err
}

// Delete implements [remote.Backend].
func (b *backend) Delete(ctx context.Context, collection string, ids []string) error {
	return b.client.Call(ctx, http.MethodPost, "/vectors/delete", deleteRequest{IDs: ids, Namespace: collection}, nil, 0)
}

// DropCollection implements [remote.Backend]. A namespace without vectors does not exist.
func (b *backend) DropCollection(ctx context.Context, collection string) error {
	return b.client.Call(ctx, http.MethodPost, "/vectors/delete", deleteRequest{DeleteAll: true, Namespace: collection}, nil, 0)
}

// Close implements [remote.Backend]. The connections belong to the egress client.
func (b *backend) Close() error { return nil }
