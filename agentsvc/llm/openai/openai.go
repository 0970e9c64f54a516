// Package openai speaks to OpenAI's chat completions and to every server that is compatible with them, or to OpenAI's
// responses, through the official client. It reads nothing from the environment: a tenant's base URL never sees the
// operator's key, organisation or project.
package openai

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is where models are asked if [Options] name no other server.
const BaseURL = "https://api.openai.com/v1/"

// Options describe one model on one server. HTTP is required; it is the way out, see package egress.
type Options struct {
	Name        string // how errors and usage call the provider, "openai" if empty
	Model       string // "gpt-4o" if empty
	APIKey      string // none is sent if empty
	BaseURL     string
	HTTP        *http.Client
	Temperature *float64 // the server's default if nil
	MaxTokens   int64    // of one answer, the server's default if zero
	// Responses asks OpenAI's responses instead of chat completions, which every compatible server has.
	Responses bool
	// FirstTimeout bounds the wait for the first word of an answer, [upstream.DefaultFirstTimeout] if zero; IdleTimeout the wait
	// for the next piece from there on, 60 s if zero.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider asks one model. It is safe for concurrent use.
type Provider struct {
	opts      Options
	vendor    upstream.Vendor
	chat      openai.ChatCompletionService
	responses responses.ResponseService
}

// New returns a provider. It returns an [agentsvc.InvalidError] for options that cannot work, and calls nobody.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("openai: an HTTP client is required")
	}
	if opts.Name == "" {
		opts.Name = "openai"
	}
	if opts.Model == "" {
		opts.Model = "gpt-4o"
	}
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	p := &Provider{opts: opts}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, EndMarker: "data:[DONE]", RefineError: refineError}
	if opts.Responses {
		p.vendor.EndMarker = "event:response.completed"
	}
	clientOptions := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL),
		option.WithHTTPClient(p.vendor.NewClient(opts.HTTP)),
		option.WithMaxRetries(0),
	}
	if opts.APIKey != "" {
		clientOptions = append(clientOptions, option.WithAPIKey(opts.APIKey))
	}
	p.chat = openai.NewChatService(clientOptions...).Completions
	p.responses = responses.NewResponseService(clientOptions...)
	return p, nil
}

// Stream asks the model once. Tool calls are yielded when the answer is whole, never from one that broke off. It
// returns an [agentsvc.InvalidError] for a file that the API does not take.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		if p.opts.Responses {
			return p.streamResponses(ctx, req)
		}
		return p.streamChat(ctx, req)
	})
}

func (p *Provider) streamChat(ctx context.Context, req llm.Request) iter.Seq2[[]llm.Chunk, error] {
	return func(yield func([]llm.Chunk, error) bool) {
		params, err := p.encodeChatRequest(req)
		if err != nil {
			yield(nil, err)
			return
		}
		a := newChatDecoder(upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req))
		forwardStream(p.chat.NewStreaming(ctx, params), a.addEvent, a.finishAnswer, yield)
	}
}

func (p *Provider) streamResponses(ctx context.Context, req llm.Request) iter.Seq2[[]llm.Chunk, error] {
	return func(yield func([]llm.Chunk, error) bool) {
		params, err := p.encodeResponsesRequest(req)
		if err != nil {
			yield(nil, err)
			return
		}
		a := newResponsesDecoder(upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req))
		forwardStream(p.responses.NewStreaming(ctx, params), a.addEvent, a.finishAnswer, yield)
	}
}

// forwardStream yields what add makes of each event of a stream, and at last what end does.
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
