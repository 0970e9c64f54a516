// Package gemini speaks to Google's Gemini API through the official client. The client looks at the environment when it
// is made, but nothing of it counts: key, address and backend are always given, so a tenant's base URL never sees the
// operator's key.
package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genai"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is where models are asked if [Options] name no other server.
const BaseURL = "https://generativelanguage.googleapis.com/"

// Options describe one model on one server. HTTP is required; it is the way out, see package egress.
type Options struct {
	Name        string // how errors and usage call the provider, "gemini" if empty
	Model       string // "gemini-2.5-pro" if empty
	APIKey      string // none is sent if empty
	BaseURL     string
	HTTP        *http.Client
	Temperature *float64 // the server's default if nil
	MaxTokens   int64    // of one answer, the server's default if zero
	// FirstTimeout bounds the wait for the first word of an answer, [upstream.DefaultFirstTimeout] if zero; IdleTimeout the wait
	// for the next piece from there on, 60 s if zero.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider asks one model. It is safe for concurrent use.
type Provider struct {
	opts   Options
	vendor upstream.Vendor
	models *genai.Models
}

const (
	keyHeader      = "X-Goog-Api-Key"
	placeholderKey = "none" // the client wants a key, and would take the environment's
)

// New returns a provider. It returns an [agentsvc.InvalidError] for options that cannot work, and calls nobody.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("gemini: an HTTP client is required")
	}
	if opts.Name == "" {
		opts.Name = "gemini"
	}
	if opts.Model == "" {
		opts.Model = "gemini-2.5-pro"
	}
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	p := &Provider{opts: opts}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, EndOnReadError: true, RefineError: refineError, PrepareRequest: func(req *http.Request) {
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
		return nil, errors.New("gemini: the client cannot be made") // its own words may hold the configuration
	}
	p.models = client.Models
	return p, nil
}

// Stream asks the model once. Tool calls are yielded when the answer is whole, never from one that broke off; what the
// model thought is not yielded, but its signature goes with the calls it led to. It returns an [agentsvc.InvalidError]
// for a file that the API does not take.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
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

func (p *Provider) readStream(ctx context.Context, contents []*genai.Content, config *genai.GenerateContentConfig, a *answerDecoder, yield func([]llm.Chunk, error) bool) {
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

// nextEvent returns the next event of a stream. The client panics on JSON of a shape that it does not expect: that is
// [upstream.ErrMalformed].
func nextEvent(next func() (*genai.GenerateContentResponse, error, bool)) (ev *genai.GenerateContentResponse, ok bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			ev, ok, err = nil, true, fmt.Errorf("%w: %T", upstream.ErrMalformed, v)
		}
	}()
	ev, err, ok = next()
	return ev, ok, err
}

// translateStreamError tells what the server says in the middle of an answer, and what cannot be read of it, from other errors.
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

// refineError adds to e what the details in an error's body say.
func refineError(e *llm.Error, body []byte) {
	var in struct {
		Error struct {
			Details []struct {
				Reason     string `json:"reason"`
				RetryDelay string `json:"retryDelay"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil {
		return // no details; the status says enough
	}
	for _, d := range in.Error.Details {
		if d.Reason == "API_KEY_INVALID" {
			e.Reason = llm.StatusReason(http.StatusUnauthorized)
		}
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil && wait > e.RetryAfter {
			e.RetryAfter = min(wait, 24*time.Hour)
		}
	}
}
