package corpus_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestTotals: the sums of document_total are those of the rows after uploads, replacements and deletions at once, a body that
// shrinks, a change of access that hides a document, refused and failed writes, another generation and its end, the removal of
// what a source does not list, and the removal of the store.
func TestTotals(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{Documents: 100, Chunks: 200})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				id := fmt.Sprint("d", i%30)
				if _, _, err := f.Documents.Put(ctx, "manual", corpus.Upload{ID: id, Body: []byte(strings.Repeat("word ", 1+i))}); err != nil {
					t.Error(err)
				}
				if i%10 == 9 {
					if err := f.Documents.Delete(ctx, "manual", id, "", everyone); err != nil && !errors.Is(err, agentsvc.ErrNotFound) {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		checkTotals(t, d)
		f.put(t, "a", "one\ntwo\nthree")
		f.put(t, "b", strings.Repeat("long ", 100))
		f.indexPending(t)
		checkTotals(t, d)
		f.put(t, "b", "short")
		f.put(t, "a", "one\ntwo", func(u *corpus.Upload) { u.Access.Roles = []string{"auditor"} })
		f.indexPending(t)
		f.put(t, "a", "one", func(u *corpus.Upload) { u.Access.Roles = []string{"clerk"} }) // hides the revision before
		checkTotals(t, d)

		pass := f.claim(t)
		pending := f.pending(t, "a")
		if err := f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, strings.Repeat("line\n", 300))); err == nil {
			t.Error("a commit beyond the limit was accepted")
		}
		bad := newCommit(pending, 1, "line\nline")
		bad.Chunks[1].Vector = []float32{0} // refused after the chunks before it were written
		if err := f.Index.CommitDocument(ctx, pass, bad); err == nil {
			t.Error("a vector without a direction was accepted")
		}
		if err := f.Index.FailDocument(ctx, pass, pending, "damaged", 0); err != nil {
			t.Error(err)
		}
		f.release(t, pass, corpus.Release{})
		checkTotals(t, d)

		f.ensureStore(t, "upload", "second")
		f.indexPending(t)
		checkTotals(t, d)
		pass = f.claim(t)
		if switched, err := f.Index.SwitchGeneration(ctx, pass, 0); err != nil || !switched {
			t.Error(switched, err)
		}
		for more, err := true, error(nil); more; {
			if more, err = f.Index.DropGenerations(ctx, "manual", 10); err != nil {
				t.Fatal(err)
			}
			checkTotals(t, d)
		}
		if n := count(t, d, `document_total WHERE tenant = 'acme'`); n != 2 {
			t.Errorf("%d rows of sums, not those of the store and of its generation alone", n)
		}
		f.ensureStore(t, "directory", "second")
		_, err := f.Index.UpsertListed(ctx, pass, []corpus.Listed{{ID: "a", Version: "2"}, {ID: "listed", Version: "1", Bytes: 1 << 30}}, false)
		if err == nil {
			err = f.Documents.AllowRemoval(ctx, "manual")
		}
		if err == nil {
			_, err = f.Index.DeleteUnlisted(ctx, pass, map[string]struct{}{"a": {}, "listed": {}})
		}
		if err != nil {
			t.Error(err)
		}
		checkTotals(t, d)
		newFixture(t, d, "globex", corpus.Limits{}).put(t, "a", "of another tenant")
		for done := must(f.Index.DropStore(ctx, "manual", 10_000)); !done; {
			f.deleteHidden(t)
			done = must(f.Index.ContinueDrop(ctx, "manual", 10_000))
		}
		checkTotals(t, d)
		if n := count(t, d, `document_total WHERE tenant = 'acme'`); n != 0 {
			t.Errorf("%d rows of sums are left of a store that is gone", n)
		}
	})
}

// TestRolledBackTotals: a change that is undone, as by a crash before its commit, has changed no sum.
func TestRolledBackTotals(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "one\ntwo")
		f.indexPending(t)
		crash := errors.New("the process was killed")
		err := d.Tenant("acme").RunTx(ctx, func(tx *db.Tx) error {
			for _, sql := range []string{
				`DELETE FROM document_live WHERE tenant = $1`, `UPDATE document_body SET body = CAST('x' AS ` + map[db.Engine]string{db.SQLite: "BLOB", db.Postgres: "BYTEA"}[d.Engine()] + `) WHERE tenant = $1`,
				`DELETE FROM document WHERE tenant = $1`,
			} {
				if n, err := tx.Exec(ctx, sql, "acme"); err != nil || n != 1 {
					t.Error(sql, n, err)
				}
			}
			return crash
		})
		if !errors.Is(err, crash) {
			t.Error(err)
		}
		checkTotals(t, d)
		if n := count(t, d, `document_total WHERE documents = 1 AND (generation = 0) = (chunks = 0)`); n != 2 {
			t.Errorf("%d rows of sums, not one of the store and one of the generation", n)
		}
	})
}

// TestCountStored: the migration counts what was stored before it, also if it is run a second time.
func TestCountStored(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "one\ntwo")
		f.put(t, "b", "three")
		f.indexPending(t)
		f.put(t, "c", "pending")
		newFixture(t, d, "globex", corpus.Limits{}).put(t, "a", "of another tenant")
		for _, direction := range []string{"down", "up", "up"} {
			file, err := os.ReadFile(fmt.Sprintf("../../../migrations/%s/0006_document_totals.%s.sql", d.Engine(), direction))
			if err == nil {
				err = d.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
					_, err := s.ExecContext(t.Context(), string(file))
					return err
				})
			}
			if err != nil {
				t.Fatal(direction, err)
			}
		}
		if n := count(t, d, "document_total"); n != 3 {
			t.Errorf("%d rows of sums, not those of two stores and a generation", n)
		}
		checkTotals(t, d)
		f.put(t, "d", "later")
		checkTotals(t, d)
	})
}
