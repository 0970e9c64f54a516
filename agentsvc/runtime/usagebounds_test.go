package runtime_test

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
	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/billing/calendar"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// usageReporters are model servers, by provider, that answer "Hello." and report any number of tokens, with the
// configuration of a model that uses each.
var usageReporters = map[string]struct{ model, body string }{
	"openai": {"provider: openai, model: m, api_key: k", `data: {"choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":#,"completion_tokens":#}}` + "\n\ndata: [DONE]\n\n"},
	"openai responses": {"provider: openai, api: responses, model: m, api_key: k", `data: {"type":"response.output_text.delta","delta":"Hello."}` + "\n\n" +
		`data: {"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":#,"output_tokens":#}}}` + "\n\n"},
	"anthropic": {"provider: anthropic, model: claude-x, api_key: k", "event: message_start\n" + `data: {"type":"message_start","message":{"usage":{"input_tokens":#,"output_tokens":#}}}` + "\n\n" +
		"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n" +
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello."}}` + "\n\n" +
		"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":#}}` + "\n\n" +
		"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"},
	"gemini": {"provider: gemini, model: m, api_key: k", `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":#,"candidatesTokenCount":#}}` + "\n\n"},
	"ollama":   {"provider: ollama, model: m", `{"message":{"role":"assistant","content":"Hello."},"done":true,"done_reason":"stop","prompt_eval_count":#,"eval_count":#}` + "\n"},
	"scripted": {"provider: scripted, script: [{then: [{say: Hello., usage: {input_tokens: #, output_tokens: #}}]}]", ""},
}

// TestReportedUsage checks for each provider that the counted usage of a tenant's model is bounded by the bytes that
// were sent and received, and that a platform budget still covers calls of others. The usage of the operator's own
// script is not bounded.
func TestReportedUsage(t *testing.T) {
	t.Parallel()
	const maxTokens = 1_000_000
	for name, r := range usageReporters {
		for reported, configured := range map[string]bool{"1000000000000": false, "9223372036854775807": false, "-5": false, "700000000": true} {
			if (len(reported) > 13 || reported == "-5" || configured) && name == "scripted" != configured {
				continue // no configuration has such a script, and the operator's own vendors are bounded too
			}
			if name == "gemini" && len(reported) > 2 {
				reported = "2147483647" // its client reads no larger number
			}
			t.Run(name+"/"+reported, func(t *testing.T) {
				t.Parallel()
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, strings.ReplaceAll(r.body, "#", reported))
				}))
				t.Cleanup(srv.Close)
				d := dbtest.NewSQLite(t)
				books, err := billing.Open(t.Context(), d, signal.New(nil, nil), billing.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if !configured {
					platform := budget.Budget{Name: "platform", Unit: budget.InTokens, Amount: maxTokens, Window: calendar.Total, Hard: true}
					if _, err := books.Budgets.AddBudget(t.Context(), audit.Actor{Name: "admin"}, tenancy.App{}, platform); err != nil {
						t.Fatal(err)
					}
				}
				src := "llms: {m: {" + strings.ReplaceAll(r.model, "tokens: #", "tokens: "+reported)
				if r.body != "" {
					src += fmt.Sprintf(", base_url: %q", srv.URL)
				}
				cfg := mustParse(t, src+"}}\nagents: {helper: {llm: m}}", config.Options{})
				a := newAppWith(t, d, cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: configured, PrivateNetwork: true}, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) { h.Billing = books })
				for range 3 {
					if outcome, _ := runTurn(t, a, newSubmission("hello")); outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != "Hello." {
						t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
					}
				}
				var minimum, maximum int64
				var b db.Batch
				b.Query(func(r db.Row) error { return r.Scan(&minimum, &maximum) },
					`SELECT MIN(MIN(input_tokens, output_tokens)), MAX(input_tokens + output_tokens) FROM usage WHERE kind = 'model'`)
				if err := d.Platform().Do(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
				if configured {
					if minimum != 700_000_000 {
						t.Errorf("of the operator's own script %d is counted", minimum)
					}
					return
				}
				if minimum < 0 || maximum > 20_000 {
					t.Errorf("counted are %d to %d tokens of a call", minimum, maximum)
				}
				if spent, err := books.Budgets.FindBudget(t.Context(), "", "platform"); err != nil || spent.Committed > maxTokens/10 || spent.Committed < 0 {
					t.Errorf("of the platform's budget %d is spent (%v)", spent.Committed, err)
				}
			})
		}
	}
}

// TestImplausibleUsage checks that reported usage is counted only up to what the call can have used.
func TestImplausibleUsage(t *testing.T) {
	t.Parallel()
	const visible = len("Hello.")
	for name, c := range map[string]struct {
		in, out, read int64
		options       string
		parts         []agentsvc.Part
		wantOut       int64
		maxInput      int64 // input tokens; 0 for the reported value
		estimated     bool
	}{
		"honest":                {in: 900, out: 3, wantOut: 3},
		"honest thoughts":       {in: 900, out: 100_000, wantOut: 100_000},
		"honest about a file":   {in: 500_000, out: 3, wantOut: 3, parts: []agentsvc.Part{{File: &agentsvc.File{Name: "a.png", MediaType: "image/png", URI: "https://example.com/a.png"}}}},
		"much put out":          {in: 9, out: 1 << 39, wantOut: 128<<10 + int64(visible), estimated: true},
		"beyond max_tokens":     {in: 9, out: 1000, wantOut: 64, options: "max_tokens: 64", estimated: true},
		"much taken in":         {in: 1 << 39, out: 3, wantOut: 3, maxInput: 6000, estimated: true},
		"much out of the cache": {in: 1 << 39, out: 3, read: 1 << 38, wantOut: 3, maxInput: 6000, estimated: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, openAIDelta(`{"content":"Hello."}`, `"stop"`))
				_, _ = fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", c.in, c.out, c.read)
			}))
			t.Cleanup(srv.Close)
			d := dbtest.NewSQLite(t)
			books, err := billing.Open(t.Context(), d, signal.New(nil, nil), billing.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			src := fmt.Sprintf("llms: {m: {provider: openai, model: m, api_key: k, base_url: %q, %s}}\nagents: {helper: {llm: m, input_modes: [text/plain, image/png]}}", srv.URL, c.options)
			a := newAppWith(t, d, mustParse(t, src, config.Options{}), privateNetworkTenant, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), func(h *runtime.Dependencies) { h.Billing = books })
			sub := newSubmission("hello")
			sub.Message.Parts = append(sub.Message.Parts, c.parts...)
			if outcome, _ := runTurn(t, a, sub); outcome.Status.State != agentsvc.Completed {
				t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
			}
			var in, out, read int64
			var estimated bool
			var b db.Batch
			b.Query(func(r db.Row) error { return r.Scan(&in, &out, &read, &estimated) },
				`SELECT input_tokens, output_tokens, cache_read_tokens, estimated FROM usage WHERE kind = 'model'`)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if out != c.wantOut || estimated != c.estimated || read > in || c.maxInput == 0 && in != c.in || c.maxInput > 0 && (in > c.maxInput || in < 1000) {
				t.Errorf("counted are %d in, %d of them from the cache, and %d out, estimated: %v", in, read, out, estimated)
			}
			if outcome := strings.Contains(log.String(), "reported more usage than a call can have"); outcome != c.estimated {
				t.Errorf("the log: %s", log.String())
			}
		})
	}
}

// TestUnreportedUsage checks that a call whose vendor reports no usage is on the task's log with an estimate, and counted once.
func TestUnreportedUsage(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, openAIDelta(`{"content":"Hello."}`, `"stop"`)+"data: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	d := dbtest.NewSQLite(t)
	books, err := billing.Open(t.Context(), d, signal.New(nil, nil), billing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := fmt.Sprintf("llms: {m: {provider: openai, model: m, api_key: k, base_url: %q}}\nagents: {helper: {llm: m}}", srv.URL)
	a := newAppWith(t, d, mustParse(t, src, config.Options{}), privateNetworkTenant, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) { h.Billing = books })
	_, events, err := a.Tasks().Messages.SubmitAndFollow(t.Context(), newSubmission("hello"))
	if err != nil {
		t.Fatal(err)
	}
	var logged []agentsvc.Usage
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Usage != nil {
			logged = append(logged, *ev.Usage)
		}
	}
	if len(logged) != 1 || !logged[0].Estimated || logged[0].InputTokens == 0 || logged[0].OutputTokens == 0 {
		t.Errorf("the log has %+v", logged)
	}
	var rows, out int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&rows, &out) }, `SELECT COUNT(*), SUM(output_tokens) FROM usage WHERE kind = 'model'`)
	if err := d.Platform().Do(t.Context(), &b); err != nil || rows != 1 || out == 0 {
		t.Errorf("%d rows with %d tokens put out are counted (%v)", rows, out, err)
	}
}
