// Package ollama implements llm.Provider with the chat endpoint of an Ollama server (POST /api/chat). It does not use
// the official client, which may sign requests with the key of the operator's account on this machine and allocates a
// buffer of 8 MB for each call, nor the official structs, which come with 57 MB of other code.
package ollama

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is the server that is called if [Options] name none.
const BaseURL = "http://localhost:11434"

// Options describe one model on one server. HTTP is required; it must enforce the egress rules, see package egress.
type Options struct {
	// Name is the provider's name in errors and usage, "ollama" if empty.
	Name string
	// Model is the server's name of the model, "qwen3" if empty.
	Model string
	// APIKey is sent as a bearer token if it is not empty. Ollama itself needs none; a proxy may.
	APIKey  string
	BaseURL string
	HTTP    *http.Client
	// Temperature is nil for the model's default.
	Temperature *float64
	// MaxTokens bounds one answer, 0 = the model's default.
	MaxTokens int64
	// FirstTimeout bounds the wait for the first piece of an answer, 0 = [upstream.DefaultFirstTimeout]; IdleTimeout
	// the wait for each later one, 0 = 60 s.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider calls one model. It is read-only and safe for concurrent use.
type Provider struct {
	opts Options
	// vendor describes the protocol to package upstream; httpClient sends through it.
	vendor     upstream.Vendor
	httpClient *http.Client
	// chatURL is the address of the chat endpoint.
	chatURL string
}

// New returns a provider. It returns an error with [agentsvc.CodeInvalid] for options that cannot work. It makes no
// request.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("ollama: an HTTP client is required")
	}
	opts.Name, opts.Model, opts.BaseURL = cmp.Or(opts.Name, "ollama"), cmp.Or(opts.Model, "qwen3"), cmp.Or(opts.BaseURL, BaseURL)
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	chat, err := url.JoinPath(opts.BaseURL, "api/chat")
	if err != nil {
		return nil, err
	}
	p := &Provider{opts: opts, chatURL: chat}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, LineDelimited: true, RefineError: refineError}
	p.httpClient = p.vendor.NewClient(opts.HTTP)
	return p, nil
}

// formatRefusal matches the texts of errors about the format of the answer, for which the server has no code. They come
// with any status, also in the middle of an answer.
var formatRefusal = regexp.MustCompile(`(?i)(?:schema|grammar|vocabulary).*format|format.*(?:schema|grammar)|invalid format`)

// refineError refines e by the text in the body. Another attempt would be refused too.
func refineError(e *llm.Error, body []byte) {
	var in struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &in) == nil && formatRefusal.MatchString(in.Error) {
		e.Reason, e.Retryable = llm.ReasonFormatRefused, false
	}
}

// Stream makes one call, see [llm.Provider]. Tool calls are yielded when the answer is complete, never from one that
// broke off. Thoughts are dropped. A file that the API does not accept is an error with [agentsvc.CodeInvalid].
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, req, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		return func(yield func([]llm.Chunk, error) bool) {
			body, err := p.encodeRequest(req)
			if err != nil {
				yield(nil, err)
				return
			}
			p.readAnswer(ctx, body, &answerDecoder{provider: p.opts.Name, AnswerBuilder: upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req)}, yield)
		}
	})
}

// readAnswer sends the request and yields the chunks of each line. A line without a newline is the rest of a body that
// ended early.
func (p *Provider) readAnswer(ctx context.Context, body *chatRequest, a *answerDecoder, yield func([]llm.Chunk, error) bool) {
	header := http.Header{}
	if p.opts.APIKey != "" {
		header.Set("Authorization", "Bearer "+p.opts.APIKey)
	}
	resp, err := upstream.SendJSON(ctx, p.httpClient, p.chatURL, header, body)
	if err != nil {
		yield(nil, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	// Each line is one event. The last one may come without a newline.
	for {
		line, err := lines.ReadBytes('\n') // upstream bounds a line
		if err != nil && !errors.Is(err, io.EOF) {
			yield(nil, err)
			return
		}
		if len(bytes.TrimSpace(line)) > 0 {
			chunks, bad := a.decodeLine(line, err == nil)
			if !yield(chunks, bad) || bad != nil {
				return
			}
		}
		if err != nil {
			yield(a.finishAnswer())
			return
		}
	}
}
