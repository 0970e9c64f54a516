package app_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/billing"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// TestImplausibleUsage: what a model's server says a call has used is counted as far as the call can have used it.
func TestImplausibleUsage(t *testing.T) {
	t.Parallel()
	const visible = len("Hello.")
	for name, c := range map[string]struct {
		in, out, read int64
		options       string
		parts         []agentsvc.Part
		wantOut       int64
		most          int64 // input; 0 = what was said
		estimated     bool
	}{
		"honest":                {in: 900, out: 3, wantOut: 3},
		"honest thoughts":       {in: 900, out: 100_000, wantOut: 100_000},
		"honest about a file":   {in: 500_000, out: 3, wantOut: 3, parts: []agentsvc.Part{{File: &agentsvc.File{Name: "a.png", MediaType: "image/png", URI: "https://example.com/a.png"}}}},
		"much put out":          {in: 9, out: 1 << 39, wantOut: 128<<10 + int64(visible), estimated: true},
		"beyond max_tokens":     {in: 9, out: 1000, wantOut: 64, options: "max_tokens: 64", estimated: true},
		"much taken in":         {in: 1 << 39, out: 3, wantOut: 3, most: 6000, estimated: true},
		"much out of the cache": {in: 1 << 39, out: 3, read: 1 << 38, wantOut: 3, most: 6000, estimated: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, delta(`{"content":"Hello."}`, `"stop"`))
				_, _ = fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", c.in, c.out, c.read)
			}))
			t.Cleanup(srv.Close)
			d := dbtest.SQLite(t)
			books, err := billing.Open(t.Context(), d, signal.New(nil, nil), billing.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			src := fmt.Sprintf("llms: {m: {provider: openai, model: m, api_key: k, base_url: %q, %s}}\nagents: {helper: {llm: m, input_modes: [text/plain, image/png]}}", srv.URL, c.options)
			a := houseOf(t, d, parsed(t, src, config.Options{}), inside, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), func(h *app.House) { h.Billing = books })
			sub := say("hello")
			sub.Message.Parts = append(sub.Message.Parts, c.parts...)
			if told, _ := call(t, a, sub); told.Status.State != agentsvc.Completed {
				t.Fatalf("%s %q", told.Status.State, told.Status.Message.Text())
			}
			var in, out, read int64
			var estimated bool
			var b db.Batch
			b.Query(func(r db.Row) error { return r.Scan(&in, &out, &read, &estimated) },
				`SELECT input_tokens, output_tokens, cache_read_tokens, estimated FROM usage WHERE kind = 'model'`)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if out != c.wantOut || estimated != c.estimated || read > in || c.most == 0 && in != c.in || c.most > 0 && (in > c.most || in < 1000) {
				t.Errorf("counted are %d in, %d of them from the cache, and %d out, estimated: %v", in, read, out, estimated)
			}
			if told := strings.Contains(log.String(), "more than it can have"); told != c.estimated {
				t.Errorf("the log: %s", log.String())
			}
		})
	}
}
