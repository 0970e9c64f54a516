package remote_test

import (
	"context"

	"stoa/agentsvc/vectorstore"
)

// recordingBackend records what it is asked for.
type recordingBackend struct {
	err     error // of an upsert
	matches []vectorstore.Match

	batches []int // sizes of upserts
	dropped string
	limit   int
}

func (b *recordingBackend) CreateCollection(context.Context, string, int) error { return nil }

func (b *recordingBackend) Upsert(_ context.Context, _ string, docs []vectorstore.Document) error {
	b.batches = append(b.batches, len(docs))
	return b.err
}

func (b *recordingBackend) Find(context.Context, string, []string) ([]string, error) { return nil, nil }

func (b *recordingBackend) Search(_ context.Context, _ string, _ []float32, limit int) ([]vectorstore.Match, error) {
	b.limit = limit
	return b.matches, nil
}

func (b *recordingBackend) Delete(context.Context, string, []string) error { return nil }

func (b *recordingBackend) DropCollection(_ context.Context, collection string) error {
	b.dropped = collection
	return nil
}

func (b *recordingBackend) Close() error { return nil }
