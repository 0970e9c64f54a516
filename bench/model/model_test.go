package model_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"stoa/bench/load"
	"stoa/bench/model"
)

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(model.Handler())
	t.Cleanup(srv.Close)
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"whole", `{"model":"tokens-3"}`, 200, `"content":"word word word "`},
		{"streamed", `{"model":"tokens-3","stream":true}`, 200, "data: [DONE]\n\n"},
		{"usage when asked for", `{"model":"tokens-3","stream":true,"stream_options":{"include_usage":true}}`, 200, `"completion_tokens":3`},
		{"unknown model", `{"model":"gpt"}`, 404, "tokens-N"},
		{"bad pace", `{"model":"tokens-3-x"}`, 404, "tokens-N"},
		{"no tokens", `{"model":"tokens-0"}`, 404, "tokens-N"},
		{"no JSON", `{`, 400, "not JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, got := post(t, srv.URL, tt.body)
			if status != tt.status || !strings.Contains(got, tt.want) {
				t.Errorf("answer = %d %s, want %d with %s", status, got, tt.status, tt.want)
			}
		})
	}
}

func TestStreamHoldsEveryToken(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(model.Handler())
	t.Cleanup(srv.Close)
	_, got := post(t, srv.URL, `{"model":"tokens-7","stream":true}`)
	text := ""
	for line := range strings.Lines(got) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		text += chunk.Choices[0].Delta.Content
	}
	if text != model.Answer(7) {
		t.Errorf("text = %q, want %q", text, model.Answer(7))
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(model.Handler())
	t.Cleanup(srv.Close)
	before := time.Now()
	_, got := post(t, srv.URL, `{"model":"stamp","stream":true}`)
	_, rest, _ := strings.Cut(got, model.Mark)
	sent, err := strconv.ParseInt(rest[:strings.IndexByte(rest, ' ')], 10, 64)
	if at := time.UnixMicro(sent); err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("sent at %v (%v): %s", at, err, got)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(model.Handler())
	t.Cleanup(srv.Close)
	const n, pace = 20, 5 * time.Millisecond
	target, err := model.Target(srv.URL, model.Name(n, pace))
	if err != nil {
		t.Fatal(err)
	}
	got, err := load.Run(t.Context(), target, load.Options{Conns: 1, Calls: 1})
	if err != nil || got.Err != nil {
		t.Fatal(err, got.Err)
	}
	if whole, first := got.Whole(50), got.First(50); whole-first < (n-2)*pace {
		t.Errorf("first token after %v, last after %v: faster than one each %v", first, whole, pace)
	}
}
