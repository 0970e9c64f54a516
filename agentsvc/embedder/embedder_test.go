package embedder_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/cohere"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/embedder/ollama"
	"stoa/agentsvc/embedder/openai"
)

var vendors = map[string]struct {
	make  func(o embedder.Options) embedder.Embedder
	path  string
	model string
}{
	"openai": {openai.New, "/embeddings", "text-embedding-3-small"},
	"ollama": {ollama.New, "/api/embed", "nomic-embed-text"},
	"cohere": {func(o embedder.Options) embedder.Embedder { return cohere.New(cohere.Options{Options: o}) }, "/v2/embed", "embed-v4.0"},
}

// each runs f against each vendor and a server that speaks its dialect.
func each(t *testing.T, f func(t *testing.T, s *embeddertest.Server, make func(o embedder.Options) embedder.Embedder, path, model string)) {
	t.Parallel()
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := embeddertest.New(t)
			out := egress.New(egress.Options{PrivateNetwork: true})
			t.Cleanup(out.Close)
			f(t, s, func(o embedder.Options) embedder.Embedder {
				o.BaseURL, o.HTTP = s.URL, out.HTTP()
				return v.make(o)
			}, v.path, v.model)
		})
	}
}

func TestEmbed(t *testing.T) {
	each(t, func(t *testing.T, s *embeddertest.Server, make func(o embedder.Options) embedder.Embedder, path, model string) {
		e := make(embedder.Options{APIKey: "key", BatchSize: 2})
		texts := []string{"one", "two", "three", "four", "five"}
		got, err := e.Embed(t.Context(), embedder.Document, texts)
		if err != nil {
			t.Fatal(err)
		}
		var want [][]float32
		for _, text := range texts {
			want = append(want, embeddertest.Letters(text))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		var sizes []int
		for _, r := range s.Requests() {
			sizes = append(sizes, len(r.Texts()))
			if r.Path != path || r.Key != "Bearer key" || r.Body["model"] != model {
				t.Errorf("asked %s with key %q for %v", r.Path, r.Key, r.Body["model"])
			}
		}
		if diff := cmp.Diff([]int{2, 2, 1}, sizes); diff != "" {
			t.Errorf("batches: %s", diff)
		}
		if !strings.Contains(e.Model(), model) {
			t.Errorf("the model is %s", e.Model())
		}
	})
}

func TestNothing(t *testing.T) {
	each(t, func(t *testing.T, s *embeddertest.Server, make func(o embedder.Options) embedder.Embedder, _, _ string) {
		if got, err := make(embedder.Options{}).Embed(t.Context(), embedder.Query, nil); err != nil || len(got) != 0 {
			t.Error(got, err)
		}
		if n := len(s.Requests()); n > 0 {
			t.Errorf("%d requests for no text", n)
		}
	})
}

func TestDimension(t *testing.T) {
	each(t, func(t *testing.T, s *embeddertest.Server, make func(o embedder.Options) embedder.Embedder, _, _ string) {
		var e *embedder.Error
		if _, err := make(embedder.Options{Dimension: 5}).Embed(t.Context(), embedder.Query, []string{"x"}); !errors.As(err, &e) || !strings.Contains(err.Error(), "27 numbers, not 5") {
			t.Errorf("vectors of another dimension: %v", err)
		}
		detects := make(embedder.Options{})
		if _, err := detects.Embed(t.Context(), embedder.Query, []string{"x"}); err != nil {
			t.Fatal(err)
		}
		s.Vector(func(string) []float32 { return []float32{1} })
		if _, err := detects.Embed(t.Context(), embedder.Query, []string{"x"}); !errors.As(err, &e) {
			t.Errorf("the dimension changed: %v", err)
		}
		s.Vector(func(string) []float32 { return nil })
		if _, err := make(embedder.Options{}).Embed(t.Context(), embedder.Query, []string{"x"}); !errors.As(err, &e) {
			t.Errorf("an empty vector: %v", err)
		}
		s.Vector(func(string) []float32 { return []float32{0, 0} })
		if _, err := make(embedder.Options{}).Embed(t.Context(), embedder.Query, []string{"x"}); !errors.As(err, &e) {
			t.Errorf("a vector without direction: %v", err)
		}
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, s *embeddertest.Server, make func(o embedder.Options) embedder.Embedder, _, _ string) {
		for status, retryable := range map[int]bool{401: false, 400: false, 404: false, 429: true, 500: true, 503: true} {
			s.Fail(status)
			_, err := make(embedder.Options{}).Embed(t.Context(), embedder.Query, []string{"x"})
			var e *embedder.Error
			if !errors.As(err, &e) || e.Status != status || e.Retryable != retryable {
				t.Errorf("HTTP %d: %#v", status, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells what the vendor said: %v", err)
			}
		}
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	waits := roundTripper(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	e := openai.New(embedder.Options{Timeout: time.Millisecond, HTTP: &http.Client{Transport: waits}})
	if _, err := e.Embed(t.Context(), embedder.Query, []string{"x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOwnFields sees what only one vendor is told.
func TestOwnFields(t *testing.T) {
	t.Parallel()
	s := embeddertest.New(t)
	base := embedder.Options{BaseURL: s.URL, HTTP: http.DefaultClient}
	last := func() map[string]any {
		all := s.Requests()
		return all[len(all)-1].Body
	}
	for _, c := range []struct {
		name    string
		e       embedder.Embedder
		purpose embedder.Purpose
		want    map[string]any
	}{
		{"cohere document", cohere.New(cohere.Options{Options: base}), embedder.Document, map[string]any{"input_type": "search_document", "truncate": nil}},
		{"cohere query", cohere.New(cohere.Options{Options: base}), embedder.Query, map[string]any{"input_type": "search_query"}},
		{"cohere as told", cohere.New(cohere.Options{Options: base, InputType: "clustering", OutputDimension: embeddertest.Dimension, Truncate: "START"}), embedder.Query,
			map[string]any{"input_type": "clustering", "output_dimension": float64(embeddertest.Dimension), "truncate": "START"}},
		{"openai", openai.New(withDimension(base)), embedder.Query, map[string]any{"dimensions": float64(embeddertest.Dimension), "encoding_format": "float"}},
		{"ollama", ollama.New(withDimension(base)), embedder.Query, map[string]any{"dimensions": float64(embeddertest.Dimension)}},
	} {
		if _, err := c.e.Embed(t.Context(), c.purpose, []string{"x"}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for field, want := range c.want {
			if got := last()[field]; got != want {
				t.Errorf("%s: %s is %v, want %v", c.name, field, got, want)
			}
		}
	}
}

func withDimension(o embedder.Options) embedder.Options {
	o.Dimension = embeddertest.Dimension
	return o
}
