package corpus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/document/corpus"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// largeCommit returns the commit of a document of n chunks of 40 words.
func largeCommit(d corpus.PendingDocument, n int) corpus.Commit {
	r := rand.New(rand.NewPCG(1, 2))
	c := corpus.Commit{Document: d.ID, Revision: d.Revision, Generation: 1, Model: model}
	for i := range n {
		k := corpus.EmbeddedChunk{Vector: []float32{1, float32(i), 2, 3}, TextHash: fmt.Sprint(i)}
		k.Ordinal, k.Text = i, benchText(r, 40)
		c.Chunks = append(c.Chunks, k)
	}
	return c
}

// waitOfWrites runs f, and returns how long the writes of another app took meanwhile, up to 100 a second: the longest one, and the 99th percentile.
func waitOfWrites(b *testing.B, d *db.DB, f func()) (longest, p99 time.Duration) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	var took []time.Duration
	var other sync.WaitGroup
	other.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for i := 0; i == 0 || ctx.Err() == nil; i++ {
			var batch db.Batch
			batch.Exec(nil, `INSERT INTO index_app (tenant, generation) VALUES ($1, $2) ON CONFLICT (tenant) DO UPDATE SET generation = excluded.generation`, "globex", int64(i))
			began := time.Now()
			if err := d.Tenant("globex").Do(context.WithoutCancel(ctx), &batch); err != nil {
				b.Error(err)
			}
			took = append(took, time.Since(began))
			<-pace.C
		}
	})
	f()
	stop()
	other.Wait()
	slices.Sort(took)
	return took[len(took)-1], took[len(took)*99/100]
}

// BenchmarkLargeDocument measures how long the writes of another app wait while a document of many chunks is committed, replaced
// and deleted.
//
//	go test ./agentsvc/document/corpus -run '^$' -bench LargeDocument -benchtime 1x
func BenchmarkLargeDocument(b *testing.B) {
	for _, chunks := range []int{20_000, 100_000} {
		b.Run(fmt.Sprint(chunks), func(b *testing.B) {
			for range b.N {
				measureLargeDocument(b, dbtest.NewSQLite(b), chunks)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// countChunks returns the number of chunks of all documents.
func countChunks(b *testing.B, d *db.DB) (n int64) {
	b.Helper()
	var batch db.Batch
	batch.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM chunk`)
	if err := d.Platform().Do(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	return n
}

func measureLargeDocument(b *testing.B, d *db.DB, chunks int) {
	ctx := b.Context()
	s := corpus.New(d, "acme", corpus.Limits{Chunks: 200_000})
	if _, err := s.Index.EnsureStore(ctx, corpus.StoreSpec{Name: "manual", Source: "upload", Embedder: model}); err != nil {
		b.Fatal(err)
	}
	pass, found, err := corpus.NewPasses(d).Claim(ctx, "p", time.Hour, nil)
	if err != nil || !found {
		b.Fatal(found, err)
	}
	report := func(what string, f func()) {
		began := time.Now()
		longest, p99 := waitOfWrites(b, d, f)
		b.Logf("%d chunks, %s: %.1f s, writes of another app wait up to %d ms, 99 of 100 up to %d ms", chunks, what, time.Since(began).Seconds(), longest.Milliseconds(), p99.Milliseconds())
		b.ReportMetric(float64(longest.Milliseconds()), "ms-wait/"+what)
	}
	for _, what := range []string{"commit", "replacement"} {
		if _, _, err := s.Documents.Put(ctx, "manual", corpus.Upload{ID: "a", Body: []byte(what)}); err != nil {
			b.Fatal(err)
		}
		pending, err := s.Index.NextPending(ctx, "manual", "", 1)
		if err != nil || len(pending) != 1 {
			b.Fatal(len(pending), err)
		}
		c := largeCommit(pending[0], chunks)
		report(what, func() {
			if err := s.Index.CommitDocument(ctx, pass, c); err != nil {
				b.Fatal(err)
			}
		})
	}
	report("deletion", func() {
		if err := s.Documents.Delete(ctx, "manual", "a", "", everyone); err != nil {
			b.Fatal(err)
		}
	})
	report("removal", func() { // the first minute of deleting the chunks of both revisions, as a pass does
		began := time.Now()
		if _, err := s.Index.DeleteHidden(ctx, "manual", func() bool { return time.Since(began) > time.Minute }); err != nil {
			b.Fatal(err)
		}
		b.Logf("%d of %d chunks are left after %.0f s", countChunks(b, d), 2*chunks, time.Since(began).Seconds())
	})
}
