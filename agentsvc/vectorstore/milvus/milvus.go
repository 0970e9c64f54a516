// Package milvus implements vectorstore.Store with a Milvus server or Zilliz Cloud, over version 2 of its HTTP API,
// which Milvus serves on the same port as gRPC.
package milvus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
)

// store is the type's name, port its usual port.
const (
	store = "milvus"
	port  = 19530
	// maxID bounds an id, in bytes: a UUID has 36.
	maxID = 64
	// strong makes a search see everything that was written before.
	strong = "Strong"
)

// backend implements [remote.Backend].
type backend struct{ client *remote.Client }

// The bodies of the API, as far as they are used.
type (
	collectionRequest struct {
		Collection string `json:"collectionName"`
	}
	createRequest struct {
		Collection  string           `json:"collectionName"`
		Dimension   int              `json:"dimension"`
		MetricType  string           `json:"metricType"`
		IDType      string           `json:"idType"`
		IDField     string           `json:"primaryFieldName"`
		VectorField string           `json:"vectorFieldName"`
		Params      createParameters `json:"params"`
	}
	createParameters struct {
		MaxLength        int    `json:"max_length"`
		DynamicField     bool   `json:"enableDynamicField"`
		ConsistencyLevel string `json:"consistencyLevel"`
	}
	row struct {
		ID     string    `json:"id"`
		Vector []float32 `json:"vector"`
	}
	upsertRequest struct {
		Collection string `json:"collectionName"`
		Data       []row  `json:"data"`
	}
	filterRequest struct {
		Collection       string   `json:"collectionName"`
		Filter           string   `json:"filter"`
		OutputFields     []string `json:"outputFields,omitempty"`
		Limit            int      `json:"limit,omitempty"`
		ConsistencyLevel string   `json:"consistencyLevel,omitempty"`
	}
	searchRequest struct {
		Collection       string      `json:"collectionName"`
		Data             [][]float32 `json:"data"`
		Field            string      `json:"annsField"`
		Limit            int         `json:"limit"`
		OutputFields     []string    `json:"outputFields"`
		ConsistencyLevel string      `json:"consistencyLevel"`
	}
	found struct {
		ID string `json:"id"`
		// Distance is the cosine, in spite of its name.
		Distance float32 `json:"distance"`
	}
	// answer has the status of a call: the HTTP status is 200 for errors, too.
	answer struct {
		Code *int            `json:"code"`
		Data json.RawMessage `json:"data"`
	}
)

// New returns a store. Options.APIKey is a token, or user:password. It sends nothing before its first use.
func New(o remote.Options) vectorstore.Store {
	header := http.Header{}
	if o.APIKey != "" {
		header.Set("Authorization", "Bearer "+o.APIKey)
	}
	return remote.NewStore(store, o, &backend{remote.NewClient(store, o, port, header)})
}

// The codes of the API that mean something for a caller.
const (
	codeNotReady           = 1
	codeUnavailable        = 2
	codeRateLimited        = 8
	codeCollectionNotFound = 100
	codeNotLoaded          = 101
	codeNotFullyLoaded     = 103
	codeNoPrivilege        = 1401
	codeNotAuthenticated   = 1800
)

// Check implements [remote.Answer].
func (a *answer) Check() error {
	if a.Code == nil {
		return remote.NewInvalidAnswer(store)
	}
	switch *a.Code {
	case 0:
		return nil
	case codeCollectionNotFound:
		return remote.ErrNotFound
	case codeNoPrivilege, codeNotAuthenticated:
		return remote.NewRefusedKey(store)
	case codeNotReady, codeUnavailable, codeRateLimited, codeNotLoaded, codeNotFullyLoaded:
		return &vectorstore.UnavailableError{Store: store, Message: fmt.Sprintf("it answered with the code %d", *a.Code)}
	}
	return remote.NewRefusedRequest(store, fmt.Sprintf("code %d", *a.Code))
}

// call sends a request about n documents and returns the data of the answer.
func (b *backend) call(ctx context.Context, path string, in any, n int) (json.RawMessage, error) {
	var a answer
	err := b.client.Call(ctx, http.MethodPost, "/v2/vectordb"+path, in, &a, remote.AnswerBytes(n, 0))
	return a.Data, err
}

// find sends a request for at most n documents and returns what the answer has.
func (b *backend) find(ctx context.Context, path string, in any, n int) ([]found, error) {
	data, err := b.call(ctx, path, in, n)
	if err != nil {
		return nil, err
	}
	out := remote.NewEntries[found](n)
	err = remote.DecodeAnswer(store, data, &out)
	return out.List, err
}

// CreateCollection implements [remote.Backend]. The server makes the index of the vectors and loads the collection.
func (b *backend) CreateCollection(ctx context.Context, collection string, dimension int) error {
	_, err := b.call(ctx, "/collections/create", createRequest{
		Collection: collection, Dimension: dimension, MetricType: "COSINE", IDType: "VarChar", IDField: "id", VectorField: "vector",
		Params: createParameters{MaxLength: maxID, ConsistencyLevel: strong},
	}, 0)
	return err
}

// Upsert implements [remote.Backend].
func (b *backend) Upsert(ctx context.Context, collection string, docs []vectorstore.Document) error {
	in := upsertRequest{Collection: collection}
	for _, d := range docs {
		in.Data = append(in.Data, row{d.ID, d.Vector})
	}
	_, err := b.call(ctx, "/entities/upsert", in, len(docs))
	return err
}

// Find implements [remote.Backend].
func (b *backend) Find(ctx context.Context, collection string, ids []string) ([]string, error) {
	out, err := b.find(ctx, "/entities/query", filterRequest{collection, newFilter(ids), []string{"id"}, len(ids), strong}, len(ids))
	var existing []string
	for _, f := range out {
		existing = append(existing, f.ID)
	}
	return existing, err
}

// Search implements [remote.Backend].
func (b *backend) Search(ctx context.Context, collection string, vector []float32, limit int) ([]vectorstore.Match, error) {
	out, err := b.find(ctx, "/entities/search", searchRequest{collection, [][]float32{vector}, "vector", limit, []string{"id"}, strong}, limit)
	var matches []vectorstore.Match
	for _, f := range out {
		matches = append(matches, vectorstore.Match{ID: f.ID, Score: f.Distance})
	}
	return matches, err
}

// Delete implements [remote.Backend].
func (b *backend) Delete(ctx context.Context, collection string, ids []string) error {
	_, err := b.call(ctx, "/entities/delete", filterRequest{Collection: collection, Filter: newFilter(ids)}, len(ids))
	return err
}

// DropCollection implements [remote.Backend].
func (b *backend) DropCollection(ctx context.Context, collection string) error {
	_, err := b.call(ctx, "/collections/drop", collectionRequest{collection}, 0)
	return err
}

// Close implements [remote.Backend]. The connections belong to the egress client.
func (b *backend) Close() error { return nil }

// newFilter returns the expression for documents with one of ids. Its strings are written as in JSON.
func newFilter(ids []string) string {
	list, _ := json.Marshal(ids) // texts can always be encoded
	return "id in " + string(list)
}
