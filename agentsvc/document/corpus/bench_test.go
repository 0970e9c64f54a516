package corpus_test

import (
	"errors"
	"fmt"
	"math"
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

// fillStore stores chunks, 20 a document, with vectors of newVector, and logs how long committing them took. The metadata n of a
// document is its number modulo 100.
func fillStore(b *testing.B, d *db.DB, chunks int, newVector func(*rand.Rand) []float32) *corpus.Store {
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
		items = append(items, corpus.Listed{ID: fmt.Sprintf("%06d", i), Title: "title", Version: "1", Metadata: map[string]string{"n": fmt.Sprint(i % 100)}})
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
				k := corpus.EmbeddedChunk{Vector: newVector(r), TextHash: fmt.Sprint(p.ID, i)}
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
				s := fillStore(b, d, chunks, benchVector)
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

// BenchmarkVectorIndex builds the approximate index of a store on PostgreSQL, and measures searches by it and their recall against
// exact ones: of the whole store, and of one in a hundred of its documents.
//
//	STOA_TEST_PGVECTOR=$(.ci/pgvector) .ci/with-services go test ./agentsvc/document/corpus -run '^$' -bench VectorIndex -benchtime 100x -timeout 1h
func BenchmarkVectorIndex(b *testing.B) {
	const limit = 50
	for _, chunks := range []int{30_000, 100_000} {
		b.Run(fmt.Sprint(chunks), func(b *testing.B) {
			d := dbtest.NewVectorPostgres(b)
			dbtest.InstallVector(b, d)
			newVector := groupedVectors(1000)
			s := fillStore(b, d, chunks, newVector)
			buildIndex(b, d, s, chunks)
			exact := corpus.New(d, "acme", corpus.Limits{ExactChunks: math.MaxInt64}).Search
			for name, scope := range map[string]corpus.Scope{
				"all": manual, "one in a hundred": {Store: "manual", Reader: everyone, Filter: map[string]string{"n": "7"}},
			} {
				b.Run(name, func(b *testing.B) {
					r := rand.New(rand.NewPCG(3, 4))
					var searching, comparing time.Duration
					found, wanted := 0, 0
					for b.Loop() {
						query := newVector(r)
						began := time.Now()
						got, err := s.Search.MatchVectors(b.Context(), scope, model, query, limit)
						between := time.Now()
						want, err2 := exact.MatchVectors(b.Context(), scope, model, query, limit)
						if err := errors.Join(err, err2); err != nil {
							b.Fatal(err)
						}
						searching, comparing = searching+between.Sub(began), comparing+time.Since(between)
						wanted += len(want)
						for _, m := range want {
							if slices.Contains(got, m) {
								found++
							}
						}
					}
					b.ReportMetric(float64(searching.Microseconds())/float64(b.N)/1000, "ms/search")
					b.ReportMetric(float64(comparing.Microseconds())/float64(b.N)/1000, "ms/exact")
					b.ReportMetric(float64(found)/float64(wanted), "recall")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// groupedVectors returns a function that makes vectors near one of n random ones, as those of texts about n subjects are.
func groupedVectors(n int) func(*rand.Rand) []float32 {
	centers := make([][]float32, n)
	for i := range centers {
		centers[i] = benchVector(rand.New(rand.NewPCG(5, uint64(i))))
	}
	return func(r *rand.Rand) []float32 {
		v := benchVector(r)
		for i, x := range centers[r.IntN(n)] {
			v[i] = x + 0.8*v[i]
		}
		return v
	}
}

// buildIndex makes the approximate index of a store, as a pass does, and logs how long that took.
func buildIndex(b *testing.B, d *db.DB, s *corpus.Store, chunks int) {
	b.Helper()
	if err := corpus.NewPasses(d).ExpireLeases(b.Context()); err != nil {
		b.Fatal(err)
	}
	pass, found, err := corpus.NewPasses(d).Claim(b.Context(), "p", time.Hour, nil)
	if err != nil || !found {
		b.Fatal(found, err)
	}
	began := time.Now()
	for more := true; more; {
		got, err := s.Vectors.Update(b.Context(), pass, 1, 200)
		if err != nil || got.Obstacle != "" {
			b.Fatal(got.Obstacle, err)
		}
		more = got.More
	}
	b.Logf("%d vectors of 384 numbers indexed, %.0f a second", chunks, float64(chunks)/time.Since(began).Seconds())
}
