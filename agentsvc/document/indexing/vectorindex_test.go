package indexing_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/indexing"
	"stoa/tenancy/db/dbtest"
)

// logLines is a log in memory.
type logLines struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

// Write implements [io.Writer].
func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

// count returns how often the log has a text.
func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.lines.String(), text)
}

// TestVectorIndex: the indexer makes the approximate index of a large store as soon as PostgreSQL has the extension, and warns
// once as long as it has not. A rebuilt index has its own, and a store that leaves the configuration leaves none.
func TestVectorIndex(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.NewVectorPostgres(t))
	f.limits.ExactChunks = 100
	var log logLines
	f.setStore(acme, f.withVectors(newStore(1), &scriptedEmbedder{model: "first"}, false))
	for i := range 30 {
		f.put(acme, fmt.Sprint(i), strings.Repeat(fmt.Sprintf("some text %d\n\n", i), 5)+"end")
	}
	f.startIndexer(func(o *indexing.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	const warning = "it needs an approximate index, and can have none"
	f.waitFor("the indexer warns that there is no extension", func() bool { return log.count(warning) > 0 })
	f.put(acme, "another", "text")
	f.waitIndexed(acme, 31)
	idle := func() bool { // the next pass is a long time away
		return f.count(`SELECT COUNT(*) FROM index_pass WHERE holder <> '' OR due_at < stoa_now() + $1`, time.Minute.Microseconds()) == 0
	}
	f.waitFor("the pass is over", idle)
	if n := log.count(warning); n != 1 {
		t.Errorf("%d warnings in two passes", n)
	}
	if s := f.status(acme); s.VectorIndex != document.Exact {
		t.Errorf("the status has %q without the extension", s.VectorIndex)
	}
	if n := f.count(`SELECT COUNT(*) FROM index_pass WHERE due_at < stoa_now() + $1`, (2 * time.Hour).Microseconds()); n != 1 {
		t.Error("no pass comes soon that would find the extension")
	}

	dbtest.InstallVector(t, f.d)
	f.requestPass(acme)
	f.waitFor("the store has an index", func() bool { return f.status(acme).VectorIndex == document.HNSW })
	f.setStore(acme, f.withVectors(newStore(2), &scriptedEmbedder{model: "second"}, false))
	f.waitFor("the rebuilt store has an index", func() bool {
		s := f.status(acme)
		return s.Generation == 2 && s.VectorIndex == document.HNSW
	})
	const tables = `SELECT COUNT(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'chunk\_hnsw\_%'`
	f.waitFor("there is one index", func() bool { return f.count(tables) == 1 })
	found, err := f.rows(acme).Search.MatchVectors(t.Context(), corpus.Scope{Store: manual, Reader: everyone}, "second", []float32{1, 2, 3}, 50)
	if err != nil || len(found) != 50 {
		t.Errorf("%d chunks are found: %v", len(found), err)
	}
	f.setStore(acme, nil)
	f.waitFor("the store has left no index", func() bool { return f.count(tables) == 0 && f.count(`SELECT COUNT(*) FROM vector_index`) == 0 })
}

// TestRequestIndexes: a store that is large enough for an approximate index, of a version that made none, gets its pass at the
// start of a process.
func TestRequestIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.NewVectorPostgres(t))
	f.setStore(acme, f.withVectors(newStore(1), &scriptedEmbedder{model: "first"}, false))
	stop := f.startIndexer()
	f.put(acme, "one", "text")
	f.waitIndexed(acme, 1)
	stop()
	f.execSQL(`UPDATE index_pass SET due_at = stoa_now() + $1`, time.Hour.Microseconds())
	passes := corpus.NewPasses(f.d)
	due := func(want int, when string) {
		t.Helper()
		if err := passes.RequestIndexes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := f.count(`SELECT COUNT(*) FROM index_pass WHERE due_at <= stoa_now()`); n != want {
			t.Errorf("%s: %d passes are due, want %d", when, n, want)
		}
	}
	due(0, "a small store")
	f.execSQL(`UPDATE document_live SET chunks = 20001`)
	due(0, "without the extension")
	dbtest.InstallVector(t, f.d)
	due(1, "a large store")
	f.execSQL(`UPDATE index_pass SET due_at = stoa_now() + $1`, time.Hour.Microseconds())
	f.execSQL(`INSERT INTO vector_index (tenant, store, generation, id, dimensions) VALUES ($1, $2, 1, 'x', 3)`, string(acme), manual)
	due(1, "the table of the index is missing, as after a restoration without it")
	f.execSQL(`UPDATE index_pass SET due_at = stoa_now() + $1`, time.Hour.Microseconds())
	dbtest.ExecSQL(t, f.d.URL(), `CREATE TABLE chunk_hnsw_x (embedding halfvec(3))`)
	due(0, "a store with an index")
}

// TestSweepIndexes: an indexer drops a table of an approximate index that nothing names, also one that appears while it runs, and no
// other.
func TestSweepIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.NewVectorPostgres(t))
	dbtest.InstallVector(t, f.d)
	const named, unknown = "fedcba9876543210fedcba9876543210", "0123456789abcdef0123456789abcdef"
	f.execSQL(`INSERT INTO vector_index (tenant, store, generation, id, dimensions) VALUES ($1, $2, 1, $3, 3)`, string(acme), manual, named)
	f.execSQL(`SELECT stoa_create_vector_index('` + named + `', 3)`)
	f.startIndexer(func(o *indexing.Options) { o.Pauses.Sweep = 10 * time.Millisecond })
	exists := func(id string) bool {
		return f.count(`SELECT COUNT(*) FROM pg_class WHERE relkind = 'r' AND relname = 'chunk_hnsw_' || $1`, id) == 1
	}
	for range 2 {
		f.execSQL(`SELECT stoa_create_vector_index('` + unknown + `', 3)`)
		f.waitFor("the table is dropped", func() bool { return !exists(unknown) })
		if !exists(named) {
			t.Fatal("the table of an index that a row names is dropped")
		}
	}
}
