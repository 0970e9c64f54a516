package corpus_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/store/quota"
	"stoa/agentsvc/words"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// everyone reads every document.
var everyone = document.Reader{All: true}

const model = "test/letters/26"

// fixture is a tenant with a document store named manual.
type fixture struct {
	*corpus.Store
	d      *db.DB
	tenant db.ID
	passes *corpus.Passes
}

func newFixture(t *testing.T, d *db.DB, tenant db.ID, limits corpus.Limits) *fixture {
	t.Helper()
	f := &fixture{Store: corpus.New(d, tenant, limits), d: d, tenant: tenant, passes: corpus.NewPasses(d)}
	f.ensureStore(t, "upload", "r1")
	return f
}

func (f *fixture) ensureStore(t *testing.T, source, recipe string) corpus.Generations {
	t.Helper()
	g, err := f.Index.EnsureStore(t.Context(), corpus.StoreSpec{Name: "manual", Source: source, Recipe: recipe, Embedder: model})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (f *fixture) put(t *testing.T, id, text string, change ...func(*corpus.Upload)) corpus.Outcome {
	t.Helper()
	u := corpus.Upload{ID: id, Title: "", MediaType: "text/plain", Body: []byte(text)}
	for _, c := range change {
		c(&u)
	}
	_, outcome, err := f.Documents.Put(t.Context(), "manual", u)
	if err != nil {
		t.Fatalf("put %s: %v", id, err)
	}
	return outcome
}

// claim claims the tenant's pass, which must be due.
func (f *fixture) claim(t *testing.T) corpus.Pass {
	t.Helper()
	if err := f.Index.RequestPass(t.Context(), "manual"); err != nil {
		t.Fatal(err)
	}
	pass, found, err := f.passes.Claim(t.Context(), "p1", time.Minute, nil)
	if err != nil || !found || pass.Tenant != f.tenant {
		t.Fatalf("claimed %+v %v %v", pass, found, err)
	}
	return pass
}

func (f *fixture) release(t *testing.T, pass corpus.Pass, r corpus.Release) {
	t.Helper()
	if err := f.passes.Release(t.Context(), pass, r); err != nil {
		t.Fatal(err)
	}
}

// letters is a vector of a text: how often it has each letter.
func letters(text string) []float32 {
	v := make([]float32, 26)
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' {
			v[r-'a']++
		}
	}
	return v
}

// newCommit returns the commit of a document whose lines are its chunks.
func newCommit(d corpus.PendingDocument, generation int64, text string) corpus.Commit {
	c := corpus.Commit{Document: d.ID, Revision: d.Revision, Generation: generation, Model: model}
	at := 0
	for i, line := range strings.Split(text, "\n") {
		sum := sha256.Sum256([]byte(line))
		vector := letters(line)
		if !slices.ContainsFunc(vector, func(x float32) bool { return x > 0 }) {
			vector = nil
		}
		c.Chunks = append(c.Chunks, corpus.EmbeddedChunk{
			Chunk:  document.Chunk{Ordinal: i, Start: at, End: at + len(line), Text: line, Place: document.Place{Line: i + 1}},
			Vector: vector, TextHash: hex.EncodeToString(sum[:]),
		})
		at += len(line) + 1
	}
	return c
}

// indexPending indexes every pending document as the indexer does.
func (f *fixture) indexPending(t *testing.T) {
	t.Helper()
	pass := f.claim(t)
	defer f.release(t, pass, corpus.Release{After: time.Hour})
	g, _, err := f.Search.Generations(t.Context(), "manual")
	if err != nil {
		t.Fatal(err)
	}
	after := ""
	for {
		pending, err := f.Index.NextPending(t.Context(), "manual", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(pending) == 0 {
			return
		}
		for _, d := range pending {
			body, err := f.Index.ReadBody(t.Context(), "manual", d.ID, d.Revision)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Index.CommitDocument(t.Context(), pass, newCommit(d, g.Target(), string(body))); err != nil {
				t.Fatal(err)
			}
			after = d.ID
		}
	}
}

// pending returns the pending document with this id.
func (f *fixture) pending(t *testing.T, id string) corpus.PendingDocument {
	t.Helper()
	all, err := f.Index.NextPending(t.Context(), "manual", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(d corpus.PendingDocument) bool { return d.ID == id })
	if i < 0 {
		t.Fatalf("%s is not pending: %v", id, all)
	}
	return all[i]
}

// findText returns the texts that a search by words finds in a scope, best first.
func (f *fixture) findText(t *testing.T, scope corpus.Scope, question string) []string {
	t.Helper()
	found, _, err := f.Search.MatchText(t.Context(), scope, words.ExtractQuestion(question), 10)
	if err != nil {
		t.Fatal(err)
	}
	return f.load(t, scope, found)
}

// findVector is findText by vectors.
func (f *fixture) findVector(t *testing.T, scope corpus.Scope, question string) []string {
	t.Helper()
	found, err := f.Search.MatchVectors(t.Context(), scope, model, letters(question), 10)
	if err != nil {
		t.Fatal(err)
	}
	return f.load(t, scope, found)
}

func (f *fixture) load(t *testing.T, scope corpus.Scope, found []corpus.Match) []string {
	t.Helper()
	var ids []string
	for _, m := range found {
		ids = append(ids, m.Chunk)
	}
	passages, err := f.Search.LoadPassages(t.Context(), scope, ids)
	if err != nil {
		t.Fatal(err)
	}
	if len(passages) != len(found) {
		t.Errorf("%d of %d matches are loaded", len(passages), len(found))
	}
	texts := []string{}
	for _, p := range passages {
		texts = append(texts, p.Text)
	}
	return texts
}

func checkDiff(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

func checkCode(t *testing.T, what string, err error, want agentsvc.Code, text string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %s with %q", what, err, want, text)
	}
}

// count returns the number of rows of a table.
func count(t *testing.T, d *db.DB, table string) (n int64) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM `+table)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// rowCounts returns the number of rows of every table of retrieval that has any. Those of document_total are for checkTotals.
func rowCounts(t *testing.T, d *db.DB) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, table := range []string{
		"document_store", "document", "document_body", "document_reader", "document_live", "chunk", "chunk_vector", "removed_chunk", "index_pass",
	} {
		if n := count(t, d, table); n > 0 {
			counts[table] = n
		}
	}
	return counts
}

// checkTotals checks that document_total has the sums of the rows, and a row for each store and generation with any.
func checkTotals(t *testing.T, d *db.DB) {
	t.Helper()
	read := func(sql string) map[string][3]int64 {
		totals := map[string][3]int64{}
		var b db.Batch
		b.Query(func(r db.Row) error {
			var tenant, store string
			var generation int64
			var sums [3]int64 // documents, bytes, chunks
			err := r.Scan(&tenant, &store, &generation, &sums[0], &sums[1], &sums[2])
			if sums != [3]int64{} {
				totals[fmt.Sprint(tenant, "/", store, "/", generation)] = sums
			}
			return err
		}, sql)
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return totals
	}
	checkDiff(t, "sums over documents", read(`SELECT tenant, store, 0, CAST(SUM(documents) AS BIGINT), CAST(SUM(bytes) AS BIGINT), 0 FROM (
			SELECT tenant, store, 1 AS documents, 0 AS bytes FROM document UNION ALL SELECT tenant, store, 0, octet_length(body) FROM document_body) x
			GROUP BY tenant, store
		UNION ALL SELECT tenant, store, generation, COUNT(*), 0, CAST(SUM(chunks) AS BIGINT) FROM document_live GROUP BY tenant, store, generation`),
		read(`SELECT tenant, store, generation, documents, bytes, chunks FROM document_total`))
}

var manual = corpus.Scope{Store: "manual", Reader: everyone}

// TestSearch: what is put and indexed is found by words and by vectors, with its place, and read back as text.
func TestSearch(t *testing.T) {
	t.Parallel()
	search := func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		checkDiff(t, "put", corpus.Created, f.put(t, "guide/a.txt", "The warranty lasts two years.\nBatteries are excluded.\nCall the hotline."))
		f.put(t, "b.txt", "Zebras zigzag.")
		checkDiff(t, "before indexing", []string{}, f.findText(t, manual, "warranty"))
		f.indexPending(t)
		checkDiff(t, "words", []string{"The warranty lasts two years."}, f.findText(t, manual, "How long is the warranty?"))
		checkDiff(t, "plural", []string{"Batteries are excluded."}, f.findText(t, manual, "battery excluded"))
		checkDiff(t, "vectors", "Zebras zigzag.", f.findVector(t, manual, "zzzz")[0])
		text, err := f.Documents.ReadText(t.Context(), "manual", "guide/a.txt", everyone)
		checkDiff(t, "text", "The warranty lasts two years.\nBatteries are excluded.\nCall the hotline.", text)
		found, _, err2 := f.Search.MatchText(t.Context(), manual, []string{"battery", "batterie", "excluded"}, 1)
		if err := errors.Join(err, err2); err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		m := found[0]
		around, err := f.Search.LoadNeighbours(t.Context(), manual, []corpus.Span{{m.Document, m.Ordinal - 1, m.Ordinal + 1}})
		if err != nil || len(around) != 3 {
			t.Fatal(around, err)
		}
		checkDiff(t, "place", document.Place{Line: 2}, around[1].Place)
		status, err := f.Documents.StoreStatus(t.Context(), "manual")
		if err != nil {
			t.Fatal(err)
		}
		status.UpdatedAt = time.Time{}
		checkDiff(t, "status", document.StoreStatus{Name: "manual", Source: "upload", State: "ready", Documents: 2, Chunks: 4, Generation: 1, Embedder: model, VectorIndex: document.Exact}, status)
		counts, err := f.Documents.CountByStore(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "documents by store", map[string]int{"manual": 2}, counts)

		checkDiff(t, "same", corpus.Unchanged, f.put(t, "b.txt", "Zebras zigzag."))
		checkDiff(t, "metadata", corpus.Updated, f.put(t, "b.txt", "Zebras zigzag.", func(u *corpus.Upload) { u.Metadata = map[string]string{"kind": "animal"} }))
		checkDiff(t, "changed", corpus.Changed, f.put(t, "b.txt", "Yaks yawn."))
		checkDiff(t, "the version before stays", []string{"Zebras zigzag."}, f.findText(t, manual, "zebras"))
		f.indexPending(t)
		checkDiff(t, "old text", []string{}, f.findText(t, manual, "zebras"))
		checkDiff(t, "new text", []string{"Yaks yawn."}, f.findText(t, manual, "yaks"))
		checkDiff(t, "rows", map[string]int64{"document_store": 1, "document": 2, "document_body": 2, "document_live": 2, "chunk": 4, "chunk_vector": 4, "index_pass": 1}, rowCounts(t, d))
	}
	dbtest.ForEachEngine(t, search)
	// Behind a pooler of transactions arguments are sent as text.
	t.Run("postgres without prepared statements", func(t *testing.T) {
		t.Parallel()
		search(t, dbtest.Open(t, dbtest.NewPostgresURL(t)+"&default_query_exec_mode=exec"))
	})
}

// TestIsolation: another tenant and another reader see and change nothing of a document, and other tenants' scores do not
// depend on it.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		alice := newFixture(t, d, "alice", corpus.Limits{})
		alice.put(t, "secret", "The code word is xylophone", func(u *corpus.Upload) {
			u.Access = document.Access{Subjects: []string{"ana", "https://idp carl"}, Roles: []string{"auditor"}}
		})
		alice.put(t, "open", "The code is public")
		alice.indexPending(t)
		alice.put(t, "waits", "another one")
		bob := newFixture(t, d, "bob", corpus.Limits{})
		found, _, err := alice.Search.MatchText(ctx, manual, []string{"xylophone"}, 10)
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		secret := found[0].Chunk
		before := rowCounts(t, d)

		// What Bob gets for a name of Alice's is what he gets for one that does not exist.
		answers := func(id, chunk string) (out []any) {
			add := func(v any, err error) {
				text := ""
				if err != nil {
					text = strings.ReplaceAll(err.Error(), id, "ID")
				}
				out = append(out, v, text)
			}
			doc, err := bob.Documents.Get(ctx, "manual", id, everyone)
			add(doc, err)
			page, err := bob.Documents.List(ctx, "manual", corpus.ListFilter{Reader: everyone})
			add(page, err)
			add(nil, bob.Documents.Delete(ctx, "manual", id, "", everyone))
			body, err := bob.Documents.ReadBody(ctx, "manual", id, everyone)
			add(body, err)
			text, err := bob.Documents.ReadText(ctx, "manual", id, everyone)
			add(text, err)
			matches, _, err := bob.Search.MatchText(ctx, manual, []string{"xylophone", "code"}, 10)
			add(matches, err)
			matches, err = bob.Search.MatchVectors(ctx, manual, model, letters("xylophone"), 10)
			add(matches, err)
			passages, err := bob.Search.LoadPassages(ctx, manual, []string{chunk})
			add(passages, err)
			passages, err = bob.Search.LoadNeighbours(ctx, manual, []corpus.Span{{Document: id, To: 10}})
			add(passages, err)
			vectors, err := bob.Index.FindVectors(ctx, model, []string{newCommit(corpus.PendingDocument{}, 1, "The code is public").Chunks[0].TextHash})
			add(vectors, err)
			pending, err := bob.Index.NextPending(ctx, "manual", "", 10)
			add(pending, err)
			return out
		}
		checkDiff(t, "another tenant", answers("nothing", "nothing"), answers("secret", secret))
		pass := corpus.Pass{Tenant: "alice", Store: "manual", Holder: "p1", Epoch: 1, Lease: time.Minute}
		if _, err := bob.Index.DeleteUnlisted(ctx, pass, nil); !errors.Is(err, corpus.ErrPassLost) {
			t.Errorf("another tenant's pass: %v", err)
		}
		checkDiff(t, "rows after another tenant", before, rowCounts(t, d))
		if d.Engine() == db.Postgres { // SQLite has no row-level security
			var b db.Batch
			for table := range before {
				b.Query(func(r db.Row) error {
					var tenant string
					err := r.Scan(&tenant)
					checkDiff(t, "tenant of a row of "+table, "bob", tenant)
					return err
				}, `SELECT tenant FROM `+table)
			}
			if err := d.Tenant("bob").Do(ctx, &b); err != nil {
				t.Fatal(err)
			}
		}

		reader := func(issuer, subject string, roles ...string) document.Reader {
			return document.Reader{Owner: agentsvc.Owner{Issuer: issuer, Subject: subject}, Roles: roles}
		}
		for name, c := range map[string]struct {
			reader document.Reader
			sees   bool
		}{
			"everyone":               {everyone, true},
			"subject":                {reader("stoa", "ana"), true},
			"role":                   {reader("stoa", "dora", "user", "auditor"), true},
			"issuer and subject":     {reader("https://idp", "carl"), true},
			"subject of another":     {reader("stoa", "carl"), false},
			"spelled like an issuer": {reader("", "https://idp carl"), false},
			"other":                  {reader("stoa", "bob", "user"), false},
			"quotes":                 {reader("stoa", `ana' OR '1'='1`, `auditor"]`, "%", ""), false},
			"anonymous":              {document.Reader{}, false},
		} {
			scope := corpus.Scope{Store: "manual", Reader: c.reader}
			want := []string{}
			if c.sees {
				want = append(want, "The code word is xylophone")
			}
			checkDiff(t, name+": words", want, alice.findText(t, scope, "xylophone"))
			got := alice.findVector(t, scope, "xylophone")
			checkDiff(t, name+": vectors", c.sees, slices.Contains(got, "The code word is xylophone"))
			passages, err := alice.Search.LoadPassages(ctx, scope, []string{secret})
			checkDiff(t, name+": passages", len(want), len(passages))
			around, err2 := alice.Search.LoadNeighbours(ctx, scope, []corpus.Span{{Document: "secret", To: 5}})
			checkDiff(t, name+": neighbours", len(want), len(around))
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			page, err := alice.Documents.List(ctx, "manual", corpus.ListFilter{Reader: c.reader})
			if err != nil {
				t.Fatal(err)
			}
			checkDiff(t, name+": list", int64(2+len(want)), page.Total)
			_, err = alice.Documents.Get(ctx, "manual", "secret", c.reader)
			_, err2 = alice.Documents.ReadBody(ctx, "manual", "secret", c.reader)
			_, err3 := alice.Documents.ReadText(ctx, "manual", "secret", c.reader)
			for i, err := range []error{err, err2, err3} {
				if c.sees != (err == nil) || !c.sees && !errors.Is(err, agentsvc.ErrNotFound) {
					t.Errorf("%s: read %d: %v", name, i, err)
				}
			}
			if !c.sees {
				if err := alice.Documents.Delete(ctx, "manual", "secret", "", c.reader); !errors.Is(err, agentsvc.ErrNotFound) {
					t.Errorf("%s deletes: %v", name, err)
				}
			}
		}
	})
}

// TestScoresDoNotDependOnHiddenDocuments: a reader's scores are the same with and without documents that he may not read.
func TestScoresDoNotDependOnHiddenDocuments(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "open", "a report on tin\na report on zinc")
		f.indexPending(t)
		scope := corpus.Scope{Store: "manual", Reader: document.Reader{Owner: agentsvc.Owner{Subject: "bob"}}}
		score := func() []corpus.Match {
			found, _, err := f.Search.MatchText(t.Context(), scope, []string{"tin", "report"}, 10)
			if err != nil || len(found) != 2 {
				t.Fatal(found, err)
			}
			return found
		}
		before := score()
		f.put(t, "hidden", "tin tin tin report\ntin", func(u *corpus.Upload) { u.Access.Subjects = []string{"ana"} })
		f.indexPending(t)
		checkDiff(t, "scores", before, score())
	})
}

// TestAccessChange: an access that changes takes effect at once, and a replaced text is not found by those who may read only
// the new one.
func TestAccessChange(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		only := func(names ...string) func(*corpus.Upload) {
			return func(u *corpus.Upload) { u.Access.Subjects = names }
		}
		scope := func(name string) corpus.Scope {
			return corpus.Scope{Store: "manual", Reader: document.Reader{Owner: agentsvc.Owner{Subject: name}}}
		}
		f.put(t, "a", "secret plan", only("ana"))
		f.indexPending(t)
		checkDiff(t, "ana", []string{"secret plan"}, f.findText(t, scope("ana"), "plan"))
		checkDiff(t, "narrower", corpus.Updated, f.put(t, "a", "secret plan", only("carl")))
		checkDiff(t, "ana after", []string{}, f.findText(t, scope("ana"), "plan"))
		checkDiff(t, "carl after", []string{"secret plan"}, f.findText(t, scope("carl"), "plan"))
		checkDiff(t, "wider with another text", corpus.Changed, f.put(t, "a", "public plan"))
		checkDiff(t, "until it is indexed", []string{}, f.findText(t, scope("bob"), "plan"))
		f.indexPending(t)
		checkDiff(t, "indexed", []string{"public plan"}, f.findText(t, scope("bob"), "plan"))

		f.put(t, "b", "secret recipe", only("ana"))
		f.indexPending(t)
		f.put(t, "b", "public recipe", only("ana"))
		checkDiff(t, "wider while it waits", corpus.Updated, f.put(t, "b", "public recipe"))
		checkDiff(t, "the old text", []string{}, f.findText(t, scope("bob"), "recipe"))
	})
}

// TestFilter: filters have any characters, and every leg applies them.
func TestFilter(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		odd := map[string]string{`k"e'y%_\`: `v"a'l%_\{}`, "<b>": "ü&", "lang": "de"}
		f.put(t, "odd", "apple pie", func(u *corpus.Upload) { u.Metadata = odd })
		f.put(t, "plain", "apple tart", func(u *corpus.Upload) { u.Metadata = map[string]string{"lang": "de"} })
		f.indexPending(t)
		for name, c := range map[string]struct {
			filter map[string]string
			want   []string
		}{
			"none":       {nil, []string{"odd", "plain"}},
			"both":       {map[string]string{"lang": "de"}, []string{"odd", "plain"}},
			"all of odd": {odd, []string{"odd"}},
			"html":       {map[string]string{"<b>": "ü&"}, []string{"odd"}},
			"value":      {map[string]string{"lang": "en"}, nil},
			"pattern":    {map[string]string{"lang": "%"}, nil},
			"one fails":  {map[string]string{"lang": "de", "x": ""}, nil},
			"sql":        {map[string]string{"lang": "de' OR '1'='1"}, nil},
			"json":       {map[string]string{"lang": `de"}`}, nil},
			"nul":        {map[string]string{"lang": "de\x00"}, nil},
			"bytes":      {map[string]string{"lang": "\xff"}, nil},
		} {
			scope := corpus.Scope{Store: "manual", Reader: everyone, Filter: c.filter}
			text, _, err := f.Search.MatchText(t.Context(), scope, []string{"apple"}, 10)
			vector, err2 := f.Search.MatchVectors(t.Context(), scope, model, letters("apple"), 10)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(name, err)
			}
			for leg, found := range map[string][]corpus.Match{"words": text, "vectors": vector} {
				var got []string
				for _, m := range found {
					got = append(got, m.Document)
				}
				slices.Sort(got)
				checkDiff(t, name+" by "+leg, c.want, got)
			}
		}
		for _, name := range []string{"man%", "manual' OR '1'='1", "\x00", "\xff", ""} {
			scope := corpus.Scope{Store: name, Reader: everyone}
			text, _, err := f.Search.MatchText(t.Context(), scope, []string{"apple"}, 10)
			if err != nil || len(text) > 0 {
				t.Errorf("store %q: %v %v", name, text, err)
			}
		}
		for _, question := range [][]string{{`' | 'apple`}, {`" OR "`}, {"*"}, {""}, {"tin OR"}, {strings.Repeat("a", 1<<20)}, slices.Repeat([]string{"nothing"}, 100_000)} {
			text, _, err := f.Search.MatchText(t.Context(), manual, question, 10)
			if err != nil || len(text) > 0 {
				t.Errorf("question %.20q: %v %v", question, text, err)
			}
		}
	})
}

// TestFilterCost: a filter of many values over documents with much metadata does not cost a comparison of each value with
// each of the metadata.
func TestFilterCost(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		metadata, many := map[string]string{}, map[string]string{}
		for i := range 400 {
			metadata[fmt.Sprint("k", i)] = "v"
		}
		for i := range 20 {
			many[fmt.Sprint("k", i)] = "v"
		}
		for i := range 40 {
			f.put(t, fmt.Sprint(i), "apple pie", func(u *corpus.Upload) { u.Metadata = metadata })
		}
		f.indexPending(t)
		measure := func(filter map[string]string) (fastest time.Duration) {
			for range 7 {
				began := time.Now()
				found, _, err := f.Search.MatchText(t.Context(), corpus.Scope{Store: "manual", Reader: everyone, Filter: filter}, []string{"apple"}, 40)
				if took := time.Since(began); fastest == 0 || took < fastest {
					fastest = took
				}
				if err != nil || len(found) != 40 {
					t.Fatal(len(found), err)
				}
			}
			return fastest
		}
		one, all := measure(map[string]string{"k0": "v"}), measure(many)
		t.Logf("one value %v, %d values %v", one, len(many), all)
		if all > 5*one {
			t.Errorf("a filter of %d values takes %v, one of a single value %v", len(many), all, one)
		}
	})
}

// TestOneRanking: both engines find the same chunks in the same order with the same scores.
func TestOneRanking(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		vocabulary := strings.Fields("tin zinc iron Zürich 犬の名前 ΑΣ straße naïve İstanbul report a1 b2 e\u0301 cats cat")
		for doc := range 20 {
			var text strings.Builder
			for i := range 60 {
				h := fnv.New32a()
				_, _ = fmt.Fprint(h, doc, i)
				text.WriteString(vocabulary[int(h.Sum32()>>3)%len(vocabulary)])
				text.WriteString([]string{" ", " ", ", ", "\n"}[h.Sum32()%4])
			}
			f.put(t, fmt.Sprintf("%02d", doc), strings.TrimSpace(text.String()))
		}
		f.indexPending(t)
		for _, question := range []string{"tin", "zinc Zürich", "犬の名前", "ας straße", "naïve İSTANBUL", "e\u0301 cats report b2"} {
			found, bounded, err := f.Search.MatchText(t.Context(), manual, words.ExtractQuestion(question), 50)
			if err != nil || bounded {
				t.Fatal(bounded, err)
			}
			for _, m := range found {
				got[string(d.Engine())] = append(got[string(d.Engine())], fmt.Sprintf("%s: %s %d %.12f", question, m.Document, m.Ordinal, m.Score))
			}
		}
		if n := len(got[string(d.Engine())]); n < 100 {
			t.Errorf("%d matches are compared", n)
		}
	})
	if len(got) == 2 {
		checkDiff(t, "sqlite -, postgres +", got["sqlite"], got["postgres"])
	}
}

// TestList: pages, states, prefixes and totals.
func TestList(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		ids := []string{"B", "a%", "a/1", "a/2", "a_", "ab", "ä", "é/x"}
		for _, id := range ids {
			f.put(t, id, "text of "+id)
		}
		for name, c := range map[string]struct {
			filter corpus.ListFilter
			want   []string
			more   bool
			total  int64
		}{
			"all":       {corpus.ListFilter{}, ids, false, 8},
			"page":      {corpus.ListFilter{Size: 3}, ids[:3], true, 8},
			"next":      {corpus.ListFilter{Size: 3, After: ids[2]}, ids[3:6], true, 8},
			"last":      {corpus.ListFilter{Size: 3, After: ids[5]}, ids[6:], false, 8},
			"prefix":    {corpus.ListFilter{Prefix: "a/"}, ids[2:4], false, 2},
			"wildcard":  {corpus.ListFilter{Prefix: "a%"}, ids[1:2], false, 1},
			"character": {corpus.ListFilter{Prefix: "é"}, ids[7:], false, 1},
			"state":     {corpus.ListFilter{State: document.Indexed}, nil, false, 0},
			"bad":       {corpus.ListFilter{Prefix: "\xff"}, nil, false, 0},
		} {
			c.filter.Reader = everyone
			page, err := f.Documents.List(t.Context(), "manual", c.filter)
			if err != nil {
				t.Fatal(name, err)
			}
			var got []string
			for _, d := range page.Documents {
				got = append(got, d.ID)
			}
			checkDiff(t, name, c.want, got)
			if page.More != c.more || page.Total != c.total {
				t.Errorf("%s: more %v, total %d", name, page.More, page.Total)
			}
		}
		_, err := f.Documents.List(t.Context(), "nothing", corpus.ListFilter{Reader: everyone})
		checkCode(t, "no store", err, agentsvc.CodeNotFound, "")
	})
}

// TestLimits: each limit refuses with its name, also many uploads at once, and preconditions hold.
func TestLimits(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		f := newFixture(t, d, "acme", corpus.Limits{Documents: 5, BodyBytes: 40, DocumentBytes: 30, Chunks: 3})
		put := func(id, text string, change ...func(*corpus.Upload)) error {
			u := corpus.Upload{ID: id, Body: []byte(text)}
			for _, c := range change {
				c(&u)
			}
			_, _, err := f.Documents.Put(ctx, "manual", u)
			return err
		}
		checkCode(t, "a large document", put("a", strings.Repeat("x", 31)), agentsvc.CodeExhausted, "documents.document_bytes")
		errs := make(chan error)
		for i := range 10 {
			go func() { errs <- put(fmt.Sprint(i), "x") }()
		}
		stored := 0
		for range 10 {
			if err := <-errs; err == nil {
				stored++
			} else {
				checkCode(t, "many", err, agentsvc.CodeExhausted, "documents.count")
			}
		}
		checkDiff(t, "stored of many", 5, stored)
		page, err := f.Documents.List(ctx, "manual", corpus.ListFilter{Reader: everyone})
		if err != nil {
			t.Fatal(err)
		}
		first, second := page.Documents[0].ID, page.Documents[1]
		if err := put(first, strings.Repeat("y", 30)); err != nil {
			t.Errorf("a larger version: %v", err)
		}
		checkCode(t, "too many bytes", put(second.ID, strings.Repeat("y", 10)), agentsvc.CodeExhausted, "documents.bytes")
		for _, bad := range []struct {
			field  string
			change func(*corpus.Upload)
		}{
			{"id", func(u *corpus.Upload) { u.ID = "" }},
			{"id", func(u *corpus.Upload) { u.ID = strings.Repeat("x", 513) }},
			{"title", func(u *corpus.Upload) { u.Title = "\xff" }},
			{"metadata", func(u *corpus.Upload) { u.Metadata = map[string]string{"a": "\x00"} }},
			{"access.subjects", func(u *corpus.Upload) { u.Access.Subjects = []string{" "} }},
			{"access.roles", func(u *corpus.Upload) { u.Access.Roles = []string{""} }},
		} {
			checkCode(t, bad.field, put("bad", "x", bad.change), agentsvc.CodeInvalid, bad.field)
		}
		ifMatch := func(hash string) func(*corpus.Upload) { return func(u *corpus.Upload) { u.IfMatch = hash } }
		checkCode(t, "another hash", put(second.ID, "z", ifMatch("0")), agentsvc.CodePrecondition, second.ContentHash)
		checkCode(t, "missing", put("none", "z", ifMatch("*")), agentsvc.CodePrecondition, "does not exist")
		checkCode(t, "exists", put(second.ID, "z", func(u *corpus.Upload) { u.IfNoneMatch = true }), agentsvc.CodePrecondition, "exists")
		checkCode(t, "delete another", f.Documents.Delete(ctx, "manual", second.ID, "0", everyone), agentsvc.CodePrecondition, second.ContentHash)
		if err := put(second.ID, "z", ifMatch(second.ContentHash)); err != nil {
			t.Error(err)
		}
		_, _, err = f.Documents.Put(ctx, "nothing", corpus.Upload{ID: "a"})
		checkCode(t, "no store", err, agentsvc.CodeNotFound, "")

		pass := f.claim(t)
		pending := f.pending(t, first)
		err = f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, "a\nb\nc\nd"))
		checkCode(t, "chunks", err, agentsvc.CodeExhausted, "documents.chunks")
		if n := count(t, d, "chunk"); n != 0 {
			t.Errorf("%d chunks are left of a refused commit", n)
		}
		if err := f.Index.CommitDocument(ctx, pass, newCommit(pending, 1, "a\nb\nc")); err != nil {
			t.Error(err)
		}
		checkTotals(t, d)
	})
}

// TestSameDocumentAtOnce: fifty uploads of one document are one row, and their indexing one set of chunks.
func TestSameDocumentAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		outcomes := make(chan corpus.Outcome)
		for i := range 50 {
			go func() {
				_, outcome, err := f.Documents.Put(context.WithoutCancel(t.Context()), "manual", corpus.Upload{ID: "a", Body: fmt.Appendf(nil, "text %d\nend", i%2)})
				if err != nil {
					t.Error(err)
				}
				outcomes <- outcome
			}()
		}
		counts := map[corpus.Outcome]int{}
		for range 50 {
			counts[<-outcomes]++
		}
		checkDiff(t, "created", 1, counts[corpus.Created])
		f.indexPending(t)
		checkDiff(t, "rows", map[string]int64{"document_store": 1, "document": 1, "document_body": 1, "document_live": 1, "chunk": 2, "chunk_vector": 2, "index_pass": 1}, rowCounts(t, d))
		checkTotals(t, d)
	})
}

// TestDeleteApp: the deletion of an app leaves none of its rows, and another app's.
func TestDeleteApp(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		apps := tenancytest.NewService(t, d)
		fill := func(name string) {
			f := newFixture(t, d, tenancytest.CreateApp(t, apps, tenancy.Draft{Name: name}).ID, corpus.Limits{})
			f.put(t, "a", "warranty", func(u *corpus.Upload) { u.Access.Roles = []string{"auditor"} })
			f.indexPending(t)
			f.put(t, "b", "pending")
			c := newCommit(f.pending(t, "b"), 1, "pending")
			c.Collection = "external"
			if err := f.Index.NoteVectors(t.Context(), f.claim(t), c); err != nil {
				t.Fatal(err)
			}
		}
		fill("acme")
		one := rowCounts(t, d)
		checkDiff(t, "tables with rows", 9, len(one))
		totals := count(t, d, "document_total")
		fill("globex")
		if err := apps.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
			t.Fatal(err)
		}
		checkDiff(t, "rows that are left", one, rowCounts(t, d))
		checkDiff(t, "sums that are left", totals, count(t, d, "document_total"))
		checkTotals(t, d)
		if d.Engine() == db.SQLite {
			checkDiff(t, "rows of the full-text index", one["chunk"], count(t, d, `chunk_words WHERE chunk_words MATCH 'words : warranty'`))
		}
	})
}

// TestStoredBytes: documents, chunks and vectors count in what a tenant stores, and a quota refuses uploads.
func TestStoredBytes(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", strings.Repeat("word ", 1000))
		storedBytes := func() int64 {
			n, err := quota.StoredBytes(t.Context(), d, "acme")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := storedBytes(); n < 5000 || n > 5100 {
			t.Errorf("a document of 5000 bytes counts as %d", n)
		}
		f.indexPending(t)
		if n := storedBytes(); n < 15_000 || n > 15_300 { // its text, its words and a vector of 104 bytes
			t.Errorf("with its chunk it counts as %d", n)
		}
		d.SetQuota(quota.New(d, quota.Options{PerTenant: 10_000}))
		if _, _, err := f.Documents.Put(t.Context(), "manual", corpus.Upload{ID: "b", Body: make([]byte, 20_000)}); !errors.Is(err, agentsvc.CodeExhausted) {
			t.Errorf("beyond the quota: %v", err)
		}
	})
}
