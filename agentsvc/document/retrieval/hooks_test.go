package retrieval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/embedder"
	"stoa/tenancy/db/dbtest"
)

// sortLegs puts the parts of the legs of a search in order, which ended in any.
func sortLegs(parts []string) {
	legs := []string{"embed", "vectors", "words"}
	isLeg := func(p string) bool { return slices.Contains(legs, p) }
	if first := slices.IndexFunc(parts, isLeg); first >= 0 {
		end := first
		for end < len(parts) && isLeg(parts[end]) {
			end++
		}
		slices.SortFunc(parts[first:end], func(a, b string) int { return slices.Index(legs, a) - slices.Index(legs, b) })
	}
}

// TestHooks checks that each part of a search has a duration and a span, and what a search is counted as.
func TestHooks(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, dbtest.NewSQLite(t), newHashing(), nil, handbook()...)
	internal := errors.New("down")
	for _, c := range []struct {
		name   string
		change func(o *retrieval.Options)
		q      document.Query
		cancel bool
		want   []string // the outcome, and then the parts in their order, those of the words' leg last of the legs
	}{
		{"words", nil, document.Query{Text: "warranty", Mode: document.Text}, false, []string{"complete", "words", "load"}},
		{"vectors", nil, document.Query{Text: "warranty", Mode: document.Vector}, false, []string{"complete", "embed", "vectors", "load"}},
		{"hybrid", nil, document.Query{Text: "warranty"}, false, []string{"complete", "embed", "vectors", "words", "load"}},
		{"models", func(o *retrieval.Options) {
			o.HyDE, o.MultiQuery, o.Rerank = answer("two years"), answer("guarantee\nbatteries"), answer("2, 1")
		}, document.Query{Text: "purchase"}, false, []string{"complete", "expand", "embed", "vectors", "words", "words", "words", "load", "rerank"}},
		{"the embedder is down", func(o *retrieval.Options) { o.Embedder = failingEmbedder{o.Embedder, embedder.Query, internal} }, document.Query{Text: "warranty"}, false,
			[]string{"degraded", "embed", "words", "load"}},
		{"no words", nil, document.Query{Text: "what is it"}, false, []string{"degraded"}},
		{"the caller is gone", nil, document.Query{Text: "warranty", Mode: document.Text}, true, []string{"failed", "words"}},
		{"not a query", nil, document.Query{Text: "warranty", Limit: -1}, false, nil},
	} {
		seen := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen))
		ctx, root := provider.Tracer("test").Start(t.Context(), "root")
		ctx, cancel := context.WithCancel(ctx)
		if c.cancel {
			cancel()
		}
		o := s.options()
		if c.change != nil {
			c.change(&o)
		}
		var mu sync.Mutex // the legs run at the same time
		var outcomes, parts []string
		o.Hooks = retrieval.Hooks{
			OnSearch: func(outcome retrieval.Outcome, took time.Duration) {
				outcomes = append(outcomes, string(outcome))
				if took <= 0 {
					t.Errorf("%s: took %v", c.name, took)
				}
			},
			OnPart: func(p retrieval.Part, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				parts = append(parts, string(p))
			},
		}
		_, _ = retrieval.NewSearcher(o).Search(ctx, scopeOf(ana), c.q) // the outcome says how it ended
		cancel()
		root.End()
		sortLegs(parts)
		if diff := cmp.Diff(c.want, slices.Concat(outcomes, parts)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
		names := map[string]int{}
		for _, span := range seen.Ended() {
			names[span.Name()]++
		}
		spans := map[string]string{"expand": "expand a query", "embed": "embed a query", "vectors": "search documents by vectors", "words": "search documents by words", "load": "load passages", "rerank": "rerank passages"}
		want := map[string]int{"root": 1, "search documents": 1}
		for _, p := range parts {
			want[spans[p]]++
		}
		for name := range names { // those of the database and of models are tested there
			if want[name] == 0 {
				delete(names, name)
			}
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: spans %s", c.name, fmt.Sprint(diff))
		}
	}
}
