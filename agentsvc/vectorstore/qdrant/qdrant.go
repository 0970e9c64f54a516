// Package qdrant implements vectorstore.Store with a Qdrant server, over gRPC.
package qdrant

import (
	"context"
	"errors"

	"github.com/qdrant/go-client/qdrant"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
)

// store is the type's name, port the usual port of gRPC. Qdrant's REST API has another one, 6333.
const (
	store = "qdrant"
	port  = 6334
)

// backend implements [remote.Backend] with the official stubs.
type backend struct {
	conn        *remote.Conn
	collections qdrant.CollectionsClient
	points      qdrant.PointsClient
}

// New returns a store. It connects at its first use.
func New(o remote.Options) (vectorstore.Store, error) {
	var header []string
	if o.APIKey != "" {
		header = []string{"api-key", o.APIKey}
	}
	conn, err := remote.NewConn(store, o, port, header...)
	if err != nil {
		return nil, err
	}
	return remote.NewStore(store, o, &backend{conn, qdrant.NewCollectionsClient(conn), qdrant.NewPointsClient(conn)}), nil
}

// CreateCollection implements [remote.Backend]. The code for a collection that exists differs between versions of
// Qdrant, so that any error is followed by the question whether it exists.
func (b *backend) CreateCollection(ctx context.Context, collection string, dimension int) error {
	_, err := b.collections.Create(ctx, &qdrant.CreateCollection{
		CollectionName: collection,
		VectorsConfig:  qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: uint64(dimension), Distance: qdrant.Distance_Cosine}),
	})
	if _, refused := errors.AsType[*vectorstore.RejectedError](err); !refused {
		return err
	}
	existing, findErr := b.collections.CollectionExists(ctx, &qdrant.CollectionExistsRequest{CollectionName: collection})
	if findErr == nil && existing.GetResult().GetExists() {
		return nil
	}
	return err
}

// Upsert implements [remote.Backend]. wait makes the points searchable before the answer.
func (b *backend) Upsert(ctx context.Context, collection string, docs []vectorstore.Document) error {
	points := make([]*qdrant.PointStruct, len(docs))
	for i, d := range docs {
		points[i] = &qdrant.PointStruct{Id: qdrant.NewID(d.ID), Vectors: qdrant.NewVectorsDense(d.Vector)}
	}
	_, err := b.points.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: collection, Wait: qdrant.PtrOf(true), Points: points})
	return err
}

// Find implements [remote.Backend].
func (b *backend) Find(ctx context.Context, collection string, ids []string) ([]string, error) {
	answer, err := b.points.Get(ctx, &qdrant.GetPoints{
		CollectionName: collection, Ids: newPointIDs(ids), WithPayload: qdrant.NewWithPayload(false), WithVectors: qdrant.NewWithVectors(false),
	}, remote.Documents(len(ids)))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range answer.GetResult() {
		found = append(found, p.GetId().GetUuid())
	}
	return found, nil
}

// Search implements [remote.Backend].
func (b *backend) Search(ctx context.Context, collection string, vector []float32, limit int) ([]vectorstore.Match, error) {
	answer, err := b.points.Query(ctx, &qdrant.QueryPoints{
		CollectionName: collection, Query: qdrant.NewQueryDense(vector), Limit: qdrant.PtrOf(uint64(limit)), WithPayload: qdrant.NewWithPayload(false),
	}, remote.Documents(limit))
	if err != nil {
		return nil, err
	}
	var matches []vectorstore.Match
	for _, p := range answer.GetResult() {
		matches = append(matches, vectorstore.Match{ID: p.GetId().GetUuid(), Score: p.GetScore()})
	}
	return matches, nil
}

// Delete implements [remote.Backend].
func (b *backend) Delete(ctx context.Context, collection string, ids []string) error {
	_, err := b.points.Delete(ctx, &qdrant.DeletePoints{
		CollectionName: collection, Wait: qdrant.PtrOf(true), Points: qdrant.NewPointsSelectorIDs(newPointIDs(ids)),
	})
	return err
}

// DropCollection implements [remote.Backend].
func (b *backend) DropCollection(ctx context.Context, collection string) error {
	_, err := b.collections.Delete(ctx, &qdrant.DeleteCollection{CollectionName: collection})
	return err
}

// Close implements [remote.Backend].
func (b *backend) Close() error { return b.conn.Close() }

// newPointIDs returns ids as Qdrant has them.
func newPointIDs(ids []string) []*qdrant.PointId {
	points := make([]*qdrant.PointId, len(ids))
	for i, id := range ids {
		points[i] = qdrant.NewID(id)
	}
	return points
}
