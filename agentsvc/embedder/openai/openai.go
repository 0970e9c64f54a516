// Package openai makes vectors with the embeddings API of OpenAI, or of a server that speaks it.
package openai

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
		Encoding   string   `json:"encoding_format"`
	}
	embedResponse struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
)

// New returns an embedder. Without more it uses text-embedding-3-small.
func New(o embedder.Options) embedder.Embedder {
	o.Model = cmp.Or(o.Model, "text-embedding-3-small")
	o.BaseURL = cmp.Or(o.BaseURL, "https://api.openai.com/v1")
	return embedder.New("openai", o, func(ctx context.Context, _ embedder.Purpose, texts []string) ([][]float32, error) {
		var a embedResponse
		if err := o.PostJSON(ctx, "openai", "/embeddings", embedRequest{o.Model, texts, o.Dimension, "float"}, &a); err != nil {
			return nil, err
		}
		vectors := make([][]float32, len(a.Data))
		for _, d := range a.Data {
			if d.Index < 0 || d.Index >= len(vectors) {
				return nil, &embedder.Error{Vendor: "openai", Message: "answered with a vector of no text"}
			}
			vectors[d.Index] = d.Embedding
		}
		return vectors, nil
	})
}
