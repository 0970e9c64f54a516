// Package anthropic speaks to Anthropic's messages through the official client. System prompt and tools are marked for
// the vendor's prompt cache. It reads nothing from the environment and from no profile of the operator's: a tenant's
// base URL never sees the operator's credentials.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is where models are asked if [Options] name no other server.
const BaseURL = "https://api.anthropic.com/"

// Bounds of an answer in tokens, which the API wants to be told.
const (
	// MaxTokens is the longest answer if [Options] name no other; what may be spent on thinking comes on top.
	MaxTokens = 8192
	// MaxTokensThinking is the same for a model that decides by itself how much it thinks, which counts.
	MaxTokensThinking = 32_000
	// MinThinking is the least that the API lets a model spend on thinking, and what it gets if [Options] do not say.
	MinThinking = 1024
)

// Options describe one model on one server. HTTP is required; it is the way out, see package egress.
type Options struct {
	Name        string // how errors and usage call the provider, "anthropic" if empty
	Model       string // "claude-haiku-4-5" if empty
	APIKey      string // none is sent if empty
	BaseURL     string
	HTTP        *http.Client
	Temperature *float64 // the server's default if nil; the API takes none beside Thinking
	MaxTokens   int64    // of one answer with its thinking, see [MaxTokens] if zero
	// Thinking lets the model think before it answers, for up to ThinkingBudget tokens, or as hard as that amounts to
	// where the model decides by itself.
	Thinking       bool
	ThinkingBudget int64
	// FirstTimeout bounds the wait for the first word of an answer, [upstream.DefaultFirstTimeout] if zero; IdleTimeout the wait
	// for the next piece from there on, 60 s if zero.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider asks one model. It is safe for concurrent use.
type Provider struct {
	opts     Options
	vendor   upstream.Vendor
	messages anthropic.MessageService
	effort   anthropic.OutputConfigEffort // beside thinking, "" = the model's default
}

// New returns a provider. It returns an [agentsvc.InvalidError] for options that cannot work, and calls nobody.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("anthropic: an HTTP client is required")
	}
	if opts.Name == "" {
		opts.Name = "anthropic"
	}
	if opts.Model == "" {
		opts.Model = "claude-haiku-4-5"
	}
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	effort := opts.thinkingEffort()
	if err := opts.applyTokenLimits(); err != nil {
		return nil, err
	}
	p := &Provider{opts: opts, effort: effort}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, EndMarker: "event:message_stop", RefineError: refineError}
	clientOptions := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL),
		option.WithHTTPClient(p.vendor.NewClient(opts.HTTP)),
		option.WithMaxRetries(0),
		// Else the environment decides whether spans hold prompts.
		option.WithoutOpenTelemetry(),
		option.WithOpenTelemetryPropagation(false),
	}
	if opts.APIKey != "" {
		clientOptions = append(clientOptions, option.WithAPIKey(opts.APIKey))
	}
	p.messages = anthropic.NewMessageService(clientOptions...)
	return p, nil
}

// Stream asks the model once. Tool calls are yielded when the answer is whole, never from one that broke off; what the
// model thought is not yielded, but goes with the calls it led to. It returns an [agentsvc.InvalidError] for a file
// that the API does not take.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		return func(yield func([]llm.Chunk, error) bool) {
			params, err := p.encodeRequest(req)
			if err != nil {
				yield(nil, err)
				return
			}
			p.readStream(ctx, params, newAnswerDecoder(upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req)), yield)
		}
	})
}

func (p *Provider) readStream(ctx context.Context, params anthropic.MessageNewParams, a *answerDecoder, yield func([]llm.Chunk, error) bool) {
	stream := p.messages.NewStreaming(ctx, params)
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		ev := stream.Current()
		if ev.Type == "message_stop" {
			break
		}
		chunks, err := a.addEvent(ev)
		if !yield(chunks, err) || err != nil {
			return
		}
	}
	if err := stream.Err(); err != nil {
		yield(nil, translateStreamError(err))
		return
	}
	yield(a.finishAnswer())
}

// translateStreamError tells an error that the server reports in the middle of an answer from others.
func translateStreamError(err error) error {
	var reported *anthropic.Error
	if errors.As(err, &reported) {
		return upstream.ErrReported
	}
	return err
}

// refineError adds to e what the type in an error's body says.
func refineError(e *llm.Error, body []byte) {
	var in struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil {
		return // no type; the status says enough
	}
	switch {
	case in.Error.Type == "billing_error", strings.HasPrefix(in.Error.Message, "Your credit balance is too low"):
		e.Reason = "the account has no credit left"
		e.Retryable = false
	case strings.HasPrefix(in.Error.Message, "prompt is too long"):
		e.Reason = "the conversation is longer than the model can read"
	case e.Status == http.StatusBadRequest && strings.Contains(in.Error.Message, "`temperature`"):
		e.Reason = "it takes no such temperature: leave temperature out"
	case e.Status == http.StatusBadRequest && strings.Contains(in.Error.Message, "thinking."):
		e.Reason = "it cannot think as it was told to: leave thinking out"
	}
}
