package retrieval_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/retrieval"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// benchText is a text of 5,000 words, those with low numbers far more often, as in texts.
func benchText(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "w%d ", int(5000*r.Float64()*r.Float64()*r.Float64()))
	}
	return b.String()
}

// benchSizes are the chunks of the tenant that is searched; with the first there are many other tenants in the same tables. STOA_TEST_BENCH_CHUNKS
// adds a size.
func benchSizes(b *testing.B) []int {
	sizes := []int{fewChunks, 1000, 10_000}
	if more := os.Getenv("STOA_TEST_BENCH_CHUNKS"); more != "" {
		n, err := strconv.Atoi(more)
		if err != nil {
			b.Fatalf("STOA_TEST_BENCH_CHUNKS: %v", err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

const (
	fewChunks    = 10
	otherTenants = 1000
)

// BenchmarkSearch measures searches and the bare query by turns: the shortest statement that reads the rows that are ranked, and does
// nothing with them.
//
//	.ci/with-services go test ./agentsvc/document/retrieval -run '^$' -bench Search -benchtime 200x
func BenchmarkSearch(b *testing.B) {
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, chunks := range benchSizes(b) {
			b.Run(fmt.Sprintf("%s/%d", engine, chunks), func(b *testing.B) {
				d := openBench(b, engine)
				r := rand.New(rand.NewPCG(1, 2))
				docs := benchDocuments(r, chunks)
				s := newTestStore(b, d, newHashing(), nil, docs...)
				for i := range otherTenants {
					if chunks > fewChunks {
						break
					}
					other := s.Indexer
					other.Tenant = db.ID(fmt.Sprintf("other%d", i))
					other.Index(b, benchDocuments(r, fewChunks)...)
				}
				words := strings.Fields(docs[0].Chunks[0])
				for _, mode := range []document.Mode{document.Text, document.Vector, document.Hybrid} {
					b.Run(string(mode), func(b *testing.B) { benchSearch(b, d, s.options(), mode, words) })
				}
			})
		}
	}
}

// benchDocuments returns documents of up to 20 chunks.
func benchDocuments(r *rand.Rand, chunks int) (docs []testDocument) {
	for i := range max(1, chunks/20) {
		doc := testDocument{ID: fmt.Sprintf("doc-%05d", i)}
		for range min(chunks, 20) {
			doc.Chunks = append(doc.Chunks, benchText(r, 390))
		}
		docs = append(docs, doc)
	}
	return docs
}

func openBench(b *testing.B, engine string) *db.DB {
	if engine == "sqlite" {
		return dbtest.NewSQLite(b)
	}
	return dbtest.NewPostgres(b)
}

func benchSearch(b *testing.B, d *db.DB, o retrieval.Options, mode document.Mode, words []string) {
	var mu sync.Mutex
	parts := map[retrieval.Part][]time.Duration{}
	o.Hooks.OnPart = func(p retrieval.Part, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		parts[p] = append(parts[p], took)
	}
	s := retrieval.NewSearcher(o)
	r := rand.New(rand.NewPCG(3, 4))
	var searches, bare []time.Duration
	for b.Loop() {
		some := []string{words[r.IntN(len(words))], words[r.IntN(len(words))], words[r.IntN(len(words))]}
		began := time.Now()
		found, err := s.Search(b.Context(), scopeOf(ana), document.Query{Text: strings.Join(some, " "), Mode: mode, Limit: 10, Reader: document.Reader{Owner: ana}})
		searches = append(searches, time.Since(began))
		if err != nil || len(found.Passages) == 0 {
			b.Fatal(found, err)
		}
		began = time.Now()
		bareSearch(b, d, mode, some)
		bare = append(bare, time.Since(began))
	}
	for _, q := range []float64{0.5, 0.99} {
		search, read := quantile(searches, q), quantile(bare, q)
		b.ReportMetric(search.Seconds()*1000, fmt.Sprintf("p%v-ms", 100*q))
		b.ReportMetric(search.Seconds()/read.Seconds(), fmt.Sprintf("p%v-ratio", 100*q))
	}
	for p, took := range parts {
		b.ReportMetric(quantile(took, 0.5).Seconds()*1000, string(p)+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// bareSearch reads the rows that a search ranks.
func bareSearch(b *testing.B, d *db.DB, mode document.Mode, words []string) {
	var raw []byte
	var id string
	var batch db.Batch
	read := func(r db.Row) error { return r.Scan(&id, &raw) }
	if mode != document.Vector {
		if d.Engine() == db.Postgres {
			batch.Query(read, `SELECT id, words FROM chunk WHERE tenant = $1 AND store = $2 AND lexemes @@ CAST(CAST($3 AS TEXT) AS tsquery)`, "acme", "manual", `'`+strings.Join(words, `' | '`)+`'`)
		} else {
			batch.Query(read, `SELECT c.id, c.words FROM chunk_words JOIN chunk c ON c.n = chunk_words.rowid WHERE chunk_words MATCH $1`,
				`scope : "`+strings.ToUpper(hex.EncodeToString([]byte("acme\x1fmanual")))+`" AND words : ("`+strings.Join(words, `" OR "`)+`")`)
		}
	}
	if mode != document.Text {
		batch.Query(read, `SELECT id, vector FROM chunk_vector WHERE tenant = $1 AND store = $2`, "acme", "manual")
	}
	if err := d.Tenant("acme").Do(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
}

// quantile returns a quantile of durations.
func quantile(of []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
