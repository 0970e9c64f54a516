package cohere_test

import (
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/cohere"
	"stoa/agentsvc/embedder/embeddertest"
)

func TestEmbedder(t *testing.T) {
	t.Parallel()
	embeddertest.RunSuite(t, embeddertest.Vendor{
		New:  func(o embedder.Options) embedder.Embedder { return cohere.New(cohere.Options{Options: o}) },
		Path: "/v2/embed", Model: "embed-v4.0",
	})
}

// TestCohereFields checks the fields that only Cohere's API has.
func TestCohereFields(t *testing.T) {
	t.Parallel()
	s := embeddertest.NewServer(t)
	for _, c := range []struct {
		o       cohere.Options
		purpose embedder.Purpose
		want    map[string]any
	}{
		{cohere.Options{}, embedder.Document, map[string]any{"input_type": "search_document", "truncate": nil, "output_dimension": nil}},
		{cohere.Options{}, embedder.Query, map[string]any{"input_type": "search_query"}},
		{cohere.Options{InputType: "clustering", OutputDimension: embeddertest.Dimension, Truncate: "START"}, embedder.Query,
			map[string]any{"input_type": "clustering", "output_dimension": float64(embeddertest.Dimension), "truncate": "START"}},
	} {
		c.o.Options = embedder.Options{BaseURL: s.URL, HTTP: s.Client()}
		if _, err := cohere.New(c.o).Embed(t.Context(), agentsvc.Payer{}, c.purpose, []string{"x"}); err != nil {
			t.Fatal(err)
		}
		for field, want := range c.want {
			if got := s.LastRequestBody()[field]; got != want {
				t.Errorf("%s is %v, want %v", field, got, want)
			}
		}
	}
}

// TestBatches checks that no request has more texts than Cohere accepts.
func TestBatches(t *testing.T) {
	t.Parallel()
	s := embeddertest.NewServer(t)
	e := cohere.New(cohere.Options{Options: embedder.Options{BaseURL: s.URL, HTTP: s.Client(), BatchSize: 500}})
	if _, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Document, make([]string, 100)); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Requests()); n != 2 {
		t.Errorf("%d requests for 100 texts, want 2", n)
	}
}
