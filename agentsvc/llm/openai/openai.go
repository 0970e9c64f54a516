// Package openai implements llm.Provider with OpenAI's chat completions, which many other servers offer too, or with
// OpenAI's responses API. It reads nothing from the environment, so a tenant's base URL never receives the operator's key,
// organisation or project.
//
// Both protocols share options, errors and the reading of the stream (forwardStream); each has an encoder and a decoder
// of its own (chat.go, responses.go).
package openai

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is the server that is called if [Options] name none.
const BaseURL = "https://api.openai.com/v1/"

// Options describe one model on one server. HTTP is required; it must enforce the egress rules, see package egress.
type Options struct {
	// Name is the provider's name in errors and usage, "openai" if empty.
	Name string
	// Model is the vendor's name of the model, "gpt-4o" if empty.
	Model string
	// APIKey is sent if it is not empty. Compatible servers may need none.
	APIKey  string
	BaseURL string
	HTTP    *http.Client
	// Temperature is nil for the server's default.
	Temperature *float64
	// MaxTokens bounds one answer, 0 = the server's default.
	MaxTokens int64
	// Responses selects the responses API instead of chat completions.
	Responses bool
	// FirstTimeout bounds the wait for the first piece of an answer, 0 = [upstream.DefaultFirstTimeout]; IdleTimeout
	// the wait for each later one, 0 = 60 s.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider calls one model. It is read-only and safe for concurrent use.
type Provider struct {
	opts Options
	// vendor describes the protocol to package upstream; client sends through it, to url.
	vendor upstream.Vendor
	client *http.Client
	url    string
}

// New returns a provider. It returns an error with [agentsvc.CodeInvalid] for options that cannot work. It makes no
// request.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("openai: an HTTP client is required")
	}
	opts.Name, opts.Model, opts.BaseURL = cmp.Or(opts.Name, "openai"), cmp.Or(opts.Model, "gpt-4o"), cmp.Or(opts.BaseURL, BaseURL)
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	p := &Provider{opts: opts}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, EndMarker: "data:[DONE]", RefineError: refineError}
	if opts.Responses {
		// The last event of a complete response.
		p.vendor.EndMarker = "event:response.completed"
	}
	p.client = p.vendor.NewClient(opts.HTTP)
	path := "chat/completions"
	if opts.Responses {
		path = "responses"
	}
	var err error
	p.url, err = url.JoinPath(opts.BaseURL, path)
	return p, err
}

// Stream makes one call, see [llm.Provider]. Tool calls are yielded when the answer is complete, never from one that
// broke off. A file that the API does not accept is an error with [agentsvc.CodeInvalid].
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, req, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		if p.opts.Responses {
			return p.streamResponses(ctx, req)
		}
		return p.streamChat(ctx, req)
	})
}

// streamChat makes a call of chat completions.
func (p *Provider) streamChat(ctx context.Context, req llm.Request) iter.Seq2[[]llm.Chunk, error] {
	return func(yield func([]llm.Chunk, error) bool) {
		// A request that cannot be encoded is the call's only item: an InvalidError.
		body, err := p.encodeChatRequest(req)
		if err != nil {
			yield(nil, err)
			return
		}
		a := newChatDecoder(upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req))
		forwardStream(openStream[chatEvent](ctx, p, body), a.addEvent, a.finishAnswer, yield)
	}
}

// streamResponses makes a call of the responses API.
func (p *Provider) streamResponses(ctx context.Context, req llm.Request) iter.Seq2[[]llm.Chunk, error] {
	return func(yield func([]llm.Chunk, error) bool) {
		body, err := p.encodeResponsesRequest(req)
		if err != nil {
			yield(nil, err)
			return
		}
		a := newResponsesDecoder(upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req))
		forwardStream(openStream[responsesEvent](ctx, p, body), a.addEvent, a.finishAnswer, yield)
	}
}

// forwardStream yields what add returns for each event of a stream, and what end returns after the last one.
func forwardStream[E any](stream *ssestream.Stream[E], add func(E) ([]llm.Chunk, error), end func() ([]llm.Chunk, error), yield func([]llm.Chunk, error) bool) {
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		chunks, err := add(stream.Current())
		if !yield(chunks, err) || err != nil {
			return
		}
	}
	if err := stream.Err(); err != nil {
		yield(nil, translateStreamError(err))
		return
	}
	yield(end())
}
