// Package ollama asks models that an Ollama server runs (POST /api/chat). It does not use the official client, which may
// sign requests with the key of the operator's account on this machine and holds a buffer of 8 MB for each call, nor the
// official structs, which come with 57 MB of other code.
package ollama

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// BaseURL is where models are asked if [Options] name no other server.
const BaseURL = "http://localhost:11434"

// Options describe one model on one server. HTTP is required; it is the way out, see package egress.
type Options struct {
	Name        string // how errors and usage call the provider, "ollama" if empty
	Model       string // "qwen3" if empty
	APIKey      string // sent as a bearer token, where a server wants one
	BaseURL     string
	HTTP        *http.Client
	Temperature *float64 // the model's default if nil
	MaxTokens   int64    // of one answer, the model's default if zero
	// FirstTimeout bounds the wait for the first word of an answer, [upstream.DefaultFirstTimeout] if zero; IdleTimeout the wait
	// for the next piece from there on, 60 s if zero.
	FirstTimeout, IdleTimeout time.Duration
}

// Provider asks one model. It is safe for concurrent use.
type Provider struct {
	opts       Options
	vendor     upstream.Vendor
	httpClient *http.Client
	chatURL    string // address
}

// New returns a provider. It returns an [agentsvc.InvalidError] for options that cannot work, and calls nobody.
func New(opts Options) (*Provider, error) {
	if opts.HTTP == nil {
		return nil, errors.New("ollama: an HTTP client is required")
	}
	if opts.Name == "" {
		opts.Name = "ollama"
	}
	if opts.Model == "" {
		opts.Model = "qwen3"
	}
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	if err := upstream.CheckBaseURL(opts.BaseURL); err != nil {
		return nil, err
	}
	chat, err := url.JoinPath(opts.BaseURL, "api/chat")
	if err != nil {
		return nil, err
	}
	p := &Provider{opts: opts, chatURL: chat}
	p.vendor = upstream.Vendor{Name: opts.Name, FirstTimeout: opts.FirstTimeout, IdleTimeout: opts.IdleTimeout, LineDelimited: true}
	p.httpClient = p.vendor.NewClient(opts.HTTP)
	return p, nil
}

// Stream asks the model once. Tool calls are yielded when the answer is whole, never from one that broke off; what the
// model thought is left out. It returns an [agentsvc.InvalidError] for a file that the API does not take.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return p.vendor.Stream(ctx, func(ctx context.Context) iter.Seq2[[]llm.Chunk, error] {
		return func(yield func([]llm.Chunk, error) bool) {
			out, err := p.newRequest(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			p.readAnswer(out, &answerDecoder{AnswerBuilder: upstream.NewAnswerBuilder(ctx, p.opts.Name, p.opts.Model, req)}, yield)
		}
	})
}

func (p *Provider) newRequest(ctx context.Context, req llm.Request) (*http.Request, error) {
	params, err := p.encodeRequest(req)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, p.chatURL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Type", "application/json")
	if p.opts.APIKey != "" {
		out.Header.Set("Authorization", "Bearer "+p.opts.APIKey)
	}
	return out, nil
}

func (p *Provider) readAnswer(req *http.Request, a *answerDecoder, yield func([]llm.Chunk, error) bool) {
	resp, err := p.httpClient.Do(req)
	if err != nil {
		yield(nil, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n') // the way in bounds a line
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
