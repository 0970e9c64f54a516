package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newLeakyServer starts a server that requires a key and repeats the key it was sent in its responses: as a web page,
// and as an MCP server with the tool buy, whose call fails on request.
func newLeakyServer(t *testing.T) string {
	t.Helper()
	const key = "right-canary"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		brought := r.Header.Get("Authorization")
		if brought != "Bearer "+key && (brought != "" || r.URL.Path != "/mcp") {
			w.Header().Set("WWW-Authenticate", brought)
			http.Error(w, "not with "+brought, http.StatusUnauthorized)
			return
		}
		if r.URL.Path != "/mcp" {
			fmt.Fprint(w, "you brought "+brought)
			return
		}
		var request struct {
			ID     any
			Method string
			Params struct {
				Arguments struct{ Fail bool }
			}
		}
		if json.NewDecoder(r.Body).Decode(&request) != nil || request.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": request.ID}
		switch {
		case request.Method == "initialize":
			answer["result"] = map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": brought, "version": "1"}}
		case request.Method == "tools/list":
			answer["result"] = map[string]any{"tools": []any{map[string]any{"name": "buy", "inputSchema": map[string]any{"type": "object"}}}}
		case request.Method == "tools/call" && !request.Params.Arguments.Fail:
			answer["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "bought with " + brought}}}
		default:
			answer["error"] = map[string]any{"code": -32000, "message": "failed with " + brought}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

const leakyConfig = `
llms:
  m:
    provider: scripted
    script:
      - when: {tool_result: fetch}
        then: [{say: "{{result}}"}]
      - when: {tool_result: page}
        then: [{say: "{{result}}"}]
      - when: {tool_result: buy}
        then: [{say: "{{result}}"}]
      - when: {text: "^fail$"}
        then: [{call: {tool: buy, arguments: {fail: true}}}]
      - when: {text: "^buy$"}
        then: [{call: {tool: buy, arguments: {fail: false}}}]
      - when: {text: "^fetch$"}
        then: [{call: {tool: fetch, arguments: {url: "URL/x"}}}]
      - when: {text: "^page$"}
        then: [{call: {tool: page, arguments: {url: "URL/x"}}}]
tools:
  fetch: {type: function, handler: http_request, credential: {url: "URL"}}
  page: {type: function, handler: web_fetch, credential: {url: "URL"}}
  shop: {url: "URL/mcp", credential: {}}
agents: {assistant: {llm: m, tools: [fetch, page, shop]}}
`

// sharedBuffer is a buffer that is safe for concurrent writers.
type sharedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *sharedBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// TestCredentialCanary searches for credentials that users supply in every response, in the log, in every table, in
// the metrics and in exported traces: they are in none of them, even if the tool's server repeats them. Messages of
// users are in none of the last three.
func TestCredentialCanary(t *testing.T) {
	t.Setenv("OTEL_LOGS_EXPORTER", "otlp")
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	for engine, database := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "stoa.db") },
		"postgres": func(t *testing.T) string { return dbtest.NewPostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			var log, reported sharedBuffer
			exported := newCollector(t)
			measured := filepath.Join(t.TempDir(), "stoa.yaml")
			if err := os.WriteFile(measured, []byte("llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\nobservability: {metrics: {enabled: true}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			h := openServerWith(t, database(t), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), measured)
			src := strings.ReplaceAll(leakyConfig, "URL", newLeakyServer(t))
			h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": src, "grants": []string{"private_network"}})
			ana, eve := h.createToken(t, "acme", "ana", nil), h.createToken(t, "acme", "eve", nil)
			request := func(token, method string, params any) string {
				_, body := h.doRequest(t, "POST", "/agents/assistant", token, newRPCCall(method, params))
				fmt.Fprintln(&reported, body)
				return body
			}
			supply := func(token, id, tool string, value any) string {
				data := map[string]any{"type": "tool_credential", "tool": tool, "value": value}
				return request(token, "message:send", map[string]any{"message": map[string]any{
					"role": "user", "task_id": id, "message_id": "m", "parts": []any{map[string]any{"type": "data", "data": data}},
				}})
			}
			for _, c := range []struct{ text, tool, says string }{
				{"fetch", "fetch", "you brought [credential]"}, {"page", "page", "you brought [credential]"},
				{"buy", "shop", "bought with [credential]"}, {"fail", "", "failed with [credential]"},
			} {
				end := request(ana, "message:send", newTextMessage(c.text))
				var out struct {
					Result struct {
						TaskID string `json:"task_id"`
					}
				}
				if err := json.Unmarshal([]byte(end), &out); err != nil {
					t.Fatal(err)
				}
				id := out.Result.TaskID
				if c.tool != "" {
					if !strings.Contains(end, `"auth_required"`) {
						t.Fatalf("%s: %s", c.text, end)
					}
					supply(eve, id, c.tool, "Bearer eves-canary")
					supply(ana, id, c.tool, "Bearer long-canary"+strings.Repeat("x", 10_000))
					supply(ana, id, c.tool, "Bearer bad-canary\n")
					supply(ana, id, c.tool, map[string]any{"nested": "deep-canary"})
					supply(ana, id, "other-tool", "Bearer stray-canary")
					if again := supply(ana, id, c.tool, "Bearer wrong-canary"); !strings.Contains(again, `"auth_required"`) {
						t.Fatalf("%s with a wrong one: %s", c.text, again)
					}
					data := map[string]any{"type": "tool_credential", "tool": c.tool, "value": "Bearer right-canary"}
					end = request(ana, "message:stream", map[string]any{"message": map[string]any{
						"role": "user", "task_id": id, "parts": []any{map[string]any{"type": "data", "data": data}},
					}})
				}
				if !strings.Contains(end, `"completed"`) || !strings.Contains(end, c.says) {
					t.Errorf("%s: %s", c.text, end)
				}
				request(ana, "tasks/get", map[string]any{"id": id})
				request(ana, "tasks/subscribe", map[string]any{"id": id, "after": 0})
			}
			for path, token := range map[string]string{"/credentials": ana, "/tasks": ana, "/agents/assistant": ana, "/admin/apps/acme": testSecret, "/admin/audit?app=acme": testSecret} {
				_, body := h.doRequest(t, "GET", path, token, nil)
				fmt.Fprintln(&reported, body)
			}
			rows := strings.Join(h.dumpDatabase(t), "\n")
			if strings.Count(rows, "shop") == 0 || !strings.Contains(rows, "credential: ") {
				t.Fatal("the tables were not read")
			}
			_, _ = h.doRequest(t, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("a-canary that nobody knows what to do with")))
			for _, path := range []string{"/agents/none-canary", "/v1/agents/none-canary/tasks", "/mcp/none-canary", "/openai/v1/models/none-canary"} {
				_, _ = h.doRequest(t, "GET", path, ana, nil)
			}
			dbtest.WaitUntil(t, "the spans and metrics of the last call are exported", func() bool {
				exported.mu.Lock()
				defer exported.mu.Unlock()
				tools := 0
				for _, s := range exported.spans {
					if strings.HasPrefix(s.Name, "execute_tool") {
						tools++
					}
				}
				return tools >= 4 && len(exported.metrics) > 0
			})
			_, page := h.doRequest(t, "GET", "/metrics", "", nil)
			if !strings.Contains(page, `app="acme"`) {
				t.Fatalf("the metrics have nothing of the app: %s", page)
			}
			for where, text := range map[string]string{
				"an answer": reported.String(), "the log": log.String(), "a table": rows, "the metrics": page, "an export": exported.exportedText(),
			} {
				if at := strings.Index(text, "-canary"); at >= 0 {
					t.Errorf("%s holds a credential: ...%s...", where, text[max(0, at-200):min(len(text), at+100)])
				}
			}
		})
	}
}

// dumpDatabase returns everything in the database, one text for each row.
func (ts *testServer) dumpDatabase(t *testing.T) (rows []string) {
	t.Helper()
	q := `SELECT c.relname FROM pg_class c WHERE c.relkind = 'r' AND pg_table_is_visible(c.oid) AND c.relname NOT LIKE 'pg_%'`
	if ts.db.Engine() == db.SQLite {
		q = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'memory_words%'`
	}
	err := ts.db.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
		for _, table := range queryRows(t, s, q) {
			for _, row := range queryRows(t, s, "SELECT * FROM "+table) {
				rows = append(rows, table+": "+row)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestCallPromptsForCredentials checks that stoa call asks for credentials at the terminal.
func TestCallPromptsForCredentials(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	src := strings.ReplaceAll(leakyConfig, "URL", newLeakyServer(t))
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": src, "grants": []string{"private_network"}})
	for name, c := range map[string]struct {
		typed string
		alone bool
		code  int
		on    []string
	}{
		"typed":          {typed: " Bearer wrong \nBearer right-canary\n", on: []string{"Authorization for fetch at http://", "[credential]"}},
		"nobody answers": {typed: "", code: exitWaiting, on: []string{"waits for a credential of yours", "stoa chat assistant --task "}},
		"an empty line":  {typed: "\n", code: exitWaiting, on: []string{"waits for a credential"}},
		"no terminal":    {typed: "Bearer right-canary\n", alone: true, code: exitWaiting, on: []string{"waits for a credential"}},
	} {
		t.Run(name, func(t *testing.T) {
			var both bytes.Buffer
			con := &console{in: strings.NewReader(c.typed), out: &both, err: &both, interactive: !c.alone}
			token := h.createToken(t, "acme", strings.ReplaceAll(name, " ", "-"), nil)
			err := (&callCmd{tenantFlags: h.newTenantFlags(token), Agent: "assistant", Text: "fetch"}).Run(t.Context(), con)
			code := 0
			if err != nil {
				var e *exitError
				if code = exitFailed; errors.As(err, &e) {
					code = e.code
				}
			}
			written := both.String()
			missing := slices.ContainsFunc(c.on, func(want string) bool { return !strings.Contains(written, want) })
			if code != c.code || missing || strings.Contains(written, "canary") {
				t.Errorf("exit %d (%v), wrote %q", code, err, written)
			}
		})
	}
	var e io.Reader = strings.NewReader("")
	if _, ok := (&console{in: e, err: &bytes.Buffer{}}).promptLine(t.Context(), "?", true); ok {
		t.Error("no answer was given")
	}
}
