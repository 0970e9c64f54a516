package retrieval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/chromem"
	"stoa/tenancy/db/dbtest"
)

// handbook are documents about different things.
func handbook() []testDocument {
	return []testDocument{
		{ID: "warranty.md", Title: "Warranty", Chunks: []string{"The warranty lasts two years from the day of purchase.", "Batteries are excluded from the warranty after six months."}, Metadata: map[string]string{"lang": "en"}},
		{ID: "shipping.md", Title: "Shipping", Chunks: []string{"Parcels are shipped within three days.", "Shipping to islands takes a week longer."}},
		{ID: "returns.md", Title: "Returns", Chunks: []string{"Goods can be returned within thirty days of purchase."}, Metadata: map[string]string{"lang": "en"}},
		{ID: "salaries.md", Title: "Salaries", Chunks: []string{"The salary of the board is a secret of ana."}, Access: document.Access{Subjects: []string{"ana"}}},
		{ID: "board.md", Title: "Board", Chunks: []string{"Minutes of the board: the salary was raised."}, Access: document.Access{Roles: []string{"director"}}},
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s := newTestStore(t, d, newHashing(), nil, handbook()...)
	for _, c := range []struct {
		name string
		q    document.Query
		want []string
		mode document.Mode
		note string
	}{
		{"hybrid is the default", document.Query{Text: "How long is the warranty?", Limit: 1}, []string{"warranty.md"}, document.Hybrid, ""},
		{"adjacent chunks are one passage", document.Query{Text: "warranty", Mode: document.Text}, []string{"warranty.md"}, document.Text, ""},
		{"vector", document.Query{Text: "shipped parcels", Mode: document.Vector, Limit: 1}, []string{"shipping.md"}, document.Vector, ""},
		{"filter", document.Query{Text: "purchase", Mode: document.Text, Filter: map[string]string{"lang": "en"}}, []string{"returns.md", "warranty.md"}, document.Text, ""},
		{"filter that no document has", document.Query{Text: "purchase", Filter: map[string]string{"lang": `e' OR '1'='1`}}, []string{}, document.Hybrid, ""},
		{"no word is known", document.Query{Text: "zebra", Mode: document.Text}, []string{}, document.Text, ""},
		{"empty", document.Query{Text: " \n"}, []string{}, document.Hybrid, "the query has no words to search for"},
		{"common words only", document.Query{Text: "what is it that you are"}, []string{}, document.Hybrid, "the query has no words to search for"},
		{"subject", document.Query{Text: "salary of the board", Mode: document.Text, Reader: document.Reader{Owner: ana}}, []string{"salaries.md"}, document.Text, ""},
		{"another subject", document.Query{Text: "salary of the board", Mode: document.Text, Reader: document.Reader{Owner: bob}}, []string{}, document.Text, ""},
		{"role", document.Query{Text: "salary of the board", Mode: document.Text, Reader: document.Reader{Owner: bob, Roles: []string{"director"}}}, []string{"board.md"}, document.Text, ""},
	} {
		found := search(t, s.options(), c.q)
		got := documentsOf(found.Passages)
		if diff := cmp.Diff(c.want, got); diff != "" || found.Mode != c.mode || found.Degraded != c.note {
			t.Errorf("%s: %s, mode %s, note %q", c.name, diff, found.Mode, found.Degraded)
		}
	}
	all := search(t, s.options(), document.Query{Text: "warranty of batteries", Mode: document.Text})
	if want := "The warranty lasts two years from the day of purchase.\nBatteries are excluded from the warranty after six months."; all.Passages[0].Text != want {
		t.Errorf("the joined passage is %q", all.Passages[0].Text)
	}
}

func TestInvalidQueries(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, dbtest.NewSQLite(t), nil, nil, handbook()...)
	searcher := retrieval.NewSearcher(s.options())
	tooMany := map[string]string{}
	for i := range 100 {
		tooMany[strings.Repeat("k", i+1)] = "v"
	}
	for field, q := range map[string]document.Query{
		"query":  {Text: strings.Repeat("word ", 1<<18)},
		"mode":   {Text: "warranty", Mode: document.Vector},
		"limit":  {Text: "warranty", Limit: -1},
		"filter": {Text: "warranty", Filter: tooMany},
	} {
		_, err := searcher.Search(t.Context(), agentsvc.RunScope{}, q)
		agentsvctest.CheckInvalid(t, err, field)
	}
	_, err := searcher.Search(t.Context(), agentsvc.RunScope{}, document.Query{Text: "warranty", Mode: "exact"})
	agentsvctest.CheckInvalid(t, err, "mode")
	found := search(t, s.options(), document.Query{Text: "warranty", Mode: document.Hybrid})
	if found.Mode != document.Text || found.Degraded == "" || len(found.Passages) != 1 {
		t.Errorf("a store without embedder: %+v", found)
	}
	if found := search(t, s.options(), document.Query{Text: "warranty", Limit: 1 << 30}); found.Mode != document.Text || found.Degraded != "" || len(found.Passages) != 1 {
		t.Errorf("a store without embedder: %+v", found)
	}
}

// TestDegrade checks each part that a search can do without: it still answers, and says what is missing without internal
// text.
func TestDegrade(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s := newTestStore(t, d, newHashing(), nil, handbook()...)
	internal := errors.New("dial tcp 10.0.0.7: secret")
	exhausted := (&agentsvc.ExhaustedBudget{Budget: "month", Scope: "app"}).NewError()
	for _, c := range []struct {
		name   string
		change func(o *retrieval.Options)
		mode   document.Mode
		note   string
	}{
		{"embedder", func(o *retrieval.Options) { o.Embedder = failingEmbedder{o.Embedder, embedder.Query, internal} }, document.Text,
			"the embedder did not answer: the documents were searched by words only"},
		{"embedder's budget", func(o *retrieval.Options) { o.Embedder = failingEmbedder{o.Embedder, embedder.Query, exhausted} }, document.Text,
			"a budget does not cover the embedder: the documents were searched by words only"},
		{"vector store", func(o *retrieval.Options) { o.External, o.Collection = brokenStore{}, collection }, document.Text,
			"the vector store did not answer: the documents were searched by words only"},
		{"another model", func(o *retrieval.Options) { o.Model = "other" }, document.Text,
			"the documents are being indexed anew: they were searched by words only"},
		{"HyDE", func(o *retrieval.Options) { o.HyDE = fail(internal) }, document.Hybrid, "HyDE was left out: its model did not answer"},
		{"HyDE's budget", func(o *retrieval.Options) { o.HyDE = fail(exhausted) }, document.Hybrid, "HyDE was left out: a budget does not cover it"},
		{"HyDE's empty answer", func(o *retrieval.Options) { o.HyDE = answer(" ") }, document.Hybrid, "HyDE was left out: its model's answer is empty"},
		{"HyDE's vector", func(o *retrieval.Options) {
			o.HyDE, o.Embedder = answer("two years"), failingEmbedder{o.Embedder, embedder.Document, internal}
		}, document.Hybrid, "the supposed answer could not be embedded"},
		{"multi-query", func(o *retrieval.Options) { o.MultiQuery = fail(internal) }, document.Hybrid, "multi-query was left out: its model did not answer"},
		{"multi-query's budget", func(o *retrieval.Options) { o.MultiQuery = fail(exhausted) }, document.Hybrid, "multi-query was left out: a budget does not cover it"},
		{"multi-query's garbage", func(o *retrieval.Options) { o.MultiQuery = answer("?!\n--") }, document.Hybrid, "multi-query was left out: its model's answer has no wordings"},
		{"rerank", func(o *retrieval.Options) { o.Rerank = fail(internal) }, document.Hybrid, "reranking was left out: its model did not answer"},
		{"rerank's budget", func(o *retrieval.Options) { o.Rerank = fail(exhausted) }, document.Hybrid, "reranking was left out: a budget does not cover it"},
		{"rerank's garbage", func(o *retrieval.Options) { o.Rerank = answer("sorry") }, document.Hybrid, "reranking was left out: its model's answer names no passage"},
	} {
		o := s.options()
		c.change(&o)
		found := search(t, o, document.Query{Text: "How long is the warranty?"})
		if len(found.Passages) == 0 || found.Passages[0].Document != "warranty.md" || found.Mode != c.mode || found.Degraded != c.note {
			t.Errorf("%s: %v, mode %s, note %q", c.name, documentsOf(found.Passages), found.Mode, found.Degraded)
		}
	}
}

// TestModels checks that models change what is found, and in which order.
func TestModels(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, dbtest.NewSQLite(t), newHashing(), nil, handbook()...)
	o := s.options()
	o.MultiQuery = answer("- parcels\n- islands")
	if found := search(t, o, document.Query{Text: "delivery", Mode: document.Text}); !cmp.Equal(documentsOf(found.Passages), []string{"shipping.md"}) {
		t.Errorf("multi-query found %v", documentsOf(found.Passages))
	}
	o = s.options()
	o.HyDE = answer("Parcels are shipped within three days.")
	if found := search(t, o, document.Query{Text: "delivery", Mode: document.Vector, Limit: 1}); !cmp.Equal(documentsOf(found.Passages), []string{"shipping.md"}) {
		t.Errorf("HyDE found %v", documentsOf(found.Passages))
	}
	o = s.options()
	var question string
	o.Rerank = modelFunc(func(req llm.Request) (string, error) {
		question = req.Conversation[0].Message.Text()
		return "2, 1", nil
	})
	plain := search(t, s.options(), document.Query{Text: "purchase", Mode: document.Text})
	ranked := search(t, o, document.Query{Text: "purchase", Mode: document.Text})
	if len(plain.Passages) != 2 || !cmp.Equal(documentsOf(ranked.Passages), []string{plain.Passages[1].Document, plain.Passages[0].Document}) {
		t.Errorf("reranked %v to %v", documentsOf(plain.Passages), documentsOf(ranked.Passages))
	}
	if ranked.Passages[0].Scores.Rerank == nil || ranked.Passages[0].Score <= ranked.Passages[1].Score {
		t.Errorf("scores %+v", ranked.Passages)
	}
	if !strings.Contains(question, `{"n":2,`) {
		t.Errorf("the reranking model was asked %s", question)
	}
}

// TestExternal checks that what an external store suggests leaves only through the rows: neither a deleted document, nor a
// foreign id, nor what the reader may not read, and that it is asked for more where too few hits are left.
func TestExternal(t *testing.T) {
	t.Parallel()
	external := chromem.New(chromem.Options{})
	docs := handbook()
	for i := range 200 {
		docs = append(docs, testDocument{ID: "private-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26), Chunks: []string{"warranty warranty warranty"},
			Access: document.Access{Subjects: []string{"ana"}}})
	}
	s := newTestStore(t, dbtest.NewSQLite(t), newHashing(), external, docs...)
	g, _, err := s.Search.Generations(t.Context(), "manual")
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := newHashing().Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"warranty"})
	if err != nil {
		t.Fatal(err)
	}
	foreign := vectorstore.Document{ID: "11111111-2222-3333-4444-555555555555", Vector: vectors[0]}
	if err := external.UpsertDocuments(t.Context(), collection(g.Live), []vectorstore.Document{foreign}); err != nil {
		t.Fatal(err)
	}
	q := document.Query{Text: "warranty", Mode: document.Vector, Limit: 1, Reader: document.Reader{Owner: bob}}
	if found := search(t, s.options(), q); !cmp.Equal(documentsOf(found.Passages), []string{"warranty.md"}) || found.Degraded != "" {
		t.Errorf("found %v, %s", documentsOf(found.Passages), found.Degraded)
	}
	if err := s.Documents.Delete(t.Context(), "manual", "warranty.md", "", document.Reader{All: true}); err != nil {
		t.Fatal(err)
	}
	if found := search(t, s.options(), q); cmp.Equal(documentsOf(found.Passages), []string{"warranty.md"}) {
		t.Error("a deleted document is found")
	}
}

// fixedEmbedder has one vector for all documents and another for all queries.
type fixedEmbedder struct {
	embedder.Embedder
	documents, queries []float32
}

func (e fixedEmbedder) Embed(_ context.Context, _ agentsvc.Payer, purpose embedder.Purpose, texts []string) (vectors [][]float32, err error) {
	for range texts {
		if purpose == embedder.Query {
			vectors = append(vectors, e.queries)
		} else {
			vectors = append(vectors, e.documents)
		}
	}
	return vectors, nil
}

// TestNothingInCommon checks that a search returns no passage whose vector is orthogonal or opposite and that no word of the query
// is in, though the list of the nearest vectors has them.
func TestNothingInCommon(t *testing.T) {
	t.Parallel()
	for name, external := range map[string]vectorstore.Store{"in the database": nil, "external": chromem.New(chromem.Options{})} {
		for angle, query := range map[string][]float32{"orthogonal": {0, 1}, "opposite": {-1, 0}} {
			t.Run(name+", "+angle, func(t *testing.T) {
				s := newTestStore(t, dbtest.NewSQLite(t), fixedEmbedder{newHashing(), []float32{1, 0}, query}, external, handbook()...)
				for mode, want := range map[document.Mode][]string{document.Hybrid: {"warranty.md"}, document.Vector: {}} {
					found := search(t, s.options(), document.Query{Text: "warranty", Mode: mode, Reader: document.Reader{All: true}})
					if diff := cmp.Diff(want, documentsOf(found.Passages)); diff != "" || found.Degraded != "" {
						t.Errorf("%s: %s %q", mode, diff, found.Degraded)
					}
					for _, p := range found.Passages {
						if p.Score <= 0 || p.Scores.Text == nil || p.Scores.Vector != nil {
							t.Errorf("%s: %s has the scores %+v", mode, p.Document, p.Scores)
						}
					}
				}
			})
		}
	}
}

// meteredQueries is an embedder whose usage is written when release is closed.
type meteredQueries struct {
	embedder.Embedder
	release <-chan struct{}
	written *atomic.Bool
}

func (e meteredQueries) Embed(ctx context.Context, payer agentsvc.Payer, purpose embedder.Purpose, texts []string) ([][]float32, error) {
	vectors, err := e.Embedder.Embed(ctx, payer, purpose, texts)
	write := func() {
		<-e.release
		e.written.Store(true)
	}
	if payer.Defer == nil {
		write()
	} else {
		payer.Defer(write)
	}
	return vectors, err
}

// TestUsageIsWrittenBeforeTheAnswer checks that a search compares vectors while the usage of the embedder is being written, and
// is answered when that is written, also if it fails.
func TestUsageIsWrittenBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, dbtest.NewSQLite(t), newHashing(), nil, handbook()...)
	for name, cancelled := range map[string]bool{"answered": false, "cancelled": true} {
		release, written := make(chan struct{}), &atomic.Bool{}
		ctx, cancel := context.WithCancel(t.Context())
		o := s.options()
		o.Embedder = meteredQueries{o.Embedder, release, written}
		o.Hooks.OnPart = func(p retrieval.Part, _ time.Duration) {
			if p != retrieval.PartVectors { // it has to come to this without the usage
				return
			}
			if cancelled {
				cancel()
			}
			close(release)
		}
		_, err := retrieval.NewSearcher(o).Search(ctx, scopeOf(ana), document.Query{Text: "warranty"})
		if !written.Load() || (err != nil) != cancelled {
			t.Errorf("%s: written %v, %v", name, written.Load(), err)
		}
		cancel()
	}
}

// TestManyDuplicates checks that passages after many near-duplicates are found, whose texts are not among the first that are loaded.
func TestManyDuplicates(t *testing.T) {
	t.Parallel()
	var docs []testDocument
	for i := range 20 {
		docs = append(docs, testDocument{ID: fmt.Sprintf("copy-%02d", i), Chunks: []string{"The warranty lasts two years from the day of purchase."}})
	}
	docs = append(docs, testDocument{ID: "other", Chunks: []string{"Batteries, cables, bags and all that wears out are excluded from every kind of the warranty after six months."}})
	s := newTestStore(t, dbtest.NewSQLite(t), nil, nil, docs...)
	found := search(t, s.options(), document.Query{Text: "warranty", Limit: 2})
	// The ids of the copies' chunks are random, and with them which copy is the first.
	if got := documentsOf(found.Passages); len(got) != 2 || !strings.HasPrefix(got[0], "copy-") || got[1] != "other" {
		t.Errorf("found %v", got)
	}
}

// waitingEmbedder answers for queries when the words were compared.
type waitingEmbedder struct {
	embedder.Embedder
	compared <-chan struct{}
}

func (e waitingEmbedder) Embed(ctx context.Context, payer agentsvc.Payer, purpose embedder.Purpose, texts []string) ([][]float32, error) {
	if purpose == embedder.Query {
		select {
		case <-e.compared:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return e.Embedder.Embed(ctx, payer, purpose, texts)
}

// TestLegsAtTheSameTime checks that words are compared while the embedder has not answered.
func TestLegsAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, dbtest.NewSQLite(t), newHashing(), nil, handbook()...)
	compared := make(chan struct{})
	o := s.options()
	o.Embedder = waitingEmbedder{o.Embedder, compared}
	o.Hooks.OnPart = func(p retrieval.Part, _ time.Duration) {
		if p == retrieval.PartWords {
			close(compared)
		}
	}
	found := search(t, o, document.Query{Text: "How long is the warranty?", Limit: 1})
	if got := documentsOf(found.Passages); !cmp.Equal(got, []string{"warranty.md"}) || found.Degraded != "" {
		t.Errorf("found %v, %q", got, found.Degraded)
	}
}
