// Package chroma implements vectorstore.Store with a Chroma server or Chroma Cloud, over version 2 of its HTTP API.
package chroma

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
)

// store is the type's name, port its usual port.
const (
	store = "chroma"
	port  = 8000
	// maxResults is the largest number of documents that Chroma Cloud returns.
	maxResults = 300
)

// backend implements [remote.Backend].
type backend struct {
	client *remote.Client
	hasKey bool

	// mu guards folder.
	mu sync.Mutex
	// folder is the path of the database's collections, "" until it is known.
	folder string
}

// The bodies of the API, as far as they are used.
type (
	identity struct {
		Tenant    string   `json:"tenant"`
		Databases []string `json:"databases"`
	}
	newCollection struct {
		Name          string        `json:"name"`
		GetOrCreate   bool          `json:"get_or_create"`
		Configuration configuration `json:"configuration"`
	}
	configuration struct {
		HNSW space `json:"hnsw"`
	}
	space struct {
		Space string `json:"space"`
	}
	collectionRecord struct {
		ID string `json:"id"`
	}
	records struct {
		IDs        []string    `json:"ids"`
		Embeddings [][]float32 `json:"embeddings,omitempty"`
		// Include selects what an answer contains besides ids.
		Include []string `json:"include,omitzero"`
	}
	query struct {
		Embeddings [][]float32 `json:"query_embeddings"`
		Results    int         `json:"n_results"`
		Include    []string    `json:"include"`
	}
	getAnswer struct {
		IDs remote.Entries[string] `json:"ids"`
	}
	queryAnswer struct {
		// There is one list for each vector of the query. A decoder skips what an array has no place for.
		IDs       [1]remote.Entries[string]   `json:"ids"`
		Distances [1]remote.Entries[*float32] `json:"distances"`
	}
)

// New returns a store. It sends nothing before its first use.
func New(o remote.Options) vectorstore.Store {
	header := http.Header{}
	if o.APIKey != "" {
		header.Set("x-chroma-token", o.APIKey)
	}
	return remote.NewStore(store, o, &backend{client: remote.NewClient(store, o, port, header), hasKey: o.APIKey != ""})
}

// collectionsPath returns the path of the database's collections. A key belongs to one tenant, which the server names,
// and its first database is used; without a key the server has only the default ones.
func (b *backend) collectionsPath(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.folder != "" {
		return b.folder, nil
	}
	who := identity{"default_tenant", []string{"default_database"}}
	if b.hasKey {
		if err := b.client.Call(ctx, http.MethodGet, "/api/v2/auth/identity", nil, &who, 0); err != nil {
			return "", err
		}
		if who.Tenant == "" || len(who.Databases) == 0 {
			return "", remote.NewRefusedKey(store)
		}
	}
	b.folder = "/api/v2/tenants/" + url.PathEscape(who.Tenant) + "/databases/" + url.PathEscape(who.Databases[0]) + "/collections"
	return b.folder, nil
}

// call sends a request of a collection, which has an id of its own besides its name. The answer is about n documents.
func (b *backend) call(ctx context.Context, collection, action string, in, out any, n int) error {
	folder, err := b.collectionsPath(ctx)
	if err != nil {
		return err
	}
	var c collectionRecord
	if err := b.client.Call(ctx, http.MethodGet, folder+"/"+collection, nil, &c, 0); err != nil {
		return err
	}
	return b.client.Call(ctx, http.MethodPost, folder+"/"+url.PathEscape(c.ID)+action, in, out, remote.AnswerBytes(n, 0))
}

// CreateCollection implements [remote.Backend]. The first vectors decide about their length.
func (b *backend) CreateCollection(ctx context.Context, collection string, _ int) error {
	folder, err := b.collectionsPath(ctx)
	if err != nil {
		return err
	}
	return b.client.Call(ctx, http.MethodPost, folder, newCollection{collection, true, configuration{space{"cosine"}}}, nil, 0)
}

// Upsert implements [remote.Backend].
func (b *backend) Upsert(ctx context.Context, collection string, docs []vectorstore.Document) error {
	var in records
	for _, d := range docs {
		in.IDs, in.Embeddings = append(in.IDs, d.ID), append(in.Embeddings, d.Vector)
	}
	return b.call(ctx, collection, "/upsert", in, nil, 0)
}

// Find implements [remote.Backend].
func (b *backend) Find(ctx context.Context, collection string, ids []string) ([]string, error) {
	out := getAnswer{remote.NewEntries[string](len(ids))}
	err := b.call(ctx, collection, "/get", records{IDs: ids, Include: []string{}}, &out, len(ids))
	return out.IDs.List, err
}

// Search implements [remote.Backend]. The server answers with the distance, 1 - cosine.
func (b *backend) Search(ctx context.Context, collection string, vector []float32, limit int) ([]vectorstore.Match, error) {
	limit = min(limit, maxResults)
	out := queryAnswer{[1]remote.Entries[string]{remote.NewEntries[string](limit)}, [1]remote.Entries[*float32]{remote.NewEntries[*float32](limit)}}
	if err := b.call(ctx, collection, "/query", query{[][]float32{vector}, limit, []string{"distances"}}, &out, limit); err != nil {
		return nil, err
	}
	ids, distances := out.IDs[0].List, out.Distances[0].List
	if ids == nil || len(ids) != len(distances) {
		return nil, remote.NewInvalidAnswer(store)
	}
	var matches []vectorstore.Match
	for i, id := range ids {
		if d := distances[i]; d != nil {
			matches = append(matches, vectorstore.Match{ID: id, Score: 1 - *d})
		}
	}
	return matches, nil
}

// Delete implements [remote.Backend].
func (b *backend) Delete(ctx context.Context, collection string, ids []string) error {
	return b.call(ctx, collection, "/delete", records{IDs: ids}, nil, 0)
}

// DropCollection implements [remote.Backend].
func (b *backend) DropCollection(ctx context.Context, collection string) error {
	folder, err := b.collectionsPath(ctx)
	if err != nil {
		return err
	}
	return b.client.Call(ctx, http.MethodDelete, folder+"/"+collection, nil, nil, 0)
}

// Close implements [remote.Backend]. The connections belong to the egress client.
func (b *backend) Close() error { return nil }
