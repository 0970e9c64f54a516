// Package openai implements embedder.Embedder with OpenAI's embeddings API (POST /embeddings) or a compatible server.
// The API makes no difference between purposes.
package openai

import (
	"cmp"
	"context"

	"stoa/agentsvc/embedder"
)

// The bodies of /embeddings, as far as they are used. encoding_format is float, because compatible servers may not
// support base64.
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

// New returns an embedder, of text-embedding-3-small if no model is given.
func New(o embedder.Options) embedder.Embedder {
	o.Model = cmp.Or(o.Model, "text-embedding-3-small")
	o.BaseURL = cmp.Or(o.BaseURL, "https://api.openai.com/v1")
	return embedder.New("openai", o, func(ctx context.Context, _ embedder.Purpose, texts []string) ([][]float32, error) {
		var a embedResponse
		if err := o.PostJSON(ctx, "openai", "/embeddings", embedRequest{o.Model, texts, o.Dimension, "float"}, &a, len(texts)); err != nil {
			return nil, err
		}
		// The number of vectors is checked by embedder.New.
		vectors := make([][]float32, len(a.Data))
		// The API states the order by the index, not by the position. A missing vector stays nil, which embedder.New
		// refuses.
		for _, d := range a.Data {
			if d.Index < 0 || d.Index >= len(vectors) {
				return nil, &embedder.Error{Vendor: "openai", Message: "answered with a vector of no text"}
			}
			vectors[d.Index] = d.Embedding
		}
		return vectors, nil
	})
}
