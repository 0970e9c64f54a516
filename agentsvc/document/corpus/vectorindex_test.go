package corpus_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const (
	// smallIndex makes stores of tests have an index.
	smallIndex = 100
	// testDimensions is the length of the vectors of these tests.
	testDimensions    = 48
	chunksPerDocument = 5
)

// vectorFixture is a fixture whose store has random vectors in groups, as those of texts about some subjects are.
type vectorFixture struct {
	*fixture
	random *rand.Rand
	// groups are the vectors that those of documents are near to.
	groups [][]float32
	// last is the vector that was committed last, of the document lastID.
	last   []float32
	lastID string
}

func newVectorFixture(t *testing.T, d *db.DB, tenant db.ID, limits corpus.Limits) *vectorFixture {
	t.Helper()
	f := &vectorFixture{fixture: newFixture(t, d, tenant, limits), random: rand.New(rand.NewPCG(1, 2))}
	for range 40 {
		f.groups = append(f.groups, f.vector(nil))
	}
	return f
}

// vector returns a random vector near another, nil = anywhere.
func (f *vectorFixture) vector(near []float32) []float32 {
	v := make([]float32, testDimensions)
	for i := range v {
		v[i] = float32(f.random.NormFloat64())
		if near != nil {
			v[i] = near[i] + 0.6*v[i]
		}
	}
	return v
}

// anyVector returns a random vector near one of the groups.
func (f *vectorFixture) anyVector() []float32 {
	return f.vector(f.groups[f.random.IntN(len(f.groups))])
}

// add uploads n documents and makes them searchable. Each has the metadata n, its number modulo 100.
func (f *vectorFixture) add(t *testing.T, prefix string, n int, change ...func(*corpus.Upload)) {
	t.Helper()
	for i := range n {
		f.put(t, fmt.Sprintf("%s%04d", prefix, i), strings.Repeat("text\n", chunksPerDocument-1)+"text", append(change, func(u *corpus.Upload) {
			u.Metadata = map[string]string{"n": fmt.Sprint(i % 100), "parity": fmt.Sprint(i % 2)}
		})...)
	}
	f.commitPending(t)
}

// commitPending makes the pending documents searchable by random vectors.
func (f *vectorFixture) commitPending(t *testing.T) {
	t.Helper()
	pass := f.claim(t)
	defer f.release(t, pass, corpus.Release{After: time.Hour})
	g, err := f.Index.EnsureStore(t.Context(), corpus.StoreSpec{Name: "manual", Source: "upload", Recipe: f.recipe(t), Embedder: model})
	if err != nil {
		t.Fatal(err)
	}
	for {
		pending, err := f.Index.NextPending(t.Context(), "manual", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(pending) == 0 {
			return
		}
		for _, p := range pending {
			c := newCommit(p, g.Target(), strings.Repeat("text\n", chunksPerDocument-1)+"text")
			for i := range c.Chunks {
				c.Chunks[i].Vector, c.Chunks[i].TextHash = f.anyVector(), uuid.NewString()
				f.last, f.lastID = c.Chunks[i].Vector, p.ID
			}
			if err := f.Index.CommitDocument(t.Context(), pass, c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// recipe returns the recipe of the generation that documents are indexed in.
func (f *vectorFixture) recipe(t *testing.T) (recipe string) {
	t.Helper()
	query(t, f.d, func(r db.Row) error { return r.Scan(&recipe) },
		`SELECT CASE WHEN building = 0 THEN recipe ELSE building_recipe END FROM document_store WHERE tenant = $1`, string(f.tenant))
	return recipe
}

// indexVectors brings the approximate index of a generation up to date in a pass, and returns what the last call found.
func (f *vectorFixture) indexVectors(t *testing.T, generation int64) (created bool, obstacle string) {
	t.Helper()
	pass := f.claim(t)
	defer f.release(t, pass, corpus.Release{After: time.Hour})
	for range 1000 {
		got, err := f.Vectors.Update(t.Context(), pass, generation, 200)
		if err != nil {
			t.Fatal(err)
		}
		created = created || got.Created
		if !got.More {
			return created, got.Obstacle
		}
	}
	t.Fatal("there are always more vectors")
	return false, ""
}

// match returns what a search finds.
func (f *vectorFixture) match(t *testing.T, scope corpus.Scope, vector []float32, limit int) []corpus.Match {
	t.Helper()
	found, err := f.Search.MatchVectors(t.Context(), scope, model, vector, limit)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// exact returns what an exact search finds.
func (f *vectorFixture) exact(t *testing.T, scope corpus.Scope, vector []float32, limit int) []corpus.Match {
	t.Helper()
	found, err := corpus.New(f.d, f.tenant, corpus.Limits{ExactChunks: math.MaxInt64}).Search.MatchVectors(t.Context(), scope, model, vector, limit)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// recall returns the share of the chunks of exact searches that searches return, and checks that scores are those of exact searches.
func (f *vectorFixture) recall(t *testing.T, scope corpus.Scope) float64 {
	t.Helper()
	const queries, limit = 20, 20
	found, wanted := 0, 0
	for range queries {
		q := f.anyVector()
		want := map[string]corpus.Match{}
		for _, m := range f.exact(t, scope, q, limit) {
			want[m.Chunk] = m
		}
		wanted += len(want)
		for _, m := range f.match(t, scope, q, limit) {
			if w, ok := want[m.Chunk]; ok {
				found++
				checkDiff(t, "match", w, m)
			}
		}
	}
	if wanted == 0 {
		t.Fatal("the exact searches have found nothing")
	}
	return float64(found) / float64(wanted)
}

// query executes a query over all tenants.
func query(t *testing.T, d *db.DB, read func(db.Row) error, sql string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Query(read, sql, args...)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// checkVectorIndex checks how the status of the store says that vectors are compared.
func (f *vectorFixture) checkVectorIndex(t *testing.T, want string) {
	t.Helper()
	status, err := f.Documents.StoreStatus(t.Context(), "manual")
	if err != nil {
		t.Fatal(err)
	}
	checkDiff(t, "vector index in the status", want, status.VectorIndex)
}

// indexTables returns the tables of approximate indexes with their numbers of rows.
func indexTables(t *testing.T, d *db.DB) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	query(t, d, func(r db.Row) error {
		var name string
		err := r.Scan(&name)
		counts[name] = 0
		return err
	}, `SELECT CAST(relname AS TEXT) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'chunk\_hnsw\_%'`)
	for name := range counts {
		counts[name] = count(t, d, name)
	}
	return counts
}

// onlyIndex returns the name of the only table of an approximate index, and checks its number of rows.
func onlyIndex(t *testing.T, d *db.DB, rows int64) string {
	t.Helper()
	all := indexTables(t, d)
	if len(all) != 1 || slices.Collect(maps.Values(all))[0] != rows {
		t.Fatalf("the approximate indexes are %v, want one with %d rows", all, rows)
	}
	return slices.Collect(maps.Keys(all))[0]
}

// usesIndex reports whether a search of the scope uses the index: a chunk whose row was taken out of it by force is not found then.
func (f *vectorFixture) usesIndex(t *testing.T, table string, scope corpus.Scope) bool {
	t.Helper()
	q := f.anyVector()
	best := f.exact(t, scope, q, 1)[0]
	// Another transaction's rows in the index would be found again at the end.
	dbtest.ExecSQL(t, f.d.URL(), fmt.Sprintf(`CREATE TABLE kept AS SELECT * FROM %s WHERE document = '%s' AND ordinal = %d; DELETE FROM %[1]s WHERE document = '%[2]s' AND ordinal = %[3]d`,
		table, best.Document, best.Ordinal))
	defer dbtest.ExecSQL(t, f.d.URL(), fmt.Sprintf(`INSERT INTO %s SELECT * FROM kept; DROP TABLE kept`, table))
	return f.match(t, scope, q, 1)[0] != best
}

// TestVectorIndex: a store that grows above the size gets an index, by which searches find what exact ones find, whatever is
// deleted, replaced or added, and for readers with few rights.
func TestVectorIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", smallIndex/chunksPerDocument)
	if created, _ := f.indexVectors(t, 1); created || len(indexTables(t, d)) > 0 {
		t.Errorf("a store of %d chunks has an index", smallIndex)
	}
	f.checkVectorIndex(t, document.Exact)
	f.add(t, "b", 800)
	if created, obstacle := f.indexVectors(t, 1); !created || obstacle != "" {
		t.Errorf("created %v, obstacle %q", created, obstacle)
	}
	table := onlyIndex(t, d, smallIndex+800*chunksPerDocument)
	f.checkVectorIndex(t, document.HNSW)
	half := corpus.Scope{Store: "manual", Reader: everyone, Filter: map[string]string{"parity": "1"}}
	few := corpus.Scope{Store: "manual", Reader: everyone, Filter: map[string]string{"n": "7"}}
	for _, tt := range []struct {
		name  string
		scope corpus.Scope
		uses  bool
	}{
		{"all", manual, true}, {"a filter that keeps half", half, true}, {"a filter that keeps 1 %", few, false},
	} {
		if got := f.usesIndex(t, table, tt.scope); got != tt.uses {
			t.Errorf("%s: the search uses the index: %v", tt.name, got)
		}
		if recall := f.recall(t, tt.scope); recall < 0.95 {
			t.Errorf("%s: recall %.3f", tt.name, recall)
		}
	}

	q := f.anyVector()
	best := f.match(t, manual, q, 1)[0].Document
	if err := f.Documents.Delete(t.Context(), "manual", best, "", everyone); err != nil {
		t.Fatal(err)
	}
	onlyIndex(t, d, smallIndex+799*chunksPerDocument)
	if slices.ContainsFunc(f.match(t, manual, q, 50), func(m corpus.Match) bool { return m.Document == best }) {
		t.Error("a deleted document is found")
	}

	second := f.match(t, manual, q, 1)[0].Document
	f.put(t, second, "other text", func(u *corpus.Upload) { u.Access = document.Access{Subjects: []string{"ana"}} })
	f.commitPending(t)
	f.add(t, "c", 10)
	if recall := f.recall(t, manual); recall < 0.95 {
		t.Errorf("with documents that are not in the index: recall %.3f", recall)
	}
	if got := f.match(t, manual, f.last, 1); got[0].Document != f.lastID {
		t.Errorf("the document %s, which is not in the index, is not found: %v", f.lastID, got)
	}
	f.checkVectorIndex(t, document.HNSW)
	if created, _ := f.indexVectors(t, 1); created {
		t.Error("the index was created again")
	}
	onlyIndex(t, d, smallIndex+809*chunksPerDocument)
	other := corpus.Scope{Store: "manual", Reader: document.Reader{}}
	if slices.ContainsFunc(f.match(t, other, q, 50), func(m corpus.Match) bool { return m.Document == second }) {
		t.Error("a document is found by someone who may not read it")
	}
	if !f.usesIndex(t, table, other) {
		t.Error("the search of a reader with few rights does not use the index")
	}
	if got := f.match(t, manual, make([]float32, testDimensions), 5); got != nil {
		t.Errorf("a vector without a direction finds %v", got)
	}
}

// TestVectorIndexPlan: PostgreSQL reads the index in its order, checks each row that it returns, and looks up the vectors of the
// candidates by their keys, whether it has statistics of the tables or not.
func TestVectorIndexPlan(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 200)
	f.indexVectors(t, 1)
	for _, before := range []string{"SELECT", "ANALYZE"} {
		dbtest.ExecSQL(t, d.URL(), before)
		for _, scope := range []corpus.Scope{manual, {Store: "manual", Filter: map[string]string{"parity": "1"}}} {
			plan, err := corpus.ExplainIndexed(t.Context(), f.Search, scope, model, f.anyVector(), 20)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(plan, "_embedding_idx on chunk_hnsw_") || !strings.Contains(plan, "Index Scan using chunk_vector_pkey") || strings.Contains(plan, "Sort") || strings.Contains(plan, "Seq Scan") {
				t.Errorf("after %s the plan is\n%s", before, plan)
			}
		}
	}
}

// TestVectorIndexExtension: without the extension searches are exact and the indexing says what to do. It may be installed at
// any time, with connections open, and be removed again.
func TestVectorIndexExtension(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := dbtest.Open(t, dbtest.NewVectorPostgres(t).URL()+"&default_query_exec_mode="+mode)
			f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
			f.add(t, "a", 100)
			created, obstacle := f.indexVectors(t, 1)
			if created || !strings.Contains(obstacle, "CREATE EXTENSION vector") {
				t.Errorf("without the extension: created %v, obstacle %q", created, obstacle)
			}
			check := func(what string) {
				t.Helper()
				if recall := f.recall(t, manual); recall < 0.95 {
					t.Errorf("%s: recall %.3f", what, recall)
				}
			}
			check("without the extension")
			dbtest.ExecSQL(t, d.URL(), `CREATE EXTENSION vector; UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'`)
			if created, obstacle := f.indexVectors(t, 1); created || !strings.Contains(obstacle, "version 0.8") {
				t.Errorf("with an old extension: created %v, obstacle %q", created, obstacle)
			}
			dbtest.ExecSQL(t, d.URL(), `DROP EXTENSION vector`)

			dbtest.ExecSQL(t, d.URL(), `CREATE SCHEMA "my ext"; GRANT USAGE ON SCHEMA "my ext" TO PUBLIC; CREATE EXTENSION vector SCHEMA "my ext"`)
			check("before the first pass")
			if created, obstacle := f.indexVectors(t, 1); !created || obstacle != "" {
				t.Errorf("with the extension: created %v, obstacle %q", created, obstacle)
			}
			check("with the extension")
			if !f.usesIndex(t, onlyIndex(t, d, 500), manual) {
				t.Error("the search does not use the index")
			}

			dbtest.ExecSQL(t, d.URL(), `DROP EXTENSION vector CASCADE`)
			check("after the extension was removed")
			if err := f.Documents.Delete(t.Context(), "manual", "a0001", "", everyone); err != nil {
				t.Fatal(err)
			}
			if _, obstacle := f.indexVectors(t, 1); obstacle == "" {
				t.Error("there is no obstacle after the extension was removed")
			}
			dbtest.InstallVector(t, d)
			if created, obstacle := f.indexVectors(t, 1); !created || obstacle != "" {
				t.Errorf("with the extension again: created %v, obstacle %q", created, obstacle)
			}
			check("with the extension again")
			if !f.usesIndex(t, onlyIndex(t, d, 495), manual) {
				t.Error("the search does not use the index that was made again")
			}
		})
	}
}

// TestVectorIndexInterrupted: while an index is not complete, because the process that filled it was killed, searches find
// everything, and the next pass goes on.
func TestVectorIndexInterrupted(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 100)
	pass := f.claim(t)
	for _, want := range []int64{0, 7, 14} { // a document has five chunks
		if got, err := f.Vectors.Update(t.Context(), pass, 1, 7); err != nil || !got.More {
			t.Fatal(got, err)
		}
		table := onlyIndex(t, d, want)
		f.checkVectorIndex(t, document.Exact)
		if f.usesIndex(t, table, manual) {
			t.Errorf("with %d of 500 vectors the search uses the index", want)
		}
		if recall := f.recall(t, manual); recall < 1 {
			t.Errorf("with %d of 500 vectors in the index: recall %.3f", want, recall)
		}
	}
	if err := f.passes.ExpireLeases(t.Context()); err != nil { // the process is gone
		t.Fatal(err)
	}
	if created, _ := f.indexVectors(t, 1); created {
		t.Error("the index was created again")
	}
	if !f.usesIndex(t, onlyIndex(t, d, 500), manual) {
		t.Error("the search does not use the index")
	}
	if _, err := f.Vectors.Update(t.Context(), pass, 1, 7); !errors.Is(err, corpus.ErrPassLost) {
		t.Errorf("a pass that has lost its lease goes on: %v", err)
	}
}

// TestVectorIndexGenerations: each generation has its own index, which goes with it, with its store and with its app.
func TestVectorIndexGenerations(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 60)
	f.indexVectors(t, 1)
	first := onlyIndex(t, d, 300)
	f.ensureStore(t, "upload", "r2")
	f.commitPending(t)
	f.indexVectors(t, 2)
	if err := f.Vectors.Drop(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if n := len(indexTables(t, d)); n != 2 {
		t.Fatalf("%d indexes while a generation is built, want 2", n)
	}
	pass := f.claim(t)
	if switched, err := f.Index.SwitchGeneration(t.Context(), pass, 0); err != nil || !switched {
		t.Fatal(switched, err)
	}
	f.release(t, pass, corpus.Release{After: time.Hour})
	if err := f.Vectors.Drop(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	second := onlyIndex(t, d, 300)
	if second == first || count(t, d, "vector_index") != 1 {
		t.Errorf("the index %s of the earlier generation is left", first)
	}
	if !f.usesIndex(t, second, manual) {
		t.Error("the search does not use the index of the new generation")
	}

	other := newVectorFixture(t, d, "other", corpus.Limits{ExactChunks: smallIndex})
	other.add(t, "a", 60)
	other.indexVectors(t, 1)
	if _, err := f.Index.DropStore(t.Context(), "manual", 10); err != nil {
		t.Fatal(err)
	}
	third := onlyIndex(t, d, 300)
	if third == second {
		t.Errorf("the index %s of the store is left", second)
	}
	if err := other.Vectors.Drop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if left := indexTables(t, d); len(left) > 0 || count(t, d, "vector_index") > 0 {
		t.Errorf("the app has left the indexes %v", left)
	}
}

// TestVectorIndexIsolation: row-level security is in force on the tables of indexes, another tenant sees nothing of one, and
// no tenant can execute the functions that change tables. They accept nothing but ids.
func TestVectorIndexIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 60)
	f.indexVectors(t, 1)
	table := onlyIndex(t, d, 300)
	forced := false
	query(t, d, func(r db.Row) error { return r.Scan(&forced) }, `SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE relname = $1`, table)
	if !forced {
		t.Error("row-level security is not forced on the table of an index")
	}
	for _, of := range []string{table, "vector_index"} {
		for tenant, want := range map[db.ID]bool{"acme": true, "other": false, "": false} {
			var b db.Batch
			seen := false
			b.Query(func(r db.Row) error { return r.Scan(&seen) }, `SELECT EXISTS (SELECT 1 FROM `+of+`)`)
			if err := d.Tenant(tenant).Do(t.Context(), &b); err != nil || seen != want {
				t.Errorf("tenant %q sees rows of %s: %v %v", tenant, of, seen, err)
			}
		}
	}
	other := newVectorFixture(t, d, "other", corpus.Limits{ExactChunks: smallIndex})
	if got := other.match(t, manual, f.anyVector(), 5); len(got) > 0 {
		t.Errorf("another tenant finds %v", got)
	}
	const id = "0123456789abcdef0123456789abcdef"
	call := func(h *db.Handle, sql string, args ...any) error {
		var b db.Batch
		b.Exec(nil, sql, args...)
		return h.Do(t.Context(), &b)
	}
	const create, drop = `SELECT stoa_create_vector_index($1, $2)`, `SELECT stoa_drop_vector_index($1)`
	for _, err := range []error{call(d.Tenant("acme"), create, id, int64(3)), call(d.Tenant("acme"), drop, strings.TrimPrefix(table, "chunk_hnsw_"))} {
		if err == nil || !strings.Contains(err.Error(), "permission denied for function") {
			t.Errorf("a tenant executes a function: %v", err)
		}
	}
	for _, bad := range []string{"", "x", id + "0", strings.ToUpper(id), `"; DROP TABLE app; --`} {
		for _, err := range []error{call(d.Platform(), create, bad, int64(3)), call(d.Platform(), drop, bad)} {
			if err == nil || !strings.Contains(err.Error(), "32 hexadecimal digits") {
				t.Errorf("the id %q: %v", bad, err)
			}
		}
	}
	for _, dimensions := range []any{int64(0), int64(-1), int64(4001), nil} {
		if err := call(d.Platform(), create, id, dimensions); err == nil || !strings.Contains(err.Error(), "dimensions 1 to 4000") {
			t.Errorf("%v dimensions: %v", dimensions, err)
		}
	}
}

// TestVectorIndexFormerVersion: documents that the former version of the program replaces or deletes, which knows no index, are
// found as they are, and the next pass repairs the index.
func TestVectorIndexFormerVersion(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 100)
	f.indexVectors(t, 1)
	table := onlyIndex(t, d, 500)
	// What it executes for a replacement, in short: other revisions, and nothing about the index.
	dbtest.ExecSQL(t, d.URL(), `UPDATE document_live SET revision = 77 WHERE document < 'a0010';
		UPDATE chunk SET revision = 77 WHERE document < 'a0010'; UPDATE chunk_vector SET revision = 77 WHERE document < 'a0010';
		DELETE FROM document WHERE id > 'a0094'; DELETE FROM document_live WHERE document > 'a0094';
		DELETE FROM chunk WHERE document > 'a0094'; DELETE FROM chunk_vector WHERE document > 'a0094'`)
	onlyIndex(t, d, 500)
	check := func() {
		t.Helper()
		if recall := f.recall(t, manual); recall < 0.95 {
			t.Errorf("recall %.3f", recall)
		}
		for _, m := range f.match(t, manual, f.anyVector(), 475) {
			if m.Document > "a0094" {
				t.Errorf("the deleted document %s is found", m.Document)
			}
		}
	}
	check()
	f.indexVectors(t, 1)
	onlyIndex(t, d, 475)
	check()
	if !f.usesIndex(t, table, manual) {
		t.Error("the search does not use the index")
	}
}

// TestVectorIndexLeastPrivilege: indexes are made by a login that owns nothing and may create nothing.
func TestVectorIndexLeastPrivilege(t *testing.T) {
	t.Parallel()
	dbtest.NewVectorPostgres(t) // or skip the test
	address := dbtest.NewEmptyPostgresURL(t)
	suffix := strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	roles := migrations.Roles{Owner: "owner_" + suffix, Login: "login_" + suffix, Backup: "backup_" + suffix}
	statements, err := roles.SQL()
	if err != nil {
		t.Fatal(err)
	}
	dbtest.ExecSQL(t, address, statements+`; CREATE EXTENSION vector`)
	t.Cleanup(func() {
		for _, r := range []string{roles.Owner, roles.Login, roles.Backup} {
			dbtest.ExecSQL(t, address, fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %[1]s`, r))
		}
	})
	as := func(login string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(login)
		return u.String()
	}
	owner, err := db.Open(t.Context(), as(roles.Owner), db.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	err = owner.ChangeSchema(t.Context(), "", func(s *sql.DB) error { return migrations.Up(context.WithoutCancel(t.Context()), "postgres", s) })
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), as(roles.Login), db.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 60)
	if created, obstacle := f.indexVectors(t, 1); !created || obstacle != "" {
		t.Errorf("created %v, obstacle %q", created, obstacle)
	}
	if recall := f.recall(t, manual); recall < 0.95 {
		t.Errorf("recall %.3f", recall)
	}
	var tableOwner string
	query(t, d, func(r db.Row) error { return r.Scan(&tableOwner) }, `SELECT tableowner::text FROM pg_tables WHERE tablename = $1`, onlyIndex(t, d, 300))
	checkDiff(t, "owner", roles.Owner, tableOwner)
	if err := f.Vectors.Drop(t.Context(), true); err != nil || len(indexTables(t, d)) > 0 {
		t.Error("the index is not dropped", err)
	}
}

// TestUnknownVectorIndexes: tables of approximate indexes that no row names are dropped, and no others.
func TestUnknownVectorIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	f := newVectorFixture(t, d, "acme", corpus.Limits{ExactChunks: smallIndex})
	f.add(t, "a", 60)
	f.indexVectors(t, 1)
	known := onlyIndex(t, d, 300)
	const unknown = "0123456789abcdef0123456789abcdef"
	execSQL(t, d, `SELECT stoa_create_vector_index($1, 3)`, unknown)
	dbtest.ExecSQL(t, d.URL(), `CREATE SCHEMA another; CREATE TABLE another.chunk_hnsw_`+unknown+` (n BIGINT); CREATE TABLE chunk_hnsw_notes (n BIGINT)`)
	for _, want := range []int{1, 0} {
		if n, err := f.passes.DropUnknownIndexes(t.Context()); err != nil || n != want {
			t.Errorf("%d tables are dropped, %v, want %d", n, err, want)
		}
	}
	left := []string{}
	query(t, d, func(r db.Row) error {
		var name string
		err := r.Scan(&name)
		left = append(left, name)
		return err
	}, `SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND c.relname LIKE 'chunk\_hnsw\_%' ORDER BY 1`)
	want := []string{"another.chunk_hnsw_" + unknown, "public." + known, "public.chunk_hnsw_notes"}
	slices.Sort(want)
	slices.Sort(left)
	checkDiff(t, "tables that are left", want, left)
	if !f.usesIndex(t, known, manual) {
		t.Error("the search does not use the index that is known")
	}
}
