// Package ollama makes vectors with a model that an Ollama server runs.
package ollama

import (
	"cmp"
	"context"

	"stoa/agentsvc/embedder"
)

type (
	embedRequest struct {
		Model      string   `json:"model"`
		Input      []string `json:"input"`
		Dimensions int      `json:"dimensions,omitempty"`
	}
	embedResponse struct {
		Embeddings [][]float32 `json:"embeddings"`
	}
)

// New returns an embedder. Without more it uses nomic-embed-text on this machine.
func New(o embedder.Options) embedder.Embedder {
	o.Model = cmp.Or(o.Model, "nomic-embed-text")
	o.BaseURL = cmp.Or(o.BaseURL, "http://localhost:11434")
	return embedder.New("ollama", o, func(ctx context.Context, _ embedder.Purpose, texts []string) ([][]float32, error) {
		var a embedResponse
		err := o.PostJSON(ctx, "ollama", "/api/embed", embedRequest{o.Model, texts, o.Dimension}, &a)
		return a.Embeddings, err
	})
}
