package documents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/db"
)

// config is an app with a document store.
const config = "llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\ndocument_stores: {manual: {source: {type: upload}}}\n"

// manual is the path of the store.
const manual = "/v1/document-stores/manual"

// fixture is a server with the app acme.
type fixture struct {
	*surfacetest.Fixture
	app db.ID
	// notified is how often the indexer was woken.
	notified atomic.Int64
}

func newFixture(t *testing.T, options ...surface.Options) *fixture {
	t.Helper()
	h := &fixture{}
	o := surfacetest.Options{OnDocumentsChanged: func(db.ID) { h.notified.Add(1) }}
	for _, s := range options {
		o.Surface = s
	}
	h.Fixture = surfacetest.New(t, o, newRoutes)
	h.CreateApp(t, "acme", config)
	id, err := h.Apps.FindAppID(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	h.app = id
	return h
}

// mintToken returns a token of acme.
func (h *fixture) mintToken(t *testing.T, subject string, roles ...string) string {
	t.Helper()
	return h.MintToken(t, "acme", authz.TokenSpec{Subject: subject, Roles: roles})
}

// put uploads a document and requires a status.
func (h *fixture) put(t *testing.T, token, id string, content any, status int, headers ...string) string {
	t.Helper()
	resp, body := h.Do(t, http.MethodPut, manual+"/documents/"+id, token, content, headers...)
	if resp.StatusCode != status {
		t.Fatalf("PUT %s: %d, want %d: %s", id, resp.StatusCode, status, body)
	}
	return body
}

// indexAll indexes the documents that wait, each as one chunk, as the indexer does.
func (h *fixture) indexAll(ctx context.Context, t *testing.T, change ...func(*document.Chunk)) {
	t.Helper()
	pass, found, err := corpus.NewPasses(h.DB).Claim(ctx, "test", time.Minute, nil)
	if err != nil || !found {
		t.Fatal("no pass is due", err)
	}
	rows := corpus.New(h.DB, h.app, corpus.Limits{})
	pending, err := rows.Index.NextPending(ctx, "manual", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	generations, _, err := rows.Search.Generations(ctx, "manual")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range pending {
		text, err := rows.Index.ReadBody(ctx, "manual", d.ID, d.Revision)
		if err != nil {
			t.Fatal(err)
		}
		chunk := document.Chunk{End: len(text), Text: string(text), Place: document.Place{Page: 12, Heading: "Warranty"}}
		for _, c := range change {
			c(&chunk)
		}
		commit := corpus.Commit{Document: d.ID, Revision: d.Revision, Generation: generations.Target(), Chunks: []corpus.EmbeddedChunk{{Chunk: chunk}}}
		if err := rows.Index.CommitDocument(ctx, pass, commit); err != nil {
			t.Fatal(err)
		}
	}
	if err := corpus.NewPasses(h.DB).Release(ctx, pass, corpus.Release{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// TestContentMemory reads a document whose text is far longer than its upload, such as that of a compressed file: the memory for
// the text is reserved before it is read.
func TestContentMemory(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{ResponseMemory: capacity.NewPool(4<<20, nil)})
	dev := h.mintToken(t, "dev", "developer")
	h.put(t, dev, "a.txt", "the warranty", http.StatusAccepted)
	h.indexAll(t.Context(), t, func(c *document.Chunk) { c.End = 10 << 20 })
	if resp, body := h.Do(t, http.MethodGet, manual+"/documents/a.txt/content", dev, nil); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestAccess checks that searches, lists and counts have only what the caller may read.
func TestAccess(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	dev := h.mintToken(t, "dev", "developer")
	h.put(t, dev, "open.txt", "the warranty of all", http.StatusAccepted)
	h.put(t, dev, "bob.txt", "the warranty of bob", http.StatusAccepted, "X-Document-Access", `{"subjects": ["bob"]}`)
	h.put(t, dev, "viewers.txt", "the warranty of viewers", http.StatusAccepted, "X-Document-Access", `{"roles": ["viewer"]}`)
	h.indexAll(t.Context(), t)
	for _, c := range []struct {
		subject, role string
		want          []string
	}{
		{"dev", "developer", []string{"bob.txt", "open.txt", "viewers.txt"}},
		{"ana", "caller", []string{"open.txt"}},
		{"bob", "caller", []string{"bob.txt", "open.txt"}},
		{"eve", "viewer", []string{"open.txt", "viewers.txt"}},
		{"bob", "viewer", []string{"bob.txt", "open.txt", "viewers.txt"}},
	} {
		token := h.mintToken(t, c.subject, c.role)
		var list struct {
			Documents []struct{ ID string }
			TotalSize int
		}
		_, body := h.Do(t, http.MethodGet, manual+"/documents", token, nil)
		decode(t, body, &list)
		listed := []string{}
		for _, d := range list.Documents {
			listed = append(listed, d.ID)
		}
		if diff := cmp.Diff(c.want, listed); diff != "" || list.TotalSize != len(c.want) {
			t.Errorf("%s, %s: total %d, list (-want +got):\n%s", c.subject, c.role, list.TotalSize, diff)
		}
		var found struct{ Results []struct{ Document string } }
		_, body = h.Do(t, http.MethodPost, manual+":search", token, `{"query": "warranty", "mode": "text"}`)
		decode(t, body, &found)
		got := map[string]bool{}
		for _, p := range found.Results {
			got[p.Document] = true
		}
		for _, id := range []string{"open.txt", "bob.txt", "viewers.txt"} {
			if want := strings.Contains(strings.Join(c.want, " "), id); got[id] != want {
				t.Errorf("%s, %s: the search finds %s: %t, want %t: %s", c.subject, c.role, id, got[id], want, body)
			}
		}
		var stores struct {
			DocumentStores []struct{ Documents, Pending int64 }
		}
		_, body = h.Do(t, http.MethodGet, "/v1/document-stores", token, nil)
		decode(t, body, &stores)
		if s := stores.DocumentStores[0]; s.Documents != int64(len(c.want)) || s.Pending != 0 {
			t.Errorf("%s, %s: the store has %+v", c.subject, c.role, s)
		}
	}
	_, body := h.Do(t, http.MethodPost, manual+":search", h.mintToken(t, "ana", "caller"), `{"query": "warranty"}`)
	for _, want := range []string{`"page":12`, `"heading":"Warranty"`, `"scores":{"text":`, `"mode":"text"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	// From the answer to the deletion on nothing is found.
	if resp, body := h.Do(t, http.MethodDelete, manual+"/documents/open.txt", dev, nil); resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.StatusCode, body)
	}
	if _, body := h.Do(t, http.MethodPost, manual+":search", h.mintToken(t, "ana", "caller"), `{"query": "warranty"}`); !strings.Contains(body, `"results":[]`) {
		t.Errorf("a deleted document is found: %s", body)
	}
}

func decode(t *testing.T, body string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), v); err != nil {
		t.Fatal(err, body)
	}
}

// TestUploads checks bodies of many forms and sizes.
func TestUploads(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	dev := h.mintToken(t, "dev", "developer")
	// A file is no JSON: neither its brackets nor its commas count.
	h.put(t, dev, "brackets.json", strings.Repeat("[", 1000)+strings.Repeat(",", 300_000), http.StatusAccepted)
	h.put(t, dev, "largest.txt", strings.Repeat("x", 20<<20), http.StatusAccepted)
	h.put(t, dev, "larger.txt", strings.Repeat("x", 20<<20+1), http.StatusRequestEntityTooLarge)
	h.put(t, dev, "largest.txt", strings.Repeat("x", 21<<20), http.StatusRequestEntityTooLarge)
	h.put(t, dev, strings.Repeat("i", 512), "x", http.StatusAccepted)
	h.put(t, dev, strings.Repeat("i", 513), "x", http.StatusBadRequest)
	h.put(t, dev, "a%2Fb%2Fc", "x", http.StatusAccepted)
	h.put(t, dev, "a%0Ab", "x", http.StatusBadRequest)
	if _, body := h.Do(t, http.MethodGet, manual+"/documents?prefix=a/b", dev, nil); !strings.Contains(body, `"id":"a/b/c"`) {
		t.Errorf("no a/b/c in %s", body)
	}
	for given, want := range map[string]string{
		"text/plain; charset=ISO-8859-1": "text/plain; charset=iso-8859-1", "text/plain; charset=utf-8": "text/plain", "application/octet-stream": "", "text/html; x=y": "text/html",
	} {
		var stored struct{ MediaType string }
		decode(t, h.put(t, dev, "typed-"+strings.ReplaceAll(want, "/", ""), "x", http.StatusAccepted, "Content-Type", given), &stored)
		if stored.MediaType != want {
			t.Errorf("%s is stored as %q, want %q", given, stored.MediaType, want)
		}
	}
	h.put(t, dev, "typed", "x", http.StatusBadRequest, "Content-Type", "text/")
	// A key stands for the content and the headers that describe it.
	key := []string{"Idempotency-Key", "k", "X-Document-Title", "one"}
	first := h.put(t, dev, "keyed", "x", http.StatusAccepted, key...)
	if again := h.put(t, dev, "keyed", "x", http.StatusAccepted, key...); again != first {
		t.Errorf("a repetition is answered %s, want %s", again, first)
	}
	h.put(t, dev, "keyed", "y", http.StatusUnprocessableEntity, key...)
	h.put(t, dev, "keyed", "x", http.StatusUnprocessableEntity, "Idempotency-Key", "k", "X-Document-Title", "two")
}

// TestSimultaneousUploads checks that of many uploads of one document one creates it, and that the others change nothing.
func TestSimultaneousUploads(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	dev := h.mintToken(t, "dev", "developer")
	const n = 50
	outcomes := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			resp, body := h.Do(t, http.MethodPut, manual+"/documents/same.txt", dev, "the same")
			var stored struct{ Outcome string }
			_ = json.Unmarshal([]byte(body), &stored)
			outcomes[i] = fmt.Sprint(resp.StatusCode, stored.Outcome)
		})
	}
	all.Wait()
	counts := map[string]int{}
	for _, outcome := range outcomes {
		counts[outcome]++
	}
	if diff := cmp.Diff(map[string]int{"202created": 1, "200unchanged": n - 1}, counts); diff != "" {
		t.Error(diff)
	}
}

// TestDeleteWakesIndexer checks that a deletion starts the removal from external vector stores.
func TestDeleteWakesIndexer(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	dev := h.mintToken(t, "dev", "developer")
	h.put(t, dev, "a.txt", "x", http.StatusAccepted)
	before := h.notified.Load()
	for i, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		if resp, body := h.Do(t, http.MethodDelete, manual+"/documents/a.txt", dev, nil); resp.StatusCode != want {
			t.Errorf("%d: %d %s", i, resp.StatusCode, body)
		}
	}
	if n := h.notified.Load() - before; n != 1 {
		t.Errorf("the indexer was woken %d times, want once", n)
	}
}

// TestAudit checks that each change has an entry, and that what changed nothing has none.
func TestAudit(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	dev := h.mintToken(t, "dev", "developer")
	h.put(t, dev, "a.txt", "x", http.StatusAccepted)
	h.put(t, dev, "a.txt", "x", http.StatusOK)
	h.put(t, dev, "a.txt", "y", http.StatusAccepted)
	for _, request := range []struct{ method, path string }{{http.MethodDelete, "/documents/a.txt"}, {http.MethodDelete, "/documents/a.txt"}, {http.MethodPost, ":reindex?confirm=true"}} {
		h.Do(t, request.method, manual+request.path, dev, nil)
	}
	var list struct {
		Entries []struct {
			Actor, Action, App string
			Detail             map[string]any
		}
	}
	_, body := h.Do(t, http.MethodGet, "/admin/audit?action=document", surfacetest.Secret, nil)
	decode(t, body, &list)
	var got []string
	hash := ""
	for _, e := range list.Entries {
		// The id of a document is a text of the app: the trail has its keyed hash, which is the same each time.
		id, known := e.Detail["document"].(string)
		switch {
		case known && strings.HasPrefix(id, "hmac-sha256:") && (hash == "" || hash == id):
			hash, id = id, "hash"
		case known:
			t.Errorf("the trail has the document as %q", id)
		}
		got = append([]string{strings.TrimSpace(fmt.Sprintf("%s %s %s %s %v", e.Actor, e.Action, e.App, id, e.Detail["outcome"]))}, got...)
	}
	want := []string{
		"dev document.put acme hash created", "dev document.put acme hash changed", "dev document.delete acme hash <nil>", "dev document.reindex acme  <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, body)
	}
}

// TestAuditIsPartOfTheChange has the database refuse entries of the audit trail: no change without its entry takes place.
func TestAuditIsPartOfTheChange(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	dev := h.mintToken(t, "dev", "developer")
	h.put(t, dev, "a.txt", "before", http.StatusAccepted)
	h.indexAll(t.Context(), t)
	execSQL := func(sql string) {
		t.Helper()
		var b db.Batch
		b.Exec(nil, sql)
		if err := h.DB.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	readState := func() (state []string) {
		t.Helper()
		for _, path := range []string{"/documents/a.txt/content", "/documents/b.txt/content"} {
			resp, body := h.Do(t, http.MethodGet, manual+path, dev, nil)
			state = append(state, resp.Status)
			if resp.StatusCode == http.StatusOK {
				state = append(state, body)
			}
		}
		var b db.Batch
		b.Query(func(r db.Row) error {
			var requested, removal bool
			err := r.Scan(&requested, &removal)
			state = append(state, fmt.Sprint(requested, removal))
			return err
		}, `SELECT requested, removal_allowed FROM index_pass`)
		if err := h.DB.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return state
	}
	changes := []struct {
		method, path string
		content      any
	}{
		{http.MethodPut, "/documents/a.txt", "after"},
		{http.MethodPut, "/documents/b.txt", "new"},
		{http.MethodDelete, "/documents/a.txt", nil},
		{http.MethodPost, ":reindex", nil},
		{http.MethodPost, ":reindex?confirm=true", nil},
	}
	before, notified := readState(), h.notified.Load()
	execSQL(`CREATE TRIGGER refuse_entries BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	for _, c := range changes {
		if resp, body := h.Do(t, c.method, manual+c.path, dev, c.content); resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, body)
		}
		if diff := cmp.Diff(before, readState()); diff != "" {
			t.Errorf("%s %s took place without its entry (-before +after):\n%s", c.method, c.path, diff)
		}
	}
	if n := h.notified.Load(); n != notified {
		t.Errorf("the indexer was woken %d times", n-notified)
	}
	execSQL(`DROP TRIGGER refuse_entries`)
	for _, c := range changes {
		if resp, body := h.Do(t, c.method, manual+c.path, dev, c.content); resp.StatusCode >= http.StatusBadRequest {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, body)
		}
	}
}
