package runtime_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/sandbox"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/billing/calendar"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// embedderBudgetSource is an app whose embedder makes the vectors of documents and of memories.
const embedderBudgetSource = `
llms: {demo: {provider: scripted, script: [{then: [{say: "You said: {{text}}"}]}]}}
embedders: {local: {provider: hashing}}
storage: {memory: {backend: vector, embedder: local}}
document_stores:
  manual: {source: {type: upload}, embedder: local, indexing: {retry: {base_delay: 10ms, max_delay: 20ms}}}
agents: {helper: {llm: demo, document_stores: [manual]}}
`

// lockedBuffer is a log of several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// newDocumentReader returns a reader whose helpers are this test's binary.
func newDocumentReader(t *testing.T) *extract.Reader {
	t.Helper()
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := extract.NewReader(helper, sandbox.NewHost(helper, sandbox.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// startIndexerOf starts an indexer of the only app of a database, which ends with the test.
func startIndexerOf(t *testing.T, d *db.DB, a *runtime.Runtime) {
	t.Helper()
	if err := indexing.ApplyConfiguration(t.Context(), a.Documents().Rows, a.DocumentSpecs()); err != nil {
		t.Fatal(err)
	}
	x := indexing.New(indexing.Options{
		DB: d, OpenApp: func(context.Context, db.ID) (*indexing.App, error) { return a.NewIndexingApp("acme", func() {}), nil },
		LoadConfigured: func(context.Context, db.ID) (indexing.Configured, error) {
			return indexing.Configured{Generation: 1, IsKept: true}, nil
		},
		CheckActive: func(context.Context, db.ID) error { return nil },
		Log:         slog.New(slog.DiscardHandler), PollInterval: 5 * time.Millisecond, Pauses: indexing.Pauses{Failed: 10 * time.Millisecond},
	})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-over
	})
}

// TestEmbedderBudget checks that an exhausted budget stops an embedder before its request: of documents, of searches and
// of memories; and that what an embedder gets counts in the budget.
func TestEmbedderBudget(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		books, err := billing.Open(t.Context(), d, signal.New(nil, nil), billing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		admin := audit.Actor{Name: "admin"}
		vectors := budget.Budget{Name: "vectors", Scope: budget.Scope{Model: "hashing/*"}, Unit: budget.InTokens, Amount: 1, Window: calendar.Total, Hard: true}
		if _, err := books.Budgets.AddBudget(t.Context(), admin, tenancy.App{}, vectors); err != nil {
			t.Fatal(err)
		}
		log := &lockedBuffer{}
		cfg := mustParse(t, embedderBudgetSource, config.Options{})
		a := newAppWith(t, d, cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.NewTextHandler(log, nil)), func(h *runtime.Dependencies) {
			h.Billing, h.DocumentReader = books, newDocumentReader(t)
		})
		startIndexerOf(t, d, a)
		rows := a.Documents().Rows
		text := "The warranty lasts two years from the day of purchase."
		if _, _, err := rows.Documents.Put(t.Context(), "manual", corpus.Upload{ID: "warranty.txt", MediaType: "text/plain", Body: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		status := func() document.StoreStatus {
			s, err := rows.Documents.StoreStatus(t.Context(), "manual")
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		dbtest.WaitUntil(t, "the budget is used up", func() bool { return strings.Contains(status().Error, "budget vectors (platform) is used up") })
		if s := status(); s.Pending != 1 || s.Failed != 0 || s.EmbeddedTokens != 0 {
			t.Errorf("%+v", s)
		}
		counted := func() (calls, tokens int64) {
			var b db.Batch
			b.Query(func(r db.Row) error { return r.Scan(&calls, &tokens) }, `SELECT COUNT(*), COALESCE(SUM(embedding_tokens), 0) FROM usage WHERE kind = 'embedding'`)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			return calls, tokens
		}
		// Memories: the turn goes on without them.
		runSessionTurn(t, a, ana, "first", "My dog is called Rex")
		waitUntilRemembered(t, a, "Rex")
		runSessionTurn(t, a, ana, "second", "What is my dog called?")
		if !strings.Contains(log.String(), "an agent continues without its memory") || !strings.Contains(log.String(), "budget vectors (platform) is used up") {
			t.Errorf("the log is %s", log)
		}
		if calls, _ := counted(); calls != 0 {
			t.Errorf("%d calls of the embedder", calls)
		}
		if _, err := books.Budgets.UpdateBudget(t.Context(), admin, tenancy.App{}, "vectors", func(b budget.Budget) (budget.Budget, error) {
			b.Amount = 1000
			return b, nil
		}); err != nil {
			t.Fatal(err)
		}
		dbtest.WaitUntil(t, "the document is indexed, and the pass has ended", func() bool { return status().Pending == 0 && status().Error == "" }) // the pass ends after the document
		if s := status(); s.Chunks != 1 || s.Failed != 0 || s.Error != "" {
			t.Errorf("%+v", s)
		}
		runSessionTurn(t, a, ana, "third", "What is my dog called?")
		calls, tokens := counted()
		list, err := books.Budgets.ListBudgets(t.Context(), "")
		if err != nil || len(list) != 1 || calls < 3 || tokens < 10 || list[0].Committed != tokens || list[0].Reserved != 0 {
			t.Errorf("%d calls with %d tokens, %+v, %v", calls, tokens, list, err)
		}
		// The balance is the sum of the rows.
		if wrong, err := books.Budgets.RebuildBalances(t.Context()); err != nil || len(wrong) != 0 {
			t.Errorf("%+v, %v", wrong, err)
		}
		// A search finds by words what it may not compute vectors for.
		s, err := a.Documents().Store("manual")
		if err != nil {
			t.Fatal(err)
		}
		search := func() document.Result {
			found, err := s.Searcher.Search(t.Context(), agentsvc.Payer{Owner: ana}, document.Query{Text: "warranty", Reader: document.Reader{Owner: ana}})
			if err != nil || len(found.Passages) != 1 {
				t.Errorf("%+v, %v", found, err)
			}
			return found
		}
		if found := search(); found.Mode != document.Hybrid || found.Degraded != "" {
			t.Errorf("%+v", found)
		}
		if _, err := books.Budgets.UpdateBudget(t.Context(), admin, tenancy.App{}, "vectors", func(b budget.Budget) (budget.Budget, error) {
			b.Amount = 1
			return b, nil
		}); err != nil {
			t.Fatal(err)
		}
		if found := search(); found.Mode != document.Text || found.Degraded != "a budget does not cover the embedder: the documents were searched by words only" {
			t.Errorf("%+v", found)
		}
	})
}
