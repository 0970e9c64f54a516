package indexing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/chromem"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	acme   db.ID = "acme"
	globex db.ID = "globex"
	manual       = "manual"
)

// everyone reads every document.
var everyone = document.Reader{All: true}

// fixture is indexers on one database, with the apps that they index.
type fixture struct {
	*testing.T
	d       *db.DB
	vectors *recordedVectors
	bus     *signal.Bus
	// vectorMemory is the pool of the vectors of documents, nil = no bound.
	vectorMemory *capacity.Pool
	limits       corpus.Limits

	mu       sync.Mutex
	stores   map[db.ID]map[string]*indexing.Store
	inactive map[db.ID]error
	outcomes map[string]int // of documents, by app and outcome
	order    []string       // the documents that were indexed, as app and outcome
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	f := &fixture{T: t, d: d, vectors: newRecordedVectors(), bus: signal.New(nil, slog.New(slog.DiscardHandler)), stores: map[db.ID]map[string]*indexing.Store{}, inactive: map[db.ID]error{}, outcomes: map[string]int{}}
	for _, id := range []db.ID{acme, globex} {
		f.setStatus(id, tenancy.Active)
	}
	return f
}

// setStatus sets the status of an app in the database and for indexers.
func (f *fixture) setStatus(app db.ID, status tenancy.Status) {
	f.Helper()
	f.execSQL(`INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, data_key, master_key, grants, plan, labels, created_at, updated_at)
		VALUES ($1, $1, '', $2, 1, 1, 1, $3, '', '[]', '', '{}', 0, 0) ON CONFLICT (tenant) DO UPDATE SET status = excluded.status`, string(app), string(status), []byte{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inactive[app] = nil; status != tenancy.Active {
		f.inactive[app] = tenancy.ErrSuspended
	}
}

func (f *fixture) execSQL(sql string, args ...any) {
	f.Helper()
	var b db.Batch
	b.Exec(nil, sql, args...)
	if err := f.d.Platform().Do(context.Background(), &b); err != nil {
		f.Fatal(err)
	}
}

// count returns the number that a query selects.
func (f *fixture) count(sql string, args ...any) (n int) {
	f.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, sql, args...)
	if err := f.d.Platform().Do(context.Background(), &b); err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *fixture) rows(app db.ID) *corpus.Store { return corpus.New(f.d, app, f.limits) }

// newStore returns a store for uploads that is searched by words.
func newStore(revision int64) *indexing.Store {
	return &indexing.Store{
		Spec:    corpus.StoreSpec{Name: manual, Source: "upload", Recipe: "a", Revision: revision},
		Version: fmt.Sprint(revision), Read: readText, Cut: cutParagraphs,
		Retry: indexing.Retry{MaxRetries: 3, BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond},
	}
}

// readText is the reader of the tests' documents, which are texts.
func readText(_ context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
	text, err := io.ReadAll(body)
	switch {
	case err != nil:
		return document.Content{}, err
	case strings.Contains(string(text), "unreadable"):
		return document.Content{}, agentsvc.NewError(agentsvc.CodeInvalid, "the file is encrypted")
	}
	return document.Content{Title: name, MediaType: mediaType, Sections: []document.Section{{Text: string(text)}}}, nil
}

// cutParagraphs makes a chunk of each paragraph.
func cutParagraphs(_ context.Context, c document.Content) (chunks []document.Chunk, err error) {
	for i, text := range strings.Split(c.Sections[0].Text, "\n\n") {
		chunks = append(chunks, document.Chunk{Ordinal: i, End: len(text), Text: text})
	}
	return chunks, nil
}

// setStore makes s the only store of an app's configuration, nil for none, and adapts the rows, as the server does.
func (f *fixture) setStore(app db.ID, s *indexing.Store) {
	f.Helper()
	stores := map[string]*indexing.Store{}
	var specs []corpus.StoreSpec
	if s != nil {
		stores[s.Spec.Name] = s
		specs = append(specs, s.Spec)
	}
	f.mu.Lock()
	f.stores[app] = stores
	f.mu.Unlock()
	if err := indexing.ApplyConfiguration(context.Background(), f.rows(app), specs); err != nil && !errors.Is(err, indexing.ErrBeingDeleted) {
		f.Fatal(err)
	}
	f.bus.Publish(tenancy.TopicApp, string(app))
}

func (f *fixture) openApp(_ context.Context, app db.ID) (*indexing.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.inactive[app]; err != nil {
		return nil, err
	}
	var memory *capacity.MemoryReservation
	if f.vectorMemory != nil {
		memory = f.vectorMemory.NewReservation(app, 1)
	}
	return &indexing.App{
		Name: string(app), Stores: f.stores[app], Rows: f.rows(app), VectorMemory: memory, Release: func() {},
		OpenVectorStore: func(name string) (vectorstore.Store, func() error, bool) {
			return f.vectors, func() error { return nil }, name == "index"
		},
	}, nil
}

// startIndexer starts an indexer, which ends with the test or when stop is called.
func (f *fixture) startIndexer(change ...func(*indexing.Options)) (stop func()) {
	f.Helper()
	o := indexing.Options{
		DB: f.d, OpenApp: f.openApp, Bus: f.bus,
		LoadConfigured: func(_ context.Context, app db.ID) (indexing.Configured, error) {
			return indexing.Configured{Generation: 1, IsKept: true}, nil // setStore applies the configuration itself
		},
		CheckActive: func(_ context.Context, app db.ID) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.inactive[app]
		},
		Hooks: indexing.Hooks{OnDocument: func(app string, o indexing.Outcome, _ int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.outcomes[app+" "+string(o)]++
			f.order = append(f.order, app+" "+string(o))
		}},
		Log: slog.New(slog.DiscardHandler), PollInterval: 5 * time.Millisecond, Lease: time.Minute, Pauses: indexing.Pauses{Failed: 10 * time.Millisecond},
	}
	for _, c := range change {
		c(&o)
	}
	x := indexing.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- x.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-over
	})
	f.Cleanup(stop)
	return stop
}

// put uploads a document.
func (f *fixture) put(app db.ID, id, text string) {
	f.Helper()
	if _, _, err := f.rows(app).Documents.Put(context.Background(), manual, corpus.Upload{ID: id, MediaType: "text/plain", Body: []byte(text)}); err != nil {
		f.Fatal(err)
	}
}

// get returns a document, or the zero value if there is none.
func (f *fixture) get(app db.ID, id string) document.Document {
	f.Helper()
	d, err := f.rows(app).Documents.Get(context.Background(), manual, id, everyone)
	if err != nil && !errors.Is(err, agentsvc.CodeNotFound) {
		f.Fatal(err)
	}
	return d
}

func (f *fixture) status(app db.ID) document.StoreStatus {
	f.Helper()
	s, err := f.rows(app).Documents.StoreStatus(context.Background(), manual)
	if err != nil && !errors.Is(err, agentsvc.CodeNotFound) {
		f.Fatal(err)
	}
	return s
}

// search returns the ids of the documents that contain a word.
func (f *fixture) search(app db.ID, word string) []string {
	f.Helper()
	found, _, err := f.rows(app).Search.MatchText(context.Background(), corpus.Scope{Store: manual, Reader: everyone}, []string{word}, 1000)
	if err != nil {
		f.Fatal(err)
	}
	ids := map[string]struct{}{}
	for _, m := range found {
		ids[m.Document] = struct{}{}
	}
	return slices.Sorted(maps.Keys(ids))
}

// waitFor waits until condition holds.
func (f *fixture) waitFor(what string, condition func() bool) {
	f.Helper()
	for end := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(end) {
			f.Fatalf("it does not come to be that %s; status %+v, outcomes %v", what, f.status(acme), f.outcomes)
		}
		pause := time.NewTimer(2 * time.Millisecond)
		<-pause.C
	}
}

// waitIndexed waits until n documents of an app are indexed and none waits.
func (f *fixture) waitIndexed(app db.ID, n int) {
	f.Helper()
	f.waitFor(fmt.Sprint(n, " documents are indexed"), func() bool {
		s := f.status(app)
		return s.Pending == 0 && s.Documents-s.Failed == int64(n)
	})
}

func (f *fixture) outcome(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outcomes[name]
}

// requestPass makes the pass of the store of an app due.
func (f *fixture) requestPass(app db.ID) {
	f.Helper()
	if err := f.rows(app).Index.RequestPass(context.Background(), manual); err != nil {
		f.Fatal(err)
	}
	f.bus.Publish(indexing.TopicPass, string(app))
}

func (f *fixture) requestListing(app db.ID) {
	f.Helper()
	if err := f.rows(app).Documents.RequestListing(context.Background(), manual); err != nil {
		f.Fatal(err)
	}
}

// checkChunks checks that each indexed document of an app has each chunk of its live revision once, that there is no other
// chunk or vector in the database, and that the external index has exactly the vectors of the chunks.
func (f *fixture) checkChunks(app db.ID) {
	f.Helper()
	if n := f.count(`SELECT COUNT(*) FROM chunk c WHERE c.tenant = $1 AND NOT EXISTS (SELECT 1 FROM document_live l WHERE l.tenant = c.tenant AND l.store = c.store
			AND l.document = c.document AND l.generation = c.generation AND l.revision = c.revision)`, string(app)); n > 0 {
		f.Errorf("%d chunks belong to no searchable document", n)
	}
	if n := f.count(`SELECT COUNT(*) FROM document_live l WHERE l.tenant = $1 AND l.chunks <> (SELECT COUNT(DISTINCT c.ordinal) FROM chunk c
			WHERE c.tenant = l.tenant AND c.store = l.store AND c.document = l.document AND c.generation = l.generation AND c.revision = l.revision)`, string(app)); n > 0 {
		f.Errorf("%d documents do not have each chunk once", n)
	}
	if n := f.count(`SELECT COUNT(*) FROM chunk_vector v WHERE v.tenant = $1 AND NOT EXISTS (SELECT 1 FROM chunk c WHERE c.tenant = v.tenant AND c.id = v.id)`, string(app)); n > 0 {
		f.Errorf("%d vectors belong to no chunk", n)
	}
	if n := f.count(`SELECT COUNT(*) FROM document d WHERE d.tenant = $1 AND d.state = 'indexed' AND NOT EXISTS (SELECT 1 FROM document_live l
			WHERE l.tenant = d.tenant AND l.store = d.store AND l.document = d.id AND l.revision = d.revision)`, string(app)); n > 0 {
		f.Errorf("%d indexed documents are not searchable", n)
	}
	if ids := f.vectors.list(); len(ids) > 0 || f.count(`SELECT COUNT(*) FROM document_live WHERE tenant = $1 AND collection <> ''`, string(app)) > 0 {
		var chunks []string
		var b db.Batch
		b.Query(func(r db.Row) error {
			var id string
			err := r.Scan(&id)
			chunks = append(chunks, id)
			return err
		}, `SELECT id FROM chunk WHERE tenant = $1`, string(app))
		if err := f.d.Platform().Do(context.Background(), &b); err != nil {
			f.Fatal(err)
		}
		slices.Sort(chunks)
		if !slices.Equal(ids, chunks) {
			f.Errorf("the vector store has %d vectors for %d chunks, or others", len(ids), len(chunks))
		}
	}
}

// makeRemovalsDue makes the removal of noted vectors due.
func (f *fixture) makeRemovalsDue(app db.ID) {
	f.execSQL(`UPDATE removed_chunk SET available_at = 0 WHERE tenant = $1`, string(app))
	f.requestPass(app)
	f.waitFor("no removal is left", func() bool { return f.count(`SELECT COUNT(*) FROM removed_chunk WHERE tenant = $1`, string(app)) == 0 })
}

// recordedVectors is an index in memory that knows its ids, and fails when its hook does.
type recordedVectors struct {
	vectorstore.Store
	mu   sync.Mutex
	ids  map[string]string // collection by id
	hook func(call string) error
	// after is called after each upsert.
	after func()
}

func newRecordedVectors() *recordedVectors {
	return &recordedVectors{Store: chromem.New(chromem.Options{}), ids: map[string]string{}, hook: func(string) error { return nil }, after: func() {}}
}

func (v *recordedVectors) setAfter(after func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.after = after
}

// setHook sets what is called before each change; an error of it is that of the change.
func (v *recordedVectors) setHook(hook func(call string) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hook = hook
}

func (v *recordedVectors) callHook(call string) error {
	v.mu.Lock()
	hook := v.hook
	v.mu.Unlock()
	return hook(call)
}

func (v *recordedVectors) list() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.ids))
}

func (v *recordedVectors) UpsertDocuments(ctx context.Context, collection string, docs []vectorstore.Document) error {
	if err := v.callHook("upsert"); err != nil {
		return err
	}
	v.mu.Lock()
	for _, d := range docs {
		v.ids[d.ID] = collection
	}
	after := v.after
	err := v.Store.UpsertDocuments(ctx, collection, docs)
	v.mu.Unlock()
	after()
	return err
}

func (v *recordedVectors) DeleteDocuments(ctx context.Context, collection string, ids []string) error {
	if err := v.callHook("delete"); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		delete(v.ids, id)
	}
	return v.Store.DeleteDocuments(ctx, collection, ids)
}

func (v *recordedVectors) DropCollection(ctx context.Context, collection string) error {
	if err := v.callHook("drop"); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.ids, func(_, in string) bool { return in == collection })
	return v.Store.DropCollection(ctx, collection)
}

// scriptedEmbedder makes vectors of the lengths of texts, and counts them.
type scriptedEmbedder struct {
	model string

	mu    sync.Mutex
	texts []string
	hook  func(texts []string) ([][]float32, error) // nil, nil = the usual vectors
}

func (e *scriptedEmbedder) Model() string { return e.model }

func (e *scriptedEmbedder) setHook(hook func(texts []string) ([][]float32, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hook = hook
}

// count returns how many texts were embedded.
func (e *scriptedEmbedder) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.texts)
}

// Embed implements [embedder.Embedder].
func (e *scriptedEmbedder) Embed(ctx context.Context, _ agentsvc.Payer, _ embedder.Purpose, texts []string) ([][]float32, error) {
	e.mu.Lock()
	hook := e.hook
	e.mu.Unlock()
	if hook != nil {
		if vectors, err := hook(texts); vectors != nil || err != nil {
			return vectors, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		e.texts = append(e.texts, text)
		vectors[i] = []float32{float32(len(text)), 1, float32(text[len(text)-1])}
	}
	return vectors, nil
}

// withVectors returns s with an embedder, and with the fixture's external index if external is set.
func (f *fixture) withVectors(s *indexing.Store, e embedder.Embedder, external bool) *indexing.Store {
	s.Embedder, s.Spec.Embedder = e, e.Model()
	s.Spec.Recipe += " " + e.Model()
	if external {
		s.VectorStore, s.Vectors = "index", f.vectors
		s.Collection = func(generation int64) string { return fmt.Sprint("acme/manual/", generation, "/", e.Model()) }
	}
	return s
}

// listedSource has documents in memory.
type listedSource struct {
	mu      sync.Mutex
	texts   map[string]string
	fail    error // ends a listing in its middle
	lists   int
	changed chan struct{}
}

func newListedSource(texts map[string]string) *listedSource {
	return &listedSource{texts: texts, changed: make(chan struct{}, 1)}
}

// set changes the documents.
func (s *listedSource) set(change func(texts map[string]string)) {
	s.mu.Lock()
	change(s.texts)
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *listedSource) setFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *listedSource) countLists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// List implements [source.Source].
func (s *listedSource) List(context.Context) iter.Seq2[source.Item, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	texts, fail := maps.Clone(s.texts), s.fail
	return func(yield func(source.Item, error) bool) {
		for i, id := range slices.Sorted(maps.Keys(texts)) {
			if fail != nil && i == len(texts)/2 {
				yield(source.Item{}, fail)
				return
			}
			text := texts[id]
			if !yield(source.Item{ID: id, Version: source.Version(text), Bytes: int64(len(text)), Open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(text)), nil
			}}, nil) {
				return
			}
		}
	}
}

// Wait implements [source.Source].
func (s *listedSource) Wait(ctx context.Context) error {
	select {
	case <-s.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withSource returns s with a source.
func withSource(s *indexing.Store, from source.Source) *indexing.Store {
	s.Source, s.Spec.Source = from, "directory"
	return s
}
