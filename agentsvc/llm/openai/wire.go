package openai

import (
	"context"
	"net/http"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"stoa/agentsvc/llm/upstream"
)

// The messages of both protocols are types of this package. Those of the official client refer to every service of OpenAI,
// which were 23 MB of the program (docs/operations/size.md). These have what Stoa sends and reads. Servers of other vendors
// differ in details; a value of another type counts as missing.

// openStream sends a request and returns the events of the answer.
func openStream[E any](ctx context.Context, p *Provider, body any) *ssestream.Stream[E] {
	header := http.Header{}
	if p.opts.APIKey != "" {
		header.Set("Authorization", "Bearer "+p.opts.APIKey)
	}
	resp, err := upstream.SendJSON(ctx, p.client, p.url, header, body) //nolint:bodyclose // the stream closes it
	return ssestream.NewStream[E](ssestream.NewDecoder(resp), err)
}
