package corpus_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// execSQL executes a statement of the platform.
func execSQL(t *testing.T, d *db.DB, sql string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, sql, args...)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestDeletedIsInvisible: a search that begins after a deletion finds nothing of the document, whatever was under way.
func TestDeletedIsInvisible(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "warranty of two years")
		f.indexPending(t)
		matches, _, err := f.Search.MatchText(ctx, manual, []string{"warranty"}, 10)
		if err != nil || len(matches) != 1 {
			t.Fatal(matches, err)
		}
		f.put(t, "a", "warranty of three years")
		pass, pending := f.claim(t), f.pending(t, "a")
		if err := f.Documents.Delete(ctx, "manual", "a", "", everyone); err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			checkDiff(t, when+": words", []string{}, f.findText(t, manual, "warranty"))
			checkDiff(t, when+": vectors", []string{}, f.findVector(t, manual, "warranty"))
			passages, err := f.Search.LoadPassages(ctx, manual, []string{matches[0].Chunk})
			if err != nil || len(passages) > 0 {
				t.Errorf("%s: passages %v, %v", when, passages, err)
			}
		}
		check("deleted")
		if err := f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, "warranty of three years")); !errors.Is(err, corpus.ErrDocumentChanged) {
			t.Errorf("a commit after the deletion: %v", err)
		}
		check("after the commit under way")
		f.put(t, "a", "warranty again")
		if err := f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, "warranty of three years")); !errors.Is(err, corpus.ErrDocumentChanged) {
			t.Errorf("a commit of an earlier document of that name: %v", err)
		}
		check("uploaded again")
		checkDiff(t, "rows", map[string]int64{"document_store": 1, "document": 1, "document_body": 1, "index_pass": 1}, rowCounts(t, d))
	})
}

// TestDeleteDuringCommit deletes documents while they are committed: whichever comes first, nothing is left.
func TestDeleteDuringCommit(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		pass := f.claim(t)
		for i := range 40 {
			f.put(t, "a", fmt.Sprintf("warranty %d\nsecond\nthird", i))
			pending := f.pending(t, "a")
			var wg sync.WaitGroup
			wg.Go(func() {
				err := f.Index.CommitDocument(context.WithoutCancel(ctx), pass, newCommit(pending, 1, "warranty\nsecond\nthird"))
				if err != nil && !errors.Is(err, corpus.ErrDocumentChanged) {
					t.Error(err)
				}
			})
			if err := f.Documents.Delete(ctx, "manual", "a", "", everyone); err != nil {
				t.Error(err)
			}
			checkDiff(t, "right after the deletion", []string{}, f.findText(t, manual, "warranty"))
			wg.Wait()
			checkDiff(t, "rows", map[string]int64{"document_store": 1, "index_pass": 1}, rowCounts(t, d))
		}
	})
}

// TestFence: the holder of an earlier epoch writes nothing.
func TestFence(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "text")
		old := f.claim(t)
		if _, found, err := f.passes.Claim(ctx, "p2", time.Minute, nil); found || err != nil {
			t.Fatalf("a held pass is claimed: %v", err)
		}
		execSQL(t, d, `UPDATE index_pass SET due_at = 0`) // the lease has ended
		pass, found, err := f.passes.Claim(ctx, "p2", time.Minute, nil)
		if err != nil || !found || pass.Epoch != old.Epoch+1 {
			t.Fatal(pass, found, err)
		}
		pending := f.pending(t, "a")
		before := rowCounts(t, d)
		c := newCommit(pending, 1, "text\nof the old holder")
		c.Collection = "external"
		_, listErr := f.Index.UpsertListed(ctx, old, []corpus.Listed{{ID: "b", Version: "1"}}, false)
		_, deleteErr := f.Index.DeleteUnlisted(ctx, old, nil)
		_, settleErr := f.passes.Settle(ctx, old)
		for name, err := range map[string]error{
			"commit": f.Index.CommitDocument(ctx, old, c), "fail": f.Index.FailDocument(ctx, old, pending, "no", 0), "note": f.Index.NoteVectors(ctx, old, c),
			"list": listErr, "delete": deleteErr, "settle": settleErr, "renew": f.passes.Renew(ctx, old), "release": f.passes.Release(ctx, old, corpus.Release{Failure: "no"}),
		} {
			if !errors.Is(err, corpus.ErrPassLost) {
				t.Errorf("%s of the earlier holder: %v", name, err)
			}
		}
		if switched, err := f.Index.SwitchGeneration(ctx, old, 0); switched || err != nil {
			t.Errorf("the earlier holder switches: %v", err)
		}
		checkDiff(t, "rows", before, rowCounts(t, d))
		checkDiff(t, "still pending", pending, f.pending(t, "a"))
		if err := errors.Join(f.passes.Renew(ctx, pass), f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, "text")),
			f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, "text"))); err != nil { // also twice
			t.Error(err)
		}
		checkDiff(t, "found", []string{"text"}, f.findText(t, manual, "text"))
		if n := count(t, d, "chunk"); n != 1 {
			t.Errorf("%d chunks", n)
		}
		f.release(t, pass, corpus.Release{After: time.Hour, Cursor: "c", Failure: "the folder is missing"})
		status, err := f.Documents.StoreStatus(ctx, "manual")
		if err != nil || status.State != "failed" || status.Error != "the folder is missing" {
			t.Error(status, err)
		}
		again := f.claim(t)
		checkDiff(t, "what the pass before left", corpus.Pass{Tenant: "acme", Store: "manual", Holder: "p1", Epoch: pass.Epoch + 1, Cursor: "c", Attempts: 1, Lease: time.Minute}, again)
		for _, want := range []bool{true, false} {
			if want {
				if err := f.Index.RequestPass(ctx, "manual"); err != nil {
					t.Fatal(err)
				}
			}
			if requested, err := f.passes.Settle(ctx, again); requested != want || err != nil {
				t.Errorf("requested %v (%v), want %v", requested, err, want)
			}
		}
		if status, err := f.Documents.StoreStatus(ctx, "manual"); err != nil || status.Error != "" {
			t.Error(status, err)
		}
		if err := f.Index.RequestPass(ctx, "manual"); err != nil { // while it is held
			t.Fatal(err)
		}
		f.release(t, again, corpus.Release{After: time.Hour})
		if _, found, err := f.passes.Claim(ctx, "p1", time.Minute, nil); !found || err != nil {
			t.Errorf("a pass that was requested meanwhile is not due: %v", err)
		}
	})
}

// TestClaimIsFair: the tenant that was served least recently is next, however many stores another has; busy and suspended
// tenants are left out.
func TestClaimIsFair(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		passes := corpus.NewPasses(d)
		suspended := tenancytest.CreateApp(t, tenancytest.NewService(t, d), tenancy.Draft{Name: "suspended"}).ID
		for _, tenant := range []db.ID{"large", "small", suspended} {
			s := corpus.New(d, tenant, corpus.Limits{})
			for i := range 3 {
				if tenant != "large" && i > 0 {
					break
				}
				if _, err := s.Index.EnsureStore(ctx, corpus.StoreSpec{Name: fmt.Sprint("s", i), Source: "upload"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, _, err := corpus.New(d, suspended, corpus.Limits{}).Documents.Put(ctx, "s0", corpus.Upload{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		if oldest, _, err := passes.OldestPending(ctx); err != nil || oldest.IsZero() {
			t.Error(oldest, err)
		}
		execSQL(t, d, `UPDATE app SET status = 'suspended' WHERE tenant = $1`, string(suspended))
		if oldest, _, err := passes.OldestPending(ctx); err != nil || !oldest.IsZero() {
			t.Error("a suspended app's document is waited for", oldest, err)
		}
		counts := map[db.ID]int{}
		for range 10 {
			pass, found, err := passes.Claim(ctx, "p", time.Minute, nil)
			if err != nil || !found {
				t.Fatal(found, err)
			}
			counts[pass.Tenant]++
			if err := passes.Release(ctx, pass, corpus.Release{}); err != nil {
				t.Fatal(err)
			}
		}
		checkDiff(t, "turns", map[db.ID]int{"large": 5, "small": 5}, counts)
		pass, found, err := passes.Claim(ctx, "p", time.Minute, []db.ID{"large", `"x`})
		if err != nil || !found || pass.Tenant != "small" {
			t.Error(pass, found, err)
		}
		if pass, found, err := passes.Claim(ctx, "p", time.Minute, []db.ID{"large", "small"}); found || err != nil {
			t.Error(pass, err)
		}
	})
}

// TestListing: a source's documents are new, changed or unchanged; what a complete listing lacks goes, but not most of a store.
func TestListing(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{Documents: 30})
		f.ensureStore(t, "directory", "r1")
		pass := f.claim(t)
		var items []corpus.Listed
		all := map[string]struct{}{}
		for i := range 25 {
			id := fmt.Sprintf("%02d", i)
			all[id] = struct{}{}
			items = append(items, corpus.Listed{ID: id, Title: "t", Version: "1", Bytes: 4})
		}
		upsert := func(force bool, items ...corpus.Listed) int {
			t.Helper()
			n, err := f.Index.UpsertListed(ctx, pass, items, force)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		checkDiff(t, "new", 25, upsert(false, items...))
		checkDiff(t, "unchanged", 0, upsert(false, items...))
		pending, err := f.Index.NextPending(ctx, "manual", "", 100)
		if err != nil || len(pending) != 25 {
			t.Fatal(len(pending), err)
		}
		for _, p := range pending {
			if err := f.Index.CommitDocument(ctx, pass, newCommit(p, 1, "text "+p.ID)); err != nil {
				t.Fatal(err)
			}
		}
		items[3].Version = "2"
		items[4].Access.Roles = []string{"auditor"}
		checkDiff(t, "one changed", 1, upsert(false, items...))
		checkDiff(t, "that one", int64(1), int64(len(must(f.Index.NextPending(ctx, "manual", "", 100)))))
		checkDiff(t, "access at once", []string{}, f.findText(t, corpus.Scope{Store: "manual"}, "04"))
		checkDiff(t, "forced", 25, upsert(true, items...))
		_, err = f.Index.UpsertListed(ctx, pass, make([]corpus.Listed, 3), false)
		checkCode(t, "no id", err, agentsvc.CodeInvalid, "id: is required")
		var more []corpus.Listed
		for i := range 6 {
			more = append(more, corpus.Listed{ID: fmt.Sprint("more", i)})
		}
		_, err = f.Index.UpsertListed(ctx, pass, more, false)
		checkCode(t, "too many", err, agentsvc.CodeExhausted, "documents.count")
		_, _, err = f.Documents.Put(ctx, "manual", corpus.Upload{ID: "u"})
		checkCode(t, "an upload", err, agentsvc.CodeState, "directory")
		checkCode(t, "a deletion", f.Documents.Delete(ctx, "manual", "00", "", everyone), agentsvc.CodeState, "directory")

		deleteUnlisted := func(listed map[string]struct{}) int {
			t.Helper()
			n, err := f.Index.DeleteUnlisted(ctx, pass, listed)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		checkDiff(t, "all are listed", 0, deleteUnlisted(all))
		delete(all, "07")
		checkDiff(t, "one is not", 1, deleteUnlisted(all))
		_, err = f.Index.DeleteUnlisted(ctx, pass, map[string]struct{}{"00": {}})
		checkCode(t, "most are not", err, agentsvc.CodeState, "confirm")
		checkDiff(t, "detail", corpus.UnlistedRemoval{Documents: 24, Missing: 23}, agentsvc.DetailOf[corpus.UnlistedRemoval](err))
		checkDiff(t, "nothing was deleted", int64(24), count(t, d, "document"))
		if err := f.Documents.AllowRemoval(ctx, "manual"); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "confirmed", 23, deleteUnlisted(map[string]struct{}{"00": {}}))
		checkDiff(t, "found", []string{"text 00"}, f.findText(t, manual, "text"))
		checkCode(t, "no store", f.Documents.AllowRemoval(ctx, "nothing"), agentsvc.CodeNotFound, "")
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFailDocument: a document that fails is tried again after a delay, then fails for good until it is uploaded again.
func TestFailDocument(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "old text")
		f.indexPending(t)
		f.put(t, "a", "new text")
		pass, pending := f.claim(t), f.pending(t, "a")
		oldest, now, err := f.passes.OldestPending(ctx)
		if err != nil || oldest.IsZero() || oldest.After(now) {
			t.Error(oldest, now, err)
		}
		if err := f.Index.FailDocument(ctx, pass, pending, "busy", time.Hour); err != nil {
			t.Fatal(err)
		}
		if left := must(f.Index.NextPending(ctx, "manual", "", 10)); len(left) > 0 {
			t.Errorf("due before its time: %v", left)
		}
		if wait, found, err := f.Index.NextAttempt(ctx, "manual"); err != nil || !found || wait < 50*time.Minute || wait > time.Hour {
			t.Error(wait, found, err)
		}
		execSQL(t, d, `UPDATE document SET available_at = 0`)
		if wait, found, err := f.Index.NextAttempt(ctx, "manual"); err != nil || !found || wait != 0 {
			t.Error(wait, found, err)
		}
		checkDiff(t, "attempts", int64(1), f.pending(t, "a").Attempts)
		if err := f.Index.FailDocument(ctx, pass, pending, "encrypted", 0); err != nil {
			t.Fatal(err)
		}
		if _, found, err := f.Index.NextAttempt(ctx, "manual"); err != nil || found {
			t.Error(found, err)
		}
		doc := must(f.Documents.Get(ctx, "manual", "a", everyone))
		checkDiff(t, "failed", []string{string(document.Failed), "encrypted"}, []string{string(doc.State), doc.Error})
		checkDiff(t, "the version before", []string{"old text"}, f.findText(t, manual, "text"))
		status := must(f.Documents.StoreStatus(ctx, "manual"))
		checkDiff(t, "status", []int64{1, 1, 0}, []int64{status.Documents, status.Failed, status.Pending})
		oldest, _, err = f.passes.OldestPending(ctx)
		if err != nil || !oldest.IsZero() {
			t.Error(oldest, err)
		}
		checkDiff(t, "the same again", corpus.Changed, f.put(t, "a", "new text"))
		if err := f.Index.FailDocument(ctx, pass, pending, "late", 0); !errors.Is(err, corpus.ErrDocumentChanged) {
			t.Error(err)
		}
	})
}

// TestGenerations: a new generation is built in addition to the live one, which answers until one statement switches; then its rows
// go. A recipe that changes back abandons the new generation.
func TestGenerations(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		for i := range 5 {
			f.put(t, fmt.Sprint("d", i), fmt.Sprintf("old line %d\nsecond line", i))
		}
		f.indexPending(t)
		checkDiff(t, "unchanged", corpus.Generations{Live: 1}, f.ensureStore(t, "upload", "r1"))
		checkDiff(t, "another recipe", corpus.Generations{Live: 1, Building: 2, Changed: true}, f.ensureStore(t, "upload", "r2"))
		checkDiff(t, "again", corpus.Generations{Live: 1, Building: 2}, f.ensureStore(t, "upload", "r2"))
		g, err := f.Index.EnsureStore(ctx, corpus.StoreSpec{Name: "manual", Source: "upload", Recipe: "r0", Embedder: model, Revision: -1})
		checkDiff(t, "an earlier revision of the configuration", corpus.Generations{Live: 1, Building: 2, Outdated: true}, g)
		if err != nil {
			t.Fatal(err)
		}
		pass := f.claim(t)
		after := "" // what was indexed again stays where it is until the switch
		for range 4 {
			pending := must(f.Index.NextPending(ctx, "manual", after, 1))
			if err := f.Index.CommitDocument(ctx, pass, newCommit(pending[0], 2, "new "+pending[0].ID)); err != nil {
				t.Fatal(err)
			}
			after = pending[0].ID
		}
		checkDiff(t, "live meanwhile", 5, len(f.findText(t, manual, "old")))
		checkDiff(t, "new meanwhile", 0, len(f.findText(t, manual, "new")))
		if switched := must(f.Index.SwitchGeneration(ctx, pass, 100)); switched {
			t.Error("switched while a document is pending")
		}
		last := f.pending(t, "d4")
		if err := f.Index.FailDocument(ctx, pass, last, "no", 0); err != nil {
			t.Fatal(err)
		}
		if switched := must(f.Index.SwitchGeneration(ctx, pass, 0)); switched {
			t.Error("switched although a document would be lost")
		}
		if switched := must(f.Index.SwitchGeneration(ctx, pass, 1)); !switched {
			t.Error("not switched")
		}
		checkDiff(t, "new after the switch", 4, len(f.findText(t, manual, "new")))
		checkDiff(t, "old after the switch", 0, len(f.findText(t, manual, "old")))
		steps := 1
		for must(f.Index.DropGenerations(ctx, "manual", 4)) {
			steps++
		}
		if steps < 3 {
			t.Errorf("dropped in %d steps", steps)
		}
		checkDiff(t, "rows", map[string]int64{"document_store": 1, "document": 5, "document_body": 5, "document_live": 4, "chunk": 4, "chunk_vector": 4, "index_pass": 1}, rowCounts(t, d))

		f.ensureStore(t, "upload", "r3")
		pending := f.pending(t, "d0")
		if err := f.Index.CommitDocument(ctx, pass, newCommit(pending, 3, "newest")); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "back", corpus.Generations{Live: 2, Changed: true}, f.ensureStore(t, "upload", "r2"))
		checkDiff(t, "pending", 0, len(must(f.Index.NextPending(ctx, "manual", "", 10)))-1) // d4, which had failed, is tried again
		if err := f.Index.CommitDocument(ctx, pass, newCommit(pending, 3, "newest")); !errors.Is(err, corpus.ErrDocumentChanged) {
			t.Errorf("a commit to an abandoned generation: %v", err)
		}
		for must(f.Index.DropGenerations(ctx, "manual", 100)) {
		}
		checkDiff(t, "the number is not used again", corpus.Generations{Live: 2, Building: 4, Changed: true}, f.ensureStore(t, "upload", "r3"))
	})
}

// TestUnusedCollections: a collection of an earlier generation that only ever had vectors of commits that never happened is removed
// as a whole, and so is one of a store that goes. One that is in use stays.
func TestUnusedCollections(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		pass := f.claim(t)
		name := func(generation int64) string { return fmt.Sprint("acme-manual-", generation) }
		newExternal := func(id string, generation int64) corpus.Commit {
			t.Helper()
			c := newCommit(f.pending(t, id), generation, "text")
			c.Collection = name(generation)
			return c
		}
		note := func(id string, generation int64) { // and end before the commit, as a process that is killed
			t.Helper()
			if err := f.Index.NoteVectors(ctx, pass, newExternal(id, generation)); err != nil {
				t.Fatal(err)
			}
		}
		unused := func(current int64) int64 { return must(f.Index.NoteUnusedCollections(ctx, pass, name(current))) }
		expire := func() { t.Helper(); execSQL(t, d, `UPDATE removed_chunk SET available_at = 1 WHERE chunk <> ''`) }
		whole := func() (names []string) {
			t.Helper()
			for _, r := range must(f.Index.ListRemovals(ctx, "manual", 100)) {
				if r.Chunk == "" {
					names = append(names, r.Collection)
				}
			}
			return names
		}
		f.put(t, "a", "text")
		note("a", 1)
		f.ensureStore(t, "upload", "r2")
		note("a", 2)
		expire()
		checkDiff(t, "while a generation is built", int64(0), unused(2))
		c := newExternal("a", 2)
		if err := errors.Join(f.Index.NoteVectors(ctx, pass, c), f.Index.CommitDocument(ctx, pass, c)); err != nil {
			t.Fatal(err)
		}
		if !must(f.Index.SwitchGeneration(ctx, pass, 0)) {
			t.Fatal("not switched")
		}
		f.put(t, "b", "text")
		note("b", 2)
		execSQL(t, d, `UPDATE removed_chunk SET available_at = stoa_now() + 1000000000`)
		checkDiff(t, "while the vectors may still be stored", int64(0), unused(2))
		expire()
		checkDiff(t, "collections that are in use by their documents", int64(1), unused(3))
		checkDiff(t, "the earlier one", []string{name(1)}, whole())
		checkDiff(t, "noted again", int64(0), unused(2))
		lost := pass
		lost.Epoch--
		if _, err := f.Index.NoteUnusedCollections(ctx, lost, name(2)); !errors.Is(err, corpus.ErrPassLost) {
			t.Errorf("a pass that was lost: %v", err)
		}
		if err := f.Index.ConfirmRemovals(ctx, must(f.Index.ListRemovals(ctx, "manual", 100))); err != nil {
			t.Fatal(err)
		}

		if err := f.Documents.Delete(ctx, "manual", "a", "", everyone); err != nil {
			t.Fatal(err)
		}
		note("b", 2)
		checkDiff(t, "the one in use, without a document", int64(0), unused(2))
		must(f.Index.DropStore(ctx, "manual", 100))
		checkDiff(t, "a store that goes", []string{name(2)}, whole())
	})
}

// TestRemovals: vectors in external stores are noted for removal by replacing, deleting, a commit that never happened, and
// a generation or a store that goes.
func TestRemovals(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		pass := f.claim(t)
		removals := func() []corpus.Removal { return must(f.Index.ListRemovals(ctx, "manual", 100)) }
		// commit indexes a document with external vectors and returns the ids of its chunks.
		commit := func(id, text string, generation int64) (ids []string) {
			t.Helper()
			p := f.pending(t, id)
			c := newCommit(p, generation, text)
			c.Collection = fmt.Sprint("acme-manual-", generation)
			for i := range c.Chunks {
				c.Chunks[i].Vector, c.Chunks[i].TextHash = nil, ""
				ids = append(ids, f.Index.ChunkID("manual", id, generation, p.Revision, i))
			}
			if err := errors.Join(f.Index.NoteVectors(ctx, pass, c), f.Index.CommitDocument(ctx, pass, c)); err != nil {
				t.Fatal(err)
			}
			return ids
		}
		f.put(t, "a", "one\ntwo")
		first := commit("a", "one\ntwo", 1)
		checkDiff(t, "nothing", int64(0), count(t, d, "removed_chunk"))
		f.put(t, "a", "three")
		second := commit("a", "three", 1)
		got := map[string]bool{}
		for _, r := range removals() {
			got[r.Chunk] = r.Collection == "acme-manual-1"
		}
		checkDiff(t, "replaced", map[string]bool{first[0]: true, first[1]: true}, got)
		if err := f.Index.ConfirmRemovals(ctx, removals()); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "confirmed", 0, len(removals()))
		if err := f.Documents.Delete(ctx, "manual", "a", "", everyone); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "deleted", []corpus.Removal{{Store: "manual", Collection: "acme-manual-1", Chunk: second[0]}}, removals())
		if err := f.Index.ConfirmRemovals(ctx, removals()); err != nil {
			t.Fatal(err)
		}

		f.put(t, "b", "four")
		c := newCommit(f.pending(t, "b"), 1, "four")
		c.Collection = "acme-manual-1"
		if err := f.Index.NoteVectors(ctx, pass, c); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "noted", 0, len(removals()))
		execSQL(t, d, `UPDATE removed_chunk SET available_at = 1`) // the time has passed
		checkDiff(t, "left over", 1, len(removals()))
		commit("b", "four", 1)
		checkDiff(t, "committed after all", int64(0), count(t, d, "removed_chunk"))

		f.ensureStore(t, "upload", "r2")
		commit("b", "five", 2)
		if !must(f.Index.SwitchGeneration(ctx, pass, 0)) {
			t.Fatal("not switched")
		}
		for must(f.Index.DropGenerations(ctx, "manual", 1)) {
		}
		checkDiff(t, "a generation", []corpus.Removal{{Store: "manual", Collection: "acme-manual-1"}}, removals())
		if err := f.Index.ConfirmRemovals(ctx, removals()); err != nil {
			t.Fatal(err)
		}

		f.put(t, "c", "six")
		if must(f.Index.DropStore(ctx, "manual", 1)) {
			t.Error("done while documents are left")
		}
		checkDiff(t, "hidden", []string{}, f.findText(t, manual, "five"))
		_, err := f.Index.EnsureStore(ctx, corpus.StoreSpec{Name: "manual", Source: "upload", Recipe: "r2"})
		checkCode(t, "back too early", err, agentsvc.CodeState, "being deleted")
		_, _, err = f.Documents.Put(ctx, "manual", corpus.Upload{ID: "x"})
		checkCode(t, "put", err, agentsvc.CodeNotFound, "")
		for range 5 {
			if must(f.Index.DropStore(ctx, "manual", 100)) {
				t.Fatal("done while external vectors are left")
			}
		}
		checkDiff(t, "a store", []corpus.Removal{{Store: "manual", Collection: "acme-manual-2"}}, removals())
		if err := f.Index.ConfirmRemovals(ctx, removals()); err != nil {
			t.Fatal(err)
		}
		if !must(f.Index.DropStore(ctx, "manual", 100)) {
			t.Error("not done")
		}
		checkDiff(t, "rows", map[string]int64{}, rowCounts(t, d))
		if err := f.passes.Renew(ctx, pass); !errors.Is(err, corpus.ErrPassLost) {
			t.Error(err)
		}
	})
}

// TestMadeAgain: a store is dropped and made again; the holder of the pass that deleted the earlier one then deletes nothing of it, and
// uploads are accepted.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "one")
		must := func(done bool, err error) bool {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		if must(f.Index.DropStore(ctx, "manual", 0)) {
			t.Error("done while a document is left")
		}
		checkDiff(t, "deleted", true, must(f.Index.ContinueDrop(ctx, "manual", 100)))
		f.ensureStore(t, "upload", "r")
		checkDiff(t, "put", corpus.Created, f.put(t, "a", "two"))
		f.indexPending(t)
		checkDiff(t, "nothing is left to delete", true, must(f.Index.ContinueDrop(ctx, "manual", 100)))
		checkDiff(t, "put after a late deletion", corpus.Unchanged, f.put(t, "a", "two"))
		checkDiff(t, "found", []string{"two"}, f.findText(t, manual, "two"))
	})
}

// TestVectors: vectors are stored with length 1, found again by the hash of their text, and refused if they are not numbers.
func TestVectors(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", "aaa\nabab")
		pass, pending := f.claim(t), f.pending(t, "a")
		nan, infinite := letters("a"), letters("a")
		nan[7], infinite[7] = float32(math.NaN()), float32(math.Inf(1))
		for name, vector := range map[string][]float32{"zero": make([]float32, 26), "not a number": nan, "infinite": infinite, "another length": {1}} {
			c := newCommit(pending, 1, "aaa\nabab")
			c.Chunks[1].Vector = vector
			if err := f.Index.CommitDocument(ctx, pass, c); err == nil {
				t.Errorf("%s: committed", name)
			}
		}
		checkDiff(t, "chunks", int64(0), count(t, d, "chunk"))
		c := newCommit(pending, 1, "aaa\nabab")
		if err := f.Index.CommitDocument(ctx, pass, c); err != nil {
			t.Fatal(err)
		}
		found := must(f.Index.FindVectors(ctx, model, []string{c.Chunks[0].TextHash, "none"}))
		want := make([]float32, 26)
		want[0] = 1
		checkDiff(t, "found again", map[string][]float32{c.Chunks[0].TextHash: want}, found)
		checkDiff(t, "another model", map[string][]float32{}, must(f.Index.FindVectors(ctx, "other", []string{c.Chunks[0].TextHash})))
		matches := must(f.Search.MatchVectors(ctx, manual, model, letters("aaaaa"), 1))
		if len(matches) != 1 || matches[0].Ordinal != 0 || matches[0].Score < 0.9999 || matches[0].Score > 1.0001 {
			t.Errorf("matches %v", matches)
		}
		for name, n := range map[string]int{
			"another model": len(must(f.Search.MatchVectors(ctx, manual, "other", letters("a"), 10))), "another length": len(must(f.Search.MatchVectors(ctx, manual, model, []float32{1}, 10))),
			"zero": len(must(f.Search.MatchVectors(ctx, manual, model, make([]float32, 26), 10))), "no limit": len(must(f.Search.MatchVectors(ctx, manual, model, letters("a"), 0))),
		} {
			if n > 0 {
				t.Errorf("%s: %d matches", name, n)
			}
		}
		checkTurns(t, func(ctx context.Context) error {
			_, _, err := f.Search.MatchText(ctx, manual, []string{"word"}, 1)
			return err
		})
		checkTurns(t, func(ctx context.Context) error {
			_, err := f.Search.MatchVectors(ctx, manual, model, letters("aaaaa"), 1)
			return err
		})
		if err := f.Index.AddEmbeddedTokens(ctx, "manual", 7); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "tokens", int64(7), must(f.Documents.StoreStatus(ctx, "manual")).EmbeddedTokens)
	})
}

// turns keeps two tests from having one part of the permits each.
var turns sync.Mutex

// checkTurns checks that search waits while other searches have all permits, and returns its own.
func checkTurns(t *testing.T, search func(ctx context.Context) error) {
	t.Helper()
	turns.Lock()
	defer turns.Unlock()
	const app = "other"
	held := 0
	for corpus.Scans.Acquire(t.Context(), app) == nil {
		if held++; held == max(1, runtime.GOMAXPROCS(0)-1) {
			break
		}
	}
	done := make(chan error, 1)
	go func() { done <- search(t.Context()) }()
	select {
	case err := <-done:
		t.Errorf("a search does not wait for its turn: %v", err)
		done <- err
	case <-time.After(100 * time.Millisecond): // a search of one document takes one
	}
	for range held {
		corpus.Scans.Release()
	}
	if err := <-done; err != nil {
		t.Errorf("a search whose turn has come: %v", err)
	}
	for range held + 1 {
		if err := search(t.Context()); err != nil {
			t.Errorf("a search after its turn has come: %v", err)
		}
	}
}

// TestEverythingAtOnce uploads, deletes, indexes, rebuilds and searches at the same time: no write deadlocks, no search fails,
// and at the end every chunk belongs to a searchable revision of a document.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := context.WithoutCancel(t.Context())
		f := newFixture(t, d, "acme", corpus.Limits{})
		pass := f.claim(t)
		const documents, rounds = 4, 30
		var callers, indexer sync.WaitGroup
		check := func(what string, err error, expected ...error) {
			for _, e := range expected {
				if errors.Is(err, e) {
					return
				}
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for worker := range 3 {
			callers.Go(func() {
				for i := range rounds {
					id := fmt.Sprint("d", (i+worker)%documents)
					u := corpus.Upload{ID: id, Body: fmt.Appendf(nil, "text %d of %d\nsecond line\nthird line", i, worker)}
					if i%5 == 0 { // written in several transactions, and deleted in several
						u.Body = append(u.Body, strings.Repeat("\nline", 230)...)
					}
					if i%3 == 0 {
						u.Access.Subjects = []string{"ana"}
					}
					_, _, err := f.Documents.Put(ctx, "manual", u)
					check("put", err)
					if i%4 == worker {
						check("delete", f.Documents.Delete(ctx, "manual", id, "", everyone), agentsvc.ErrNotFound)
					}
					_, _, err = f.Search.MatchText(ctx, manual, []string{"text"}, 10)
					check("search", err)
				}
			})
		}
		done := make(chan struct{})
		indexer.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				g, _, err := f.Search.Generations(ctx, "manual")
				check("generations", err)
				pending, err := f.Index.NextPending(ctx, "manual", "", 10)
				check("pending", err)
				for _, p := range pending {
					body, err := f.Index.ReadBody(ctx, "manual", p.ID, p.Revision)
					if err == nil {
						c := newCommit(p, g.Target(), string(body))
						c.Collection = fmt.Sprint("manual-", g.Target())
						err = errors.Join(f.Index.NoteVectors(ctx, pass, c), f.Index.CommitDocument(ctx, pass, c))
					}
					check("commit", err, corpus.ErrDocumentChanged)
				}
				_, err = f.Index.SwitchGeneration(ctx, pass, 0)
				check("switch", err)
				_, err = f.Index.DropGenerations(ctx, "manual", 3)
				check("drop", err)
				_, err = f.Index.DeleteHidden(ctx, "manual", never)
				check("delete hidden chunks", err)
				removals, err := f.Index.ListRemovals(ctx, "manual", 5)
				check("removals", errors.Join(err, f.Index.ConfirmRemovals(ctx, removals)))
			}
		})
		callers.Go(func() {
			for i := range rounds {
				_, err := f.Index.EnsureStore(ctx, corpus.StoreSpec{Name: "manual", Source: "upload", Recipe: fmt.Sprint("r", i/3%4), Embedder: model})
				check("ensure", err)
			}
		})
		callers.Wait()
		close(done)
		indexer.Wait()
		execSQL(t, d, `UPDATE document SET state = 'failed' WHERE state = 'pending'`) // nothing is being written any more
		f.deleteHidden(t)
		for what, sql := range map[string]string{
			"chunks of no searchable revision": `chunk c WHERE NOT EXISTS (SELECT 1 FROM document_live l WHERE l.document = c.document AND l.generation = c.generation AND l.revision = c.revision)`,
			"wrong counts of chunks":           `document_live l WHERE l.chunks <> (SELECT COUNT(*) FROM chunk c WHERE l.document = c.document AND l.generation = c.generation AND l.revision = c.revision)`,
			"vectors without a chunk":          `chunk_vector v WHERE NOT EXISTS (SELECT 1 FROM chunk c WHERE c.id = v.id)`,
			"searchable without a document":    `document_live l WHERE NOT EXISTS (SELECT 1 FROM document d WHERE d.id = l.document)`,
			"bodies without a document":        `document_body b WHERE NOT EXISTS (SELECT 1 FROM document d WHERE d.id = b.id)`,
			"readers without a document":       `document_reader x WHERE NOT EXISTS (SELECT 1 FROM document d WHERE d.id = x.id)`,
			"hidden revisions":                 `hidden_revision`,
			"notes for vectors in use":         `removed_chunk r WHERE EXISTS (SELECT 1 FROM chunk c WHERE c.id = r.chunk)`,
		} {
			checkDiff(t, what, int64(0), count(t, d, sql))
		}
		checkTotals(t, d)
		if n := count(t, d, "document"); n == 0 {
			t.Error("no document is left: nothing was tested")
		}
	})
}
