// Package openai speaks to OpenAI's chat completions and to every server that is compatible with them, through the
// official client. It reads nothing from the environment: a tenant's base URL never sees the operator's key,
// organisation or project.
package openai

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
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
	// IdleTimeout bounds the wait for the next piece of an answer, 60 s if zero.
	IdleTimeout time.Duration
}

// Provider asks one model. It is safe for concurrent use.
type Provider struct {
	opts Options
	chat openai.ChatCompletionService
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
	if opts.IdleTimeout == 0 {
		opts.IdleTimeout = time.Minute
	}
	if u, err := url.Parse(opts.BaseURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, agentsvc.Invalid("base_url", "is no http or https URL")
	}
	p := &Provider{opts: opts}
	with := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL),
		option.WithHTTPClient(opts.HTTP),
		option.WithMaxRetries(0),
		option.WithMiddleware(p.guard),
	}
	if opts.APIKey != "" {
		with = append(with, option.WithAPIKey(opts.APIKey))
	}
	p.chat = openai.NewChatService(with...).Completions
	return p, nil
}

// Stream asks the model once. Tool calls are yielded when the answer is whole, never from one that broke off.
// Usage.InputTokens includes the tokens read from the cache, Usage.OutputTokens those spent on reasoning.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		params, err := p.params(req)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		err = p.read(ctx, params, newAnswer(p, req), func(c llm.Chunk) bool { return yield(c, nil) })
		switch {
		case err == nil, errors.Is(err, errStopped):
		case ctx.Err() != nil:
			yield(llm.Chunk{}, ctx.Err())
		default:
			yield(llm.Chunk{}, p.failure(err))
		}
	}
}

// read streams one completion into a and what it makes of it into yield. It returns errStopped where yield wants no more.
func (p *Provider) read(ctx context.Context, params openai.ChatCompletionNewParams, a *answer, yield func(llm.Chunk) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The timer runs only while the model is waited for, not while the reader is.
	idle := time.AfterFunc(p.opts.IdleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()

	stream := p.chat.NewStreaming(ctx, params)
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		idle.Stop()
		chunks, err := a.add(stream.Current())
		if err != nil {
			return err
		}
		for _, c := range chunks {
			if !yield(c) {
				return errStopped
			}
		}
		idle.Reset(p.opts.IdleTimeout)
	}
	idle.Stop()
	if err := stream.Err(); err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
			return cause
		}
		return err
	}
	chunks, err := a.end()
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if !yield(c) {
			return errStopped
		}
	}
	return nil
}
