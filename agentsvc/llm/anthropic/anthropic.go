// Package anthropic implements llm.Provider with Anthropic's messages API, with the event reader of the official client. System prompt
// and tools are marked for the vendor's prompt cache. The package reads neither the environment nor a profile of the
// operator, so a tenant's base URL never receives the operator's credentials.
//
// A call: encodeRequest builds the request, readStream sends it through upstream.Vendor.NewClient, answerDecoder turns
// events into chunks.
package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is the server that is called if [Options] name none.
const BaseURL = "https://api.anthropic.com/"

// Bounds of an answer in tokens. The API requires one.
const (
	// MaxTokens is the longest answer if [Options] set none; the budget for thinking is added to it.
	MaxTokens = 8192
	// MaxTokensThinking is the same for a model that decides itself how much it thinks, where thinking is included.
	MaxTokensThinking = 32_000
	// MinThinking is the least budget for thinking that the API accepts, and the default.
	MinThinking = 1024
)

// Options describe one model on one server. HTTP is required; it must enforce the egress rules, see package egress.
type Options struct {
	// Name is the provider's name in errors and usage, "anthropic" if empty.
	Name string
	// Model is the vendor's name of the model, "claude-haiku-4-5" if empty.
	Model string
	// APIKey is sent if it is not empty.
	APIKey  string
	BaseURL string
	HTTP    *http.Client
	// Temperature is not sent together with Thinking, which the API refuses; nil: the server's default.
	Temperature *float64
	// MaxTokens bounds one answer including its thinking, 0 = see the constant [MaxTokens].
	MaxTokens int64
	// Thinking lets the model think before it answers, for up to ThinkingBudget tokens. A model that accepts no budget
	// gets the corresponding effort, see thinkingEffort.
	Thinking       bool
	ThinkingBudget int64
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
	// effort replaces the thinking budget where the model accepts none, "" = the model's default.
	effort string
}

// New returns a provider. It returns an error with [agentsvc.CodeInvalid] for options that cannot work. It makes no
// request.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("anthropic: an HTTP client is required")
	}
	opts.Name, opts.Model, opts.BaseURL = cmp.Or(opts.Name, "anthropic"), cmp.Or(opts.Model, "claude-haiku-4-5"), cmp.Or(opts.BaseURL, BaseURL)
	// Computed first: applyTokenLimits replaces an unset budget by the default.
	effort := opts.thinkingEffort()
	if err := errors.Join(upstream.CheckBaseURL(opts.BaseURL), opts.applyTokenLimits()); err != nil {
		return nil, err
	}
	p := &Provider{opts: opts, effort: effort}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, EndMarker: "event:message_stop", RefineError: refineError}
	p.client = p.vendor.NewClient(opts.HTTP)
	var err error
	p.url, err = url.JoinPath(opts.BaseURL, "v1/messages")
	return p, err
}

// Stream makes one call, see [llm.Provider]. Tool calls are yielded when the answer is complete, never from one that
// broke off. Thoughts are not yielded, but attached to the calls that they led to. A file that the API does not accept
// is an error with [agentsvc.CodeInvalid].
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, req, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		return func(yield func([]llm.Chunk, error) bool) {
			body, err := p.encodeRequest(req)
			if err != nil {
				yield(nil, err)
				return
			}
			p.readStream(ctx, body, newAnswerDecoder(upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req)), yield)
		}
	})
}

// version is the version of the API in which requests and answers are written.
const version = "2023-06-01"

// readStream sends the request and yields the chunks of each event.
func (p *Provider) readStream(ctx context.Context, body messagesRequest, a *answerDecoder, yield func([]llm.Chunk, error) bool) {
	header := http.Header{"Anthropic-Version": {version}}
	if p.opts.APIKey != "" {
		header.Set("X-Api-Key", p.opts.APIKey)
	}
	resp, err := upstream.SendJSON(ctx, p.client, p.url, header, body)
	if err != nil {
		yield(nil, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	events := ssestream.NewDecoder(resp)
	for events.Next() {
		var chunks []llm.Chunk
		ev, err := decodeEvent(events.Event())
		if err == nil && (ev.Type.Value == "" || ev.Type.Value == "ping") {
			continue // it has no news: the wait for the next piece goes on
		}
		if ev.Type.Value == "message_stop" {
			break // it ends the message; nothing that follows is read
		}
		if err == nil {
			chunks, err = a.addEvent(ev)
		}
		if !yield(chunks, err) || err != nil {
			return
		}
	}
	if err := events.Err(); err != nil {
		yield(nil, err)
		return
	}
	yield(a.finishAnswer())
}

// decodeEvent returns an event of the answer, an empty one for an event without data. It returns upstream.ErrReported for an
// error that the server reports within an answer, whose text must not be shown.
func decodeEvent(raw ssestream.Event) (messagesEvent, error) {
	var ev messagesEvent
	if len(bytes.TrimSpace(raw.Data)) == 0 {
		return ev, nil
	}
	err := json.Unmarshal(raw.Data, &ev)
	if raw.Type == "error" || ev.Type.Value == "error" {
		err = upstream.ErrReported
	}
	return ev, err
}

// refineError refines e by the error type in the body, and by known texts where the type is too general.
func refineError(e *llm.Error, body []byte) {
	var in struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil {
		return // the status is enough
	}
	switch {
	case in.Error.Type == "billing_error", strings.HasPrefix(in.Error.Message, "Your credit balance is too low"):
		e.Reason = "the account has no credit left"
		e.Retryable = false
	case strings.HasPrefix(in.Error.Message, "prompt is too long"):
		e.Reason = "the conversation is longer than the model can read"
	case e.Status == http.StatusBadRequest && (strings.Contains(in.Error.Message, "output_config") || strings.Contains(in.Error.Message, "output_format")):
		e.Reason = llm.ReasonFormatRefused
	case e.Status == http.StatusBadRequest && strings.Contains(in.Error.Message, "`temperature`"):
		e.Reason = "it takes no such temperature: leave temperature out"
	case e.Status == http.StatusBadRequest && strings.Contains(in.Error.Message, "thinking."):
		e.Reason = "it cannot think as it was told to: leave thinking out"
	}
}
