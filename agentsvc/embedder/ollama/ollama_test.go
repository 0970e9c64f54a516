package ollama_test

import (
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/embedder/ollama"
)

func TestEmbedder(t *testing.T) {
	t.Parallel()
	embeddertest.RunSuite(t, embeddertest.Vendor{New: ollama.New, Path: "/api/embed", Model: "nomic-embed-text"})
}

// TestDimension checks that a configured length of vectors is requested, and none otherwise.
func TestDimension(t *testing.T) {
	t.Parallel()
	s := embeddertest.NewServer(t)
	for _, want := range []any{nil, float64(embeddertest.Dimension)} {
		o := embedder.Options{BaseURL: s.URL, HTTP: s.Client()}
		if want != nil {
			o.Dimension = embeddertest.Dimension
		}
		if _, err := ollama.New(o).Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"}); err != nil {
			t.Fatal(err)
		}
		if got := s.LastRequestBody()["dimensions"]; got != want {
			t.Errorf("asked for %v dimensions, want %v", got, want)
		}
	}
}
