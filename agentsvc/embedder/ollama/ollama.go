// Package ollama implements embedder.Embedder with a model on an Ollama server (POST /api/embed). Ollama makes no
// difference between purposes.
package ollama

import (
	"cmp"
	"context"

	"stoa/agentsvc/embedder"
)

// The bodies of /api/embed, as far as they are used.
type (
	embedRequest struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
		// Dimensions is left out for the model's own length.
		Dimensions int `json:"dimensions,omitempty"`
	}
	embedResponse struct {
		Embeddings [][]float32 `json:"embeddings"`
	}
)

// New returns an embedder, of nomic-embed-text on this machine if nothing else is given.
func New(o embedder.Options) embedder.Embedder {
	o.Model = cmp.Or(o.Model, "nomic-embed-text")
	o.BaseURL = cmp.Or(o.BaseURL, "http://localhost:11434")
	return embedder.New("ollama", o, func(ctx context.Context, _ embedder.Purpose, texts []string) ([][]float32, error) {
		var a embedResponse
		err := o.PostJSON(ctx, "ollama", "/api/embed", embedRequest{o.Model, texts, o.Dimension}, &a, len(texts))
		return a.Embeddings, err
	})
}
