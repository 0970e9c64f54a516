// Package cohere implements embedder.Embedder with version 2 of Cohere's embed API (POST /v2/embed).
package cohere

import (
	"cmp"
	"context"

	"stoa/agentsvc/embedder"
)

// Options are the common options and those of Cohere's API.
type Options struct {
	embedder.Options
	// InputType overrides the purpose of each text; "": search_document or search_query, by the purpose.
	InputType string
	// OutputDimension is the length of the vectors to request, for models that have several; 0 = the model's.
	OutputDimension int
	// Truncate is the end at which a text that is too long is cut: NONE (an error), START or END.
	Truncate string
}

// The bodies of /v2/embed, as far as they are used.
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

// inputTypes are the API's names of the purposes.
var inputTypes = map[embedder.Purpose]string{embedder.Document: "search_document", embedder.Query: "search_query"}

// maxBatchSize is the largest number of texts that the API accepts in one request.
const maxBatchSize = 96

// New returns an embedder, of embed-v4.0 if no model is given.
func New(o Options) embedder.Embedder {
	o.Model = cmp.Or(o.Model, "embed-v4.0")
	o.BaseURL = cmp.Or(o.BaseURL, "https://api.cohere.com")
	o.BatchSize = min(cmp.Or(o.BatchSize, maxBatchSize), maxBatchSize)
	o.Dimension = cmp.Or(o.Dimension, o.OutputDimension)
	return embedder.New("cohere", o.Options, func(ctx context.Context, p embedder.Purpose, texts []string) ([][]float32, error) {
		var a embedResponse
		err := o.PostJSON(ctx, "cohere", "/v2/embed", embedRequest{
			o.Model, texts, cmp.Or(o.InputType, inputTypes[p]), []string{"float"}, o.OutputDimension, o.Truncate,
		}, &a, len(texts))
		return a.Embeddings.Float, err
	})
}
