// Package model is a stand-in for a model vendor: an OpenAI-compatible chat completions server on the loopback
// address that gives a fixed answer. The model's name in the request says how long and how fast: "tokens-100" is a
// hundred tokens at once, "tokens-100-1ms" one token a millisecond. "stamp" sends one token that contains the time.
package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// token is what every chunk of an answer carries.
const token = "word "

// maxTokens bounds one answer.
const maxTokens = 100_000

var errName = errors.New("the model's name is not tokens-N or tokens-N-PACE")

// Name is the model that answers with n tokens, one each pace; a pace of 0 sends them at once.
func Name(n int, pace time.Duration) string {
	if pace == 0 {
		return fmt.Sprintf("tokens-%d", n)
	}
	return fmt.Sprintf("tokens-%d-%s", n, pace)
}

func parseName(name string) (n int, pace time.Duration, err error) {
	rest, ok := strings.CutPrefix(name, "tokens-")
	if !ok {
		return 0, 0, errName
	}
	count, rhythm, paced := strings.Cut(rest, "-")
	if n, err = strconv.Atoi(count); err != nil || n < 1 || n > maxTokens {
		return 0, 0, errName
	}
	if paced {
		if pace, err = time.ParseDuration(rhythm); err != nil || pace <= 0 {
			return 0, 0, errName
		}
	}
	return n, pace, nil
}

// Answer is the whole text of the model that answers with n tokens.
func Answer(n int) string { return strings.Repeat(token, n) }

// Handler serves POST /v1/chat/completions, streamed or whole, and 200 on /health.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/chat/completions", complete)
	return mux
}

func complete(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model         string `json:"model"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, `{"error":{"message":"the body is not JSON"}}`, http.StatusBadRequest)
		return
	}
	if req.Model == Stamp {
		stamp(w, r)
		return
	}
	n, pace, err := parseName(req.Model)
	if err != nil {
		http.Error(w, fmt.Sprintf(`{"error":{"message":%q}}`, err), http.StatusNotFound)
		return
	}
	usage := fmt.Sprintf(`{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}`, n, n+10)
	if req.Stream {
		stream(w, r, req.Model, n, pace, usage, req.StreamOptions.IncludeUsage)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"finish_reason":"stop",`+
		`"message":{"role":"assistant","content":%q}}],"usage":%s}`, req.Model, Answer(n), usage)
}

func stream(w http.ResponseWriter, r *http.Request, name string, n int, pace time.Duration, usage string, withUsage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	chunk := func(choices, usage string) { writeChunk(w, name, choices, usage) }
	start := time.Now()
	for i := range n {
		if pace > 0 && !sleepUntil(r, start.Add(time.Duration(i)*pace)) {
			return
		}
		chunk(`{"index":0,"delta":{"role":"assistant","content":"`+token+`"},"finish_reason":null}`, "")
		if pace > 0 && out.Flush() != nil {
			return
		}
	}
	chunk(`{"index":0,"delta":{},"finish_reason":"stop"}`, "")
	if withUsage {
		chunk("", `,"usage":`+usage)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func writeChunk(w io.Writer, name, choices, usage string) {
	fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":%q,"choices":[%s]%s}`+"\n\n", name, choices, usage)
}

const (
	// Stamp is the model whose only token is [Mark] with the time it was sent at, in microseconds since 1970, behind it.
	// It is sent a while after the request, so that the client is done with everything else.
	Stamp = "stamp"
	// Mark is what stands before that time.
	Mark = "sent-at-"
)

func stamp(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	if out.Flush() != nil || !sleepUntil(r, time.Now().Add(50*time.Millisecond)) {
		return
	}
	content := fmt.Sprintf("%s%d", Mark, time.Now().UnixMicro())
	writeChunk(w, Stamp, `{"index":0,"delta":{"role":"assistant","content":"`+content+` "},"finish_reason":null}`, "")
	if out.Flush() != nil || !sleepUntil(r, time.Now().Add(5*time.Millisecond)) {
		return
	}
	writeChunk(w, Stamp, `{"index":0,"delta":{},"finish_reason":"stop"}`, "")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// sleepUntil reports whether the caller is still there at that time.
func sleepUntil(r *http.Request, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return r.Context().Err() == nil
	}
	select {
	case <-r.Context().Done():
		return false
	case <-time.After(wait):
		return true
	}
}
