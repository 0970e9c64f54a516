// Package gemini implements llm.Provider with Google's Gemini API, through the official client. The client reads the
// environment when it is created, but key, address and backend are always given explicitly, so a tenant's base URL
// never receives the operator's key.
package gemini

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"regexp"
	"strings"
	"time"

	"google.golang.org/genai"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is the server that is called if [Options] name none.
const BaseURL = "https://generativelanguage.googleapis.com/"

// Options describe one model on one server. HTTP is required; it must enforce the egress rules, see package egress.
type Options struct {
	// Name is the provider's name in errors and usage, "gemini" if empty.
	Name string
	// Model is the vendor's name of the model, "gemini-2.5-pro" if empty.
	Model string
	// APIKey is sent if it is not empty.
	APIKey  string
	BaseURL string
	HTTP    *http.Client
	// Temperature is nil for the server's default.
	Temperature *float64
	// MaxTokens bounds one answer, 0 = the server's default.
	MaxTokens int64
	// FirstTimeout bounds the wait for the first piece of an answer, 0 = [upstream.DefaultFirstTimeout]; IdleTimeout
	// the wait for each later one, 0 = 60 s.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider calls one model. It is read-only and safe for concurrent use.
type Provider struct {
	opts Options
	// vendor describes the protocol to package upstream; models is the client, which sends through it.
	vendor upstream.Vendor
	models *genai.Models
}

// keyHeader carries the API key. The client requires a key and would take one from the environment, so it gets
// placeholderKey, and PrepareRequest replaces the header.
const (
	keyHeader      = "X-Goog-Api-Key"
	placeholderKey = "none"
)

// New returns a provider. It returns an error with [agentsvc.CodeInvalid] for options that cannot work. It makes no
// request.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("gemini: an HTTP client is required")
	}
	opts.Name, opts.Model, opts.BaseURL = cmp.Or(opts.Name, "gemini"), cmp.Or(opts.Model, "gemini-2.5-pro"), cmp.Or(opts.BaseURL, BaseURL)
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	p := &Provider{opts: opts}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, EndOnReadError: true, RefineError: refineError, PrepareRequest: func(req *http.Request) {
		// Replace the placeholder by the configured key, or by none.
		req.Header.Del(keyHeader)
		if opts.APIKey != "" {
			req.Header.Set(keyHeader, opts.APIKey)
		}
	}}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: placeholderKey, HTTPClient: p.vendor.NewClient(opts.HTTP),
		HTTPOptions: genai.HTTPOptions{BaseURL: opts.BaseURL},
	})
	if err != nil {
		// The library's error may quote the configuration.
		return nil, errors.New("gemini: the client cannot be made")
	}
	p.models = client.Models
	return p, nil
}

// Stream makes one call, see [llm.Provider]. Tool calls are yielded when the answer is complete, never from one that
// broke off. Thoughts are not yielded, but their signatures are attached to the calls that they led to. A file that the
// API does not accept is an error with [agentsvc.CodeInvalid].
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, req, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		return func(yield func([]llm.Chunk, error) bool) {
			contents, config, err := p.encodeRequest(req)
			if err != nil {
				yield(nil, err)
				return
			}
			a := &answerDecoder{AnswerBuilder: upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req)}
			p.readStream(ctx, contents, config, a, yield)
		}
	})
}

// readStream sends the request and yields the chunks of each event.
func (p *Provider) readStream(ctx context.Context, contents []*genai.Content, config *genai.GenerateContentConfig, a *answerDecoder, yield func([]llm.Chunk, error) bool) {
	// Pulled instead of ranged over, so that nextEvent can recover a panic of the library for each event.
	next, stop := iter.Pull2(p.models.GenerateContentStream(ctx, p.opts.Model, contents, config))
	defer stop()
	for {
		ev, ok, err := nextEvent(next)
		switch {
		case err != nil:
			yield(nil, translateStreamError(err))
			return
		case !ok:
			yield(a.finishAnswer())
			return
		}
		chunks, err := a.addEvent(ev)
		if !yield(chunks, err) || err != nil {
			return
		}
	}
}

// nextEvent returns the next event of a stream. The client panics on JSON of an unexpected shape, which a tenant's
// server may send; that becomes [upstream.ErrMalformed].
func nextEvent(next func() (*genai.GenerateContentResponse, error, bool)) (ev *genai.GenerateContentResponse, ok bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			ev, ok, err = nil, true, fmt.Errorf("%w: %T", upstream.ErrMalformed, v)
		}
	}()
	ev, err, ok = next()
	return ev, ok, err
}

// translateStreamError returns upstream.ErrReported for an error that the server reports within an answer,
// upstream.ErrMalformed for an unreadable event, and err otherwise. The library has no type for the second one, only a
// prefix.
func translateStreamError(err error) error {
	var reported genai.APIError
	switch {
	case errors.As(err, &reported):
		return upstream.ErrReported
	case strings.HasPrefix(err.Error(), "iterateResponseStream: "):
		return upstream.ErrMalformed
	}
	return err
}

// formatRefusal matches the texts of errors about the format of the answer, for which the API has no code of its own.
var formatRefusal = regexp.MustCompile(`(?i)response_?(?:json_?)?schema|response mime type|json mode|too many states`)

// refineError refines e by the error details in the body: an invalid key has status 400, and the wait is not in a
// header.
func refineError(e *llm.Error, body []byte) {
	var in struct {
		Error struct {
			Message string `json:"message"`
			Details []struct {
				Reason     string `json:"reason"`
				RetryDelay string `json:"retryDelay"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil {
		return // the status is enough
	}
	if e.Status == http.StatusBadRequest && formatRefusal.MatchString(in.Error.Message) {
		e.Reason = llm.ReasonFormatRefused
	}
	for _, d := range in.Error.Details {
		// An invalid key is answered with 400, which would read as an invalid request.
		if d.Reason == "API_KEY_INVALID" {
			e.Reason = llm.StatusReason(http.StatusUnauthorized)
		}
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil && wait > e.RetryAfter {
			e.RetryAfter = min(wait, 24*time.Hour)
		}
	}
}
