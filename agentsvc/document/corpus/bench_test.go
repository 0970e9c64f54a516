package corpus_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/document/corpus"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// benchVocabulary are 5,000 words, of which low indices are drawn far more often, as in texts.
func benchWord(r *rand.Rand) string {
	return fmt.Sprintf("w%d", int(5000*r.Float64()*r.Float64()*r.Float64()))
}

// benchText is a text of n words.
func benchText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(benchWord(r))
		b.WriteByte(' ')
	}
	return b.String()
}

// benchVector is a random vector of the size that small models have.
func benchVector(r *rand.Rand) []float32 {
	v := make([]float32, 384)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// fillStore stores chunks, 20 a document, and returns how long committing them took.
func fillStore(b *testing.B, d *db.DB, chunks int) *corpus.Store {
	b.Helper()
	ctx := b.Context()
	s := corpus.New(d, "acme", corpus.Limits{})
	if _, err := s.Index.EnsureStore(ctx, corpus.StoreSpec{Name: "manual", Source: "directory", Embedder: model}); err != nil {
		b.Fatal(err)
	}
	pass, found, err := corpus.NewPasses(d).Claim(ctx, "p", time.Hour, nil)
	if err != nil || !found {
		b.Fatal(found, err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var items []corpus.Listed
	for i := range chunks / 20 {
		items = append(items, corpus.Listed{ID: fmt.Sprintf("%06d", i), Title: "title", Version: "1"})
	}
	for part := range slices.Chunk(items, 1000) {
		if _, err := s.Index.UpsertListed(ctx, pass, part, false); err != nil {
			b.Fatal(err)
		}
	}
	var busy time.Duration
	for {
		pending, err := s.Index.NextPending(ctx, "manual", "", 100)
		if err != nil {
			b.Fatal(err)
		}
		if len(pending) == 0 {
			break
		}
		for _, p := range pending {
			c := corpus.Commit{Document: p.ID, Revision: p.Revision, Generation: 1, Model: model}
			for i := range 20 {
				k := corpus.EmbeddedChunk{Vector: benchVector(r), TextHash: fmt.Sprint(p.ID, i)}
				k.Ordinal, k.Text = i, benchText(r, 150)
				c.Chunks = append(c.Chunks, k)
			}
			began := time.Now()
			if err := s.Index.CommitDocument(ctx, pass, c); err != nil {
				b.Fatal(err)
			}
			busy += time.Since(began)
		}
	}
	b.Logf("%s: %d chunks committed, %.0f a second", d.Engine(), chunks, float64(chunks)/busy.Seconds())
	return s
}

// bareQuery reads the rows that a search reads, by the shortest statement, and does nothing with them.
func bareQuery(b *testing.B, d *db.DB, query string, args ...any) {
	b.Helper()
	var raw []byte
	var id string
	var batch db.Batch
	batch.Query(func(r db.Row) error { return r.Scan(&id, &raw) }, query, args...)
	if err := d.Tenant("acme").Do(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSearch measures the legs of a search and their ratio to reading the same rows without conditions on access and
// without ranking.
//
//	.ci/with-services go test ./agentsvc/document/corpus -run '^$' -bench Search -benchtime 20x
func BenchmarkSearch(b *testing.B) {
	for _, chunks := range []int{1000, 10_000} {
		for _, engine := range []string{"sqlite", "postgres"} {
			b.Run(fmt.Sprintf("%s/%d", engine, chunks), func(b *testing.B) {
				var d *db.DB
				if engine == "sqlite" {
					d = dbtest.NewSQLite(b)
				} else {
					d = dbtest.NewPostgres(b)
				}
				s := fillStore(b, d, chunks)
				r := rand.New(rand.NewPCG(3, 4))
				ratio := func(b *testing.B, search, bare func()) {
					var searching, reading time.Duration
					for b.Loop() {
						began := time.Now()
						search()
						between := time.Now()
						bare()
						searching, reading = searching+between.Sub(began), reading+time.Since(between)
					}
					b.ReportMetric(float64(searching.Microseconds())/float64(b.N)/1000, "ms/search")
					b.ReportMetric(searching.Seconds()/reading.Seconds(), "ratio")
					b.ReportMetric(0, "ns/op")
				}
				b.Run("vector", func(b *testing.B) {
					query := benchVector(r)
					ratio(b, func() {
						if found, err := s.Search.MatchVectors(b.Context(), manual, model, query, 10); err != nil || len(found) != 10 {
							b.Fatal(len(found), err)
						}
					}, func() {
						bareQuery(b, d, `SELECT id, vector FROM chunk_vector WHERE tenant = $1 AND store = $2`, "acme", "manual")
					})
				})
				b.Run("text", func(b *testing.B) {
					question := []string{"w40", "w900", "w2500"}
					match, args := `SELECT id, words FROM chunk WHERE tenant = $1 AND store = $2 AND lexemes @@ CAST(CAST($3 AS TEXT) AS tsquery)`, []any{"acme", "manual", `'w40' | 'w900' | 'w2500'`}
					if engine == "sqlite" {
						match, args = `SELECT id, c.words FROM chunk_words JOIN chunk c ON c.n = chunk_words.rowid WHERE chunk_words MATCH $1`, []any{`words : ("w40" OR "w900" OR "w2500")`}
					}
					ratio(b, func() {
						if found, _, err := s.Search.MatchText(b.Context(), manual, question, 10); err != nil || len(found) != 10 {
							b.Fatal(len(found), err)
						}
					}, func() { bareQuery(b, d, match, args...) })
				})
			})
		}
	}
}
