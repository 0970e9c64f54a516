// Package cohere makes vectors with Cohere's embed API, version 2.
package cohere

import (
	"cmp"
	"context"

	"stoa/agentsvc/embedder"
)

// Options are what Cohere asks for beyond what all vendors do.
type Options struct {
	embedder.Options
	InputType       string // what the texts are, whatever they are for; search_document or search_query if empty
	OutputDimension int    // length of the vectors to ask for, where the model has several
	Truncate        string // which end of a text that is too long is cut: NONE, START or END
}

type (
	embedRequest struct {
		Model           string   `json:"model"`
		Texts           []string `json:"texts"`
		InputType       string   `json:"input_type"`
		EmbeddingTypes  []string `json:"embedding_types"`
		OutputDimension int      `json:"output_dimension,omitempty"`
		Truncate        string   `json:"truncate,omitempty"`
	}
	embedResponse struct {
		Embeddings struct {
			Float [][]float32 `json:"float"`
		} `json:"embeddings"`
	}
)

var inputTypes = map[embedder.Purpose]string{embedder.Document: "search_document", embedder.Query: "search_query"}

// maxBatchSize is how many texts Cohere takes in one request.
const maxBatchSize = 96

// New returns an embedder. Without more it uses embed-v4.0.
func New(o Options) embedder.Embedder {
	o.Model = cmp.Or(o.Model, "embed-v4.0")
	o.BaseURL = cmp.Or(o.BaseURL, "https://api.cohere.com")
	o.BatchSize = min(cmp.Or(o.BatchSize, maxBatchSize), maxBatchSize)
	o.Dimension = cmp.Or(o.Dimension, o.OutputDimension)
	return embedder.New("cohere", o.Options, func(ctx context.Context, p embedder.Purpose, texts []string) ([][]float32, error) {
		var a embedResponse
		err := o.PostJSON(ctx, "cohere", "/v2/embed", embedRequest{
			o.Model, texts, cmp.Or(o.InputType, inputTypes[p]), []string{"float"}, o.OutputDimension, o.Truncate,
		}, &a)
		return a.Embeddings.Float, err
	})
}
