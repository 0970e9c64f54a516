// Package weaviate implements vectorstore.Store with a Weaviate server or Weaviate Cloud, over its REST and GraphQL
// API. A collection is a class without properties.
package weaviate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
)

// store is the type's name, port its usual port.
const (
	store = "weaviate"
	port  = 8080
)

// backend implements [remote.Backend].
type backend struct{ client *remote.Client }

// The bodies of the API, as far as they are used.
type (
	newClass struct {
		Class       string      `json:"class"`
		Vectorizer  string      `json:"vectorizer"`
		IndexConfig indexConfig `json:"vectorIndexConfig"`
	}
	indexConfig struct {
		Distance string `json:"distance"`
	}
	object struct {
		Class  string    `json:"class"`
		ID     string    `json:"id"`
		Vector []float32 `json:"vector"`
	}
	upsertRequest struct {
		Objects []object `json:"objects"`
	}
	upsertAnswer struct {
		Result struct {
			Status string `json:"status"`
		} `json:"result"`
	}
	deleteRequest struct {
		Match match `json:"match"`
	}
	match struct {
		Class string `json:"class"`
		Where where  `json:"where"`
	}
	where struct {
		Path     []string `json:"path"`
		Operator string   `json:"operator"`
		Values   []string `json:"valueTextArray"`
	}
	deleteAnswer struct {
		Results struct {
			Failed int `json:"failed"`
		} `json:"results"`
	}
	graphRequest struct {
		Query string `json:"query"`
	}
	graphAnswer struct {
		Data struct {
			Get map[string]remote.Entries[foundObject] `json:"Get"`
		} `json:"data"`
		Errors remote.Entries[json.RawMessage] `json:"errors"`
	}
	foundObject struct {
		Additional struct {
			ID       string  `json:"id"`
			Distance float32 `json:"distance"`
		} `json:"_additional"`
	}
)

// New returns a store. It sends nothing before its first use.
func New(o remote.Options) vectorstore.Store {
	header := http.Header{}
	if o.APIKey != "" {
		header.Set("Authorization", "Bearer "+o.APIKey)
	}
	return remote.NewStore(store, o, &backend{remote.NewClient(store, o, port, header)})
}

// className returns the name of a collection's class. The first letter of a class is a capital one.
func className(collection string) string {
	return strings.ToUpper(collection[:1]) + collection[1:]
}

// requireClass returns [remote.ErrNotFound] if a collection's class does not exist.
func (b *backend) requireClass(ctx context.Context, collection string) error {
	return b.client.Call(ctx, http.MethodGet, "/v1/schema/"+className(collection), nil, nil, 0)
}

// explainRefusal returns [remote.ErrNotFound] instead of err if the request was refused because the class does not
// exist: most endpoints do not answer with status 404 then.
func (b *backend) explainRefusal(ctx context.Context, collection string, err error) error {
	if _, refused := errors.AsType[*vectorstore.RejectedError](err); refused && errors.Is(b.requireClass(ctx, collection), remote.ErrNotFound) {
		return remote.ErrNotFound
	}
	return err
}

// CreateCollection implements [remote.Backend].
func (b *backend) CreateCollection(ctx context.Context, collection string, _ int) error {
	err := b.client.Call(ctx, http.MethodPost, "/v1/schema", newClass{className(collection), "none", indexConfig{"cosine"}}, nil, 0)
	if _, refused := errors.AsType[*vectorstore.RejectedError](err); refused && b.requireClass(ctx, collection) == nil {
		return nil // it exists
	}
	return err
}

// Upsert implements [remote.Backend]. The class must exist: the server may otherwise create one that compares vectors
// in another way.
func (b *backend) Upsert(ctx context.Context, collection string, docs []vectorstore.Document) error {
	if err := b.requireClass(ctx, collection); err != nil {
		return err
	}
	var in upsertRequest
	for _, d := range docs {
		in.Objects = append(in.Objects, object{className(collection), d.ID, d.Vector})
	}
	// The answer repeats the objects.
	numbers := 0
	for _, d := range docs {
		numbers += len(d.Vector)
	}
	out := remote.NewEntries[upsertAnswer](len(docs))
	if err := b.client.Call(ctx, http.MethodPost, "/v1/batch/objects", in, &out, remote.AnswerBytes(len(docs), numbers)); err != nil {
		return err
	}
	for _, a := range out.List {
		if a.Result.Status != "SUCCESS" {
			return remote.NewRefusedRequest(store, "an object was not stored")
		}
	}
	return nil
}

// get sends a query with arguments for a class, and returns what it finds: at most limit objects.
func (b *backend) get(ctx context.Context, collection, arguments string, limit int) ([]vectorstore.Match, error) {
	class := className(collection)
	var out graphAnswer
	err := b.client.Call(ctx, http.MethodPost, "/v1/graphql", graphRequest{fmt.Sprintf("{Get{%s(%s){_additional{id distance}}}}", class, arguments)}, &out, remote.AnswerBytes(limit, 0))
	if err == nil && len(out.Errors.List) > 0 {
		err = remote.NewRefusedRequest(store, "GraphQL")
	}
	if err != nil {
		return nil, b.explainRefusal(ctx, collection, err)
	}
	var matches []vectorstore.Match
	for _, o := range out.Data.Get[class].List {
		matches = append(matches, vectorstore.Match{ID: o.Additional.ID, Score: 1 - o.Additional.Distance})
	}
	return matches, nil
}

// Find implements [remote.Backend].
func (b *backend) Find(ctx context.Context, collection string, ids []string) ([]string, error) {
	list, _ := json.Marshal(ids) // texts can always be encoded
	matches, err := b.get(ctx, collection, fmt.Sprintf(`limit:%d where:{path:["id"] operator:ContainsAny valueText:%s}`, len(ids), list), len(ids))
	var found []string
	for _, m := range matches {
		found = append(found, m.ID)
	}
	return found, err
}

// Search implements [remote.Backend].
func (b *backend) Search(ctx context.Context, collection string, vector []float32, limit int) ([]vectorstore.Match, error) {
	list, err := json.Marshal(vector)
	if err != nil {
		return nil, fmt.Errorf("encode a vector: %w", err)
	}
	return b.get(ctx, collection, fmt.Sprintf("limit:%d nearVector:{vector:%s}", limit, list), limit)
}

// Delete implements [remote.Backend]. The server answers with status 500 for a class that does not exist.
func (b *backend) Delete(ctx context.Context, collection string, ids []string) error {
	if err := b.requireClass(ctx, collection); err != nil {
		return err
	}
	var out deleteAnswer
	err := b.client.Call(ctx, http.MethodDelete, "/v1/batch/objects", deleteRequest{match{className(collection), where{[]string{"id"}, "ContainsAny", ids}}}, &out, remote.AnswerBytes(len(ids), 0))
	if err == nil && out.Results.Failed > 0 {
		err = remote.NewRefusedRequest(store, "an object was not deleted")
	}
	return err
}

// DropCollection implements [remote.Backend].
func (b *backend) DropCollection(ctx context.Context, collection string) error {
	return b.explainRefusal(ctx, collection, b.client.Call(ctx, http.MethodDelete, "/v1/schema/"+className(collection), nil, nil, 0))
}

// Close implements [remote.Backend]. The connections belong to the egress client.
func (b *backend) Close() error { return nil }
