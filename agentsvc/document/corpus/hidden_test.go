package corpus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// transactionEnd calls a function at the end of each transaction.
type transactionEnd func()

func (f transactionEnd) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.Name() == "transaction" {
		f()
	}
}

func (transactionEnd) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (transactionEnd) Shutdown(context.Context) error                  { return nil }
func (transactionEnd) ForceFlush(context.Context) error                { return nil }

// watchTransactions returns a context with which f is called at the end of each transaction of the package, before its caller goes on.
func watchTransactions(t *testing.T, f func()) context.Context {
	t.Helper()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(transactionEnd(f)))
	t.Cleanup(func() { _ = traces.Shutdown(context.Background()) })
	ctx, _ := traces.Tracer("test").Start(t.Context(), "test") // recorded as long as the test runs
	return ctx
}

// chunksOfRevisions returns the number of rows of chunk and chunk_vector by revision.
func chunksOfRevisions(t *testing.T, d *db.DB) map[int64]int64 {
	t.Helper()
	counts := map[int64]int64{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var revision, n int64
		err := r.Scan(&revision, &n)
		counts[revision] = n
		return err
	}, `SELECT revision, COUNT(*) FROM (SELECT revision FROM chunk UNION ALL SELECT revision FROM chunk_vector) x GROUP BY revision`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return counts
}

// largeText is a text of n lines, each with a word.
func largeText(word string, n int) string {
	return strings.TrimSuffix(strings.Repeat(word+" line\n", n), "\n")
}

func never() bool  { return false }
func always() bool { return true }

// deleteHidden deletes what is hidden in the fixture's store.
func (f *fixture) deleteHidden(t *testing.T) {
	t.Helper()
	if more, err := f.Index.DeleteHidden(t.Context(), "manual", never); err != nil || more {
		t.Fatal(more, err)
	}
}

// rowsOf are the rows of a store with one upload of n chunks.
func rowsOf(n int64) map[string]int64 {
	return map[string]int64{"document_store": 1, "document": 1, "document_body": 1, "document_live": 1, "chunk": n, "chunk_vector": n, "index_pass": 1}
}

// TestLargeDocument: a large document is written, replaced and deleted in transactions of a bounded number of rows, and callers find
// one version of it, whole, at the end of each.
func TestLargeDocument(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const lines, most = 1100, 2 * 1000 // rows, a chunk has one of its text and one of its vector
		f := newFixture(t, d, "acme", corpus.Limits{})
		pass := f.claim(t)
		before := chunksOfRevisions(t, d)
		var allowed []string
		transactions := 0
		ctx := watchTransactions(t, func() {
			transactions++
			after, changed := chunksOfRevisions(t, d), int64(0)
			for revision, n := range after {
				changed += max(n-before[revision], before[revision]-n)
			}
			for revision, n := range before {
				if _, ok := after[revision]; !ok {
					changed += n
				}
			}
			if before = after; changed > most {
				t.Errorf("a transaction has changed %d rows of chunks", changed)
			}
			text := ""
			if found := f.findText(t, manual, "line"); len(found) > 0 {
				whole, err := f.Documents.ReadText(t.Context(), "manual", "a", everyone)
				if err != nil {
					t.Error(err)
				}
				text = whole
			}
			for i, version := range allowed {
				if text == version {
					allowed = allowed[i:] // an earlier one does not come back
					return
				}
			}
			t.Errorf("a caller finds %d bytes, neither one version nor the next", len(text))
		})
		versions := []string{"", largeText("first", lines), largeText("second", lines-7)}
		for i, version := range versions[1:] {
			f.put(t, "a", version)
			allowed = []string{versions[i], version}
			if err := f.Index.CommitDocument(ctx, pass, newCommit(f.pending(t, "a"), 1, version)); err != nil {
				t.Fatal(err)
			}
			checkDiff(t, "the version at the end", version, allowed[0])
		}
		checkTotals(t, d)
		allowed = []string{""}
		if err := f.Documents.Delete(ctx, "manual", "a", "", everyone); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			var err error
			if more, err = f.Index.DeleteHidden(ctx, "manual", always); err != nil {
				t.Fatal(err)
			}
		}
		checkDiff(t, "rows", map[string]int64{"document_store": 1, "index_pass": 1}, rowCounts(t, d))
		checkTotals(t, d)
		if transactions < 8 {
			t.Errorf("%d transactions: nothing was tested", transactions)
		}
	})
}

// TestLargeDocumentInterrupted ends the commit of a large document after each of its transactions, as a crash would: callers go on
// to find the version before, and the next commit, or the deletion of the document, leaves no row of the one that was interrupted.
func TestLargeDocumentInterrupted(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const lines = 450
		for _, next := range []string{"committed again", "replaced", "deleted", "failed"} {
			for steps := 1; ; steps++ {
				f := newFixture(t, d, db.ID(fmt.Sprint(strings.ReplaceAll(next, " ", ""), steps)), corpus.Limits{})
				f.put(t, "a", "old line")
				f.indexPending(t)
				f.put(t, "a", largeText("new", lines))
				pass, pending := f.claim(t), f.pending(t, "a")
				c := newCommit(pending, 1, largeText("new", lines))
				c.Collection = "external"
				if err := f.Index.NoteVectors(t.Context(), pass, c); err != nil {
					t.Fatal(err)
				}
				left := steps
				var stop context.CancelFunc
				ctx := watchTransactions(t, func() {
					if left--; left == 0 {
						stop()
					}
				})
				ctx, stop = context.WithCancel(ctx)
				err := f.Index.CommitDocument(ctx, pass, c)
				stop()
				if err == nil { // the last transaction was the one after which it was stopped
					if steps < 2 {
						t.Fatal("the commit had one transaction: nothing was tested")
					}
					clearTenant(t, d, f.tenant)
					break
				}
				checkDiff(t, "found after the interruption", []string{"old line"}, f.findText(t, manual, "line"))
				f.deleteHidden(t)
				if n := count(t, d, "hidden_revision"); n != 1 {
					t.Errorf("%d hidden revisions", n)
				}
				want := []string{}
				rows := map[string]int64{"document_store": 1, "index_pass": 1, "removed_chunk": lines}
				switch next {
				case "committed again":
					err = errors.Join(f.Index.NoteVectors(t.Context(), pass, c), f.Index.CommitDocument(t.Context(), pass, c))
					want, rows = []string{"new line"}, rowsOf(lines)
				case "replaced":
					f.put(t, "a", "newest line")
					err = f.Index.CommitDocument(t.Context(), pass, newCommit(f.pending(t, "a"), 1, "newest line"))
					want, rows = []string{"newest line"}, rowsOf(1)
					rows["removed_chunk"] = lines
				case "deleted":
					err = f.Documents.Delete(t.Context(), "manual", "a", "", everyone)
				case "failed":
					err = f.Index.FailDocument(t.Context(), pass, pending, "no", 0)
					want, rows = []string{"old line"}, rowsOf(1)
					rows["removed_chunk"] = lines
				}
				if err != nil {
					t.Fatal(err)
				}
				f.deleteHidden(t)
				got := f.findText(t, manual, "line")
				checkDiff(t, next+": found", want, got[:min(len(got), 1)])
				checkDiff(t, next+": rows", rows, rowCounts(t, d))
				checkDiff(t, next+": hidden revisions", int64(0), count(t, d, "hidden_revision"))
				checkTotals(t, d)
				clearTenant(t, d, f.tenant)
			}
		}
	})
}

// clearTenant deletes the rows of retrieval of a tenant.
func clearTenant(t *testing.T, d *db.DB, tenant db.ID) {
	t.Helper()
	for _, table := range []string{
		"document_live", "chunk_vector", "chunk", "removed_chunk", "hidden_revision", "document_reader", "document_body", "document", "document_store", "index_pass", "document_total",
	} {
		execSQL(t, d, `DELETE FROM `+table+` WHERE tenant = $1`, string(tenant))
	}
}

// TestLargeDocumentHidden: what hides a large document otherwise takes effect at once as well, and leaves no row: other readers, a
// generation and a store that go. A revision that was hidden can become searchable again.
func TestLargeDocumentHidden(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		const lines = 90
		f := newFixture(t, d, "acme", corpus.Limits{})
		text := largeText("some", lines)
		restrict := func(role string) {
			t.Helper()
			f.put(t, "a", text, func(u *corpus.Upload) { u.Access = document.Access{Roles: []string{role}} })
		}
		restrict("support")
		f.indexPending(t)
		f.ensureStore(t, "upload", "r2")
		restrict("sales") // while it waits for its indexing in the new generation
		checkDiff(t, "found by other readers", []string{}, f.findText(t, manual, "line"))
		execSQL(t, d, `INSERT INTO hidden_revision (tenant, store, document, generation, revision, collection)
			SELECT tenant, store, document, generation + 1, revision, '' FROM hidden_revision`) // as an interrupted commit leaves it
		f.deleteHidden(t)
		checkDiff(t, "hidden revisions that may be being written", int64(2), count(t, d, "hidden_revision"))
		f.ensureStore(t, "upload", "r1") // it waits in the first generation, and the other is abandoned
		f.deleteHidden(t)
		checkDiff(t, "hidden revisions, without the abandoned generation", int64(1), count(t, d, "hidden_revision"))
		f.indexPending(t)
		checkDiff(t, "found again", 10, len(f.findText(t, manual, "line")))
		f.deleteHidden(t)
		rows := rowsOf(lines)
		rows["document_reader"] = 1
		checkDiff(t, "searchable again", rows, rowCounts(t, d))
		execSQL(t, d, `INSERT INTO hidden_revision (tenant, store, document, generation, revision, collection)
			SELECT tenant, store, document, generation, revision, '' FROM document_live`) // as the version before migration 8 leaves it
		f.deleteHidden(t)
		checkDiff(t, "searchable, and noted as hidden by mistake", rows, rowCounts(t, d))
		checkDiff(t, "hidden revisions, without the mistake", int64(0), count(t, d, "hidden_revision"))

		f.ensureStore(t, "upload", "r3")
		f.indexPending(t)
		pass := f.claim(t)
		if !must(f.Index.SwitchGeneration(ctx, pass, 0)) {
			t.Fatal("not switched")
		}
		for must(f.Index.DropGenerations(ctx, "manual", 100)) {
		}
		f.deleteHidden(t)
		checkDiff(t, "without the generation before", rows, rowCounts(t, d))
		checkTotals(t, d)

		if must(f.Index.DropStore(ctx, "manual", 100)) {
			t.Error("the store is gone before its chunks")
		}
		checkDiff(t, "found in a store that goes", []string{}, f.findText(t, manual, "line"))
		f.deleteHidden(t)
		checkDiff(t, "the store is gone", true, must(f.Index.ContinueDrop(ctx, "manual", 100)))
		checkDiff(t, "rows at the end", map[string]int64{}, rowCounts(t, d))
		checkDiff(t, "hidden revisions at the end", int64(0), count(t, d, "hidden_revision"))
	})
}

// TestLargeExternal: the vectors that an external store has of a large document are noted for removal with its chunks.
func TestLargeExternal(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const lines = 300
		f := newFixture(t, d, "acme", corpus.Limits{})
		pass := f.claim(t)
		f.put(t, "a", "text")
		c := newCommit(f.pending(t, "a"), 1, largeText("some", lines))
		c.Collection = "external"
		for range 2 { // also when it is repeated
			if err := errors.Join(f.Index.NoteVectors(t.Context(), pass, c), f.Index.CommitDocument(t.Context(), pass, c)); err != nil {
				t.Fatal(err)
			}
			checkDiff(t, "notes for vectors in use", int64(0), count(t, d, "removed_chunk"))
		}
		f.release(t, pass, corpus.Release{After: time.Hour})
		if again, found, err := f.passes.Claim(t.Context(), "p1", time.Minute, nil); err != nil {
			t.Fatal(err)
		} else if found { // the upload has requested it
			f.release(t, again, corpus.Release{After: time.Hour})
		}
		if _, found, err := f.passes.Claim(t.Context(), "p1", time.Minute, nil); found || err != nil {
			t.Fatalf("a pass is due before there is something to delete: %v", err)
		}
		if err := f.Documents.Delete(t.Context(), "manual", "a", "", everyone); err != nil {
			t.Fatal(err)
		}
		if _, found, err := f.passes.Claim(t.Context(), "p1", time.Minute, nil); !found || err != nil {
			t.Errorf("no pass is due that deletes the chunks: %v", err)
		}
		checkDiff(t, "collections", []string{"external"}, must(f.Index.ListCollections(t.Context())))
		f.deleteHidden(t)
		checkDiff(t, "removals", lines, len(must(f.Index.ListRemovals(t.Context(), "manual", 1000))))
	})
}

// TestDeleteHiddenTogether: two processes that delete the chunks of a document at the same time, since one of them has lost its pass
// without noticing, leave none of them.
func TestDeleteHiddenTogether(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	f := newFixture(t, d, "acme", corpus.Limits{})
	f.put(t, "a", largeText("some", 90)) // more than one transaction deletes at first
	f.indexPending(t)
	if err := f.Documents.Delete(t.Context(), "manual", "a", "", everyone); err != nil {
		t.Fatal(err)
	}
	var deleting errgroup.Group
	err := d.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
		// With these rows locked both have begun before either deletes.
		err := tx.Query(t.Context(), func(db.Row) error { return nil }, `SELECT 1 FROM chunk FOR UPDATE`)
		for range 2 {
			deleting.Go(func() error {
				_, err := f.Index.DeleteHidden(t.Context(), "manual", never)
				return err
			})
		}
		dbtest.WaitUntil(t, "both wait", func() bool { return dbtest.CountLockWaiters(t, d) == 2 })
		return err
	})
	if err := errors.Join(err, deleting.Wait()); err != nil {
		t.Fatal(err)
	}
	checkDiff(t, "rows", map[string]int64{"document_store": 1, "index_pass": 1}, rowCounts(t, d))
}
