package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// tracedApp is an app with a tool, a model, a remote agent and more. %s is the address of a model's server and of
// another agent.
const tracedApp = `
llms:
  m:
    provider: scripted
    model: demo-1
    script:
      - when: {tool_result: calculator}
        then: [{say: "canary-answer {{result}}"}]
      - then: [{call: {tool: calculator, arguments: {expression: "40+2+0*77777"}}}]
  vendor: {provider: openai, model: gpt-canary, base_url: "%[1]s/v1", api_key: canary-api-key}
tools:
  calculator: {type: function, handler: calculator}
agents:
  assistant: {llm: m, tools: [calculator], instruction: canary-instruction}
  broken: {llm: vendor}
  remote: {type: remote, url: "%[1]s/agent"}
observability: {metrics: {enabled: true}}
`

// forbiddenTexts are texts that no exported telemetry may contain.
var forbiddenTexts = []string{"canary-answer", "canary-prompt", "canary-api-key", "canary-instruction", "canary-upstream", "77777", testSecret}

// refusingServer is a server that refuses requests with a canary text and records their trace headers by path.
type refusingServer struct {
	mu     sync.Mutex
	parent map[string]string
}

// ServeHTTP refuses the request.
func (s *refusingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.parent[r.URL.Path] = r.Header.Get("Traceparent")
	s.mu.Unlock()
	http.Error(w, `{"error": {"message": "canary-upstream"}}`, http.StatusBadRequest)
}

func (s *refusingServer) traceParent(path string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parent, ok := s.parent[path]
	return parent, ok
}

// logFile is the log of a server of the test.
type logFile string

// String returns the lines so far.
func (f logFile) String() string {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// openTracedServer serves tracedApp with the logger of a process, and returns what it logs.
func openTracedServer(t *testing.T, database string) (*testServer, *refusingServer, logFile) {
	t.Helper()
	out := &refusingServer{parent: map[string]string{}}
	server := httptest.NewServer(out)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, tracedApp, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := logFile(filepath.Join(t.TempDir(), "stoa.log"))
	return openServerWith(t, database, newProcessLog(t, lines), config), out, lines
}

// TestAppNamesOfServer checks that a server knows the names of its apps for its log: a line about an app by its id has the
// name once the app is loaded.
func TestAppNamesOfServer(t *testing.T) {
	t.Parallel()
	lines := logFile(filepath.Join(t.TempDir(), "stoa.log"))
	h := openServerWith(t, dbtest.NewSQLiteURL(t), newProcessLog(t, lines), exampleConfig)
	h.createApp(t, "acme", stoppingApp)
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", h.createToken(t, "acme", "ana", nil), newRPCCall("message:send", newTextMessage("hi")))
	var app struct{ ID string }
	h.requireStatus(t, http.StatusOK, &app, "GET", "/admin/apps/acme", testSecret, nil)
	h.Log.Warn("something about an app", "tenant", db.ID(app.ID))
	if want := `"msg":"something about an app","tenant":"` + app.ID + `","app":"acme"`; !strings.Contains(lines.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, lines)
	}
}

// newProcessLog returns the logger of a process that writes to file, and to a collector if the environment says so.
func newProcessLog(t *testing.T, file logFile) *slog.Logger {
	t.Helper()
	log, end, err := server.NewLogger(t.Context(), server.LogSettings{Level: "debug", Format: "json", File: string(file)}, version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return log
}

// syncBuffer is a buffer that is safe for concurrent writers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// sendTraced sends a message within a trace of the caller and returns the response.
func (ts *testServer) sendTraced(t *testing.T, trace, agent string, more ...any) string {
	t.Helper()
	req := ts.newRequest(t, "POST", "/agents/"+agent, "", newRPCCall("message:send", newTextMessage("canary-prompt", more...)))
	req.Header.Set("Traceparent", "00-"+trace+"-00000000000000aa-01")
	status, body := ts.sendRequest(t, req)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return body
}

// TestTraces checks that a call is one trace from the caller's span to model, tool and commit, on either engine,
// whether it is executed where it was accepted or comes from the queue; and that the trace has no text of messages.
func TestTraces(t *testing.T) {
	for engine, database := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "stoa.db") },
		"postgres": func(t *testing.T) string { return dbtest.NewPostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			c := newCollector(t)
			h, _, log := openTracedServer(t, database(t))
			live, queued := strings.Repeat("1a", 16), strings.Repeat("2b", 16)
			if got := h.sendTraced(t, live, "assistant"); !strings.Contains(got, "42") {
				t.Fatalf("the answer is %s", got)
			}
			req := h.newRequest(t, "POST", "/agents/assistant", "", newRPCCall("message:send", map[string]any{
				"message": newTextMessage("canary-prompt")["message"], "configuration": map[string]any{"blocking": false}}))
			req.Header.Set("Traceparent", "00-"+queued+"-00000000000000aa-01")
			if status, body := h.sendRequest(t, req); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			parents := map[string]string{
				"enter": "POST /agents/{agent}", "admit": "POST /agents/{agent}", "submit": "POST /agents/{agent}", "run": "submit",
				"invoke_agent assistant": "run", "chat demo-1": "invoke_agent assistant", "execute_tool calculator": "invoke_agent assistant",
			}
			for trace, kind := range map[string]tracepb.Span_SpanKind{live: tracepb.Span_SPAN_KIND_INTERNAL, queued: tracepb.Span_SPAN_KIND_CONSUMER} {
				spans := c.awaitSpans(t, trace, "POST /agents/{agent}", "enter", "admit", "submit", "run", "invoke_agent assistant", "chat demo-1",
					"execute_tool calculator", "commit")
				byID := map[string]*tracepb.Span{}
				for _, s := range spans {
					byID[string(s.SpanId)] = s
				}
				root := findSpan(spans, "POST /agents/{agent}")
				if hex.EncodeToString(root.ParentSpanId) != "00000000000000aa" || root.Kind != tracepb.Span_SPAN_KIND_SERVER {
					t.Errorf("the request's span is %v", root)
				}
				for _, s := range spans {
					above := byID[string(s.ParentSpanId)]
					switch want, known := parents[s.Name]; {
					case s == root:
					case above == nil:
						t.Errorf("%s stands below nothing", s.Name)
					case known && above.Name != want:
						t.Errorf("%s stands below %s, not %s", s.Name, above.Name, want)
					}
				}
				chat := attributeTexts(findSpan(spans, "chat demo-1").Attributes)
				if chat["gen_ai.operation.name"] != "chat" || chat["gen_ai.provider.name"] != "scripted" || chat["gen_ai.request.model"] != "demo-1" || chat["stoa.app"] != "default" {
					t.Errorf("the model's span says %v", chat)
				}
				run := attributeTexts(findSpan(spans, "run").Attributes)
				if findSpan(spans, "run").Kind != kind {
					t.Errorf("the run came another way: %v, want %v", findSpan(spans, "run").Kind, kind)
				}
				if run["stoa.app"] != "default" || run["stoa.state"] != "completed" || run["stoa.task"] == "" || run["stoa.task"] != attributeTexts(findSpan(spans, "submit").Attributes)["stoa.task"] {
					t.Errorf("the run's span says %v", run)
				}
			}
			dialled := strings.Repeat("5e", 16)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "agent-name", "assistant", "traceparent", "00-"+dialled+"-00000000000000aa-01")
			if _, err := pb10.NewA2AServiceClient(h.dialGRPC(t)).GetExtendedAgentCard(ctx, &pb10.GetExtendedAgentCardRequest{}); err != nil {
				t.Fatal(err)
			}
			const method = "lf.a2a.v1.A2AService/GetExtendedAgentCard"
			details := attributeTexts(findSpan(c.awaitSpans(t, dialled, method, "enter"), method).Attributes)
			if details["rpc.system.name"] != "grpc" || details["rpc.method"] != method || details["stoa.app"] != "default" || details["http.route"] != "" {
				t.Errorf("the span of a call over gRPC says %v", details)
			}
			if c.service["service.name"] != "stoa" {
				t.Errorf("the resource is %v", c.service)
			}
			if !strings.Contains(log.String(), live) {
				t.Error("no line of the log names the trace")
			}
		})
	}
}

// TestTracesOutward checks that the trace is propagated to other agents and not to model vendors, and that their
// errors are recorded without their text.
func TestTracesOutward(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_LOGS_EXPORTER", "otlp")
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	h, out, log := openTracedServer(t, "sqlite://:memory:")
	trace := strings.Repeat("3c", 16)
	h.Log.Info("a line of the process")
	for _, agent := range []string{"broken", "remote", "assistant"} {
		h.sendTraced(t, trace, agent)
	}
	spans := c.awaitSpans(t, trace, "chat gpt-canary", "invoke_agent remote")
	chat := findSpan(spans, "chat gpt-canary")
	if chat.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || attributeTexts(chat.Attributes)["error.type"] != "400" {
		t.Errorf("a refused call is %v", chat)
	}
	if parent, ok := out.traceParent("/v1/chat/completions"); !ok || parent != "" {
		t.Errorf("the vendor was asked: %t, and told of the trace: %q", ok, parent)
	}
	if parent, ok := out.traceParent("/agent/.well-known/agent-card.json"); !ok || !strings.HasPrefix(parent, "00-"+trace+"-") {
		t.Errorf("the other agent was asked: %t, and told of the trace: %q", ok, parent)
	}
	_, page := h.doRequest(t, "GET", "/metrics", "", nil)
	dbtest.WaitUntil(t, "logs and metrics", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.logs) > 0 && len(c.metrics) > 0
	})
	for where, text := range map[string]string{"what was exported": c.exportedText(), "the log": log.String(), "the metrics": page} {
		if len(text) < 500 {
			t.Errorf("%s is %q: nothing was held against the canaries", where, text)
		}
		for _, canary := range forbiddenTexts {
			if strings.Contains(text, canary) {
				t.Errorf("%s holds %s", where, canary)
			}
		}
	}
}

// TestTraceContent checks that spans of the default app have message content if the operator enables it, and those of
// other apps never.
func TestTraceContent(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
	h, _, _ := openTracedServer(t, "sqlite://:memory:")
	trace := strings.Repeat("4d", 16)
	h.sendTraced(t, trace, "assistant")
	var got []string
	for _, s := range c.awaitSpans(t, trace, "run", "POST /agents/{agent}") {
		if s.Name == "chat demo-1" {
			got = append(got, attributeTexts(s.Attributes)["gen_ai.output.messages"])
		}
	}
	all := strings.Join(got, " ")
	if !strings.Contains(all, `"name":"calculator"`) || !strings.Contains(all, `"content":"canary-answer 42"`) {
		t.Errorf("the spans say %s", all)
	}
	h.createApp(t, "acme", `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}}`)
	h.requireStatus(t, http.StatusOK, nil, "POST", "/apps/acme/agents/a", h.createToken(t, "acme", "ana", nil), newRPCCall("message:send", newTextMessage("canary-foreign")))
	dbtest.WaitUntil(t, "the spans of acme", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return findSpan(c.spans, "invoke_agent a") != nil
	})
	if strings.Contains(c.exportedText(), "canary-foreign") {
		t.Error("a span holds what another app's caller said")
	}
}

// TestTraceRatio checks that the label of an app decides which fraction of its calls is traced, against the wishes of
// callers and the process's sampler.
func TestTraceRatio(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	h, _, _ := openTracedServer(t, "sqlite://:memory:")
	send := func(app, trace, flags string) {
		t.Helper()
		req := h.newRequest(t, "POST", "/apps/"+app+"/agents/a", h.createToken(t, app, "ana", nil), newRPCCall("message:send", newTextMessage("hello")))
		req.Header.Set("Traceparent", "00-"+trace+"-00000000000000aa-"+flags)
		if status, body := h.sendRequest(t, req); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
	}
	for name, label := range map[string]map[string]string{"never": {"trace_ratio": "0"}, "always": {"trace_ratio": "1"}, "usual": nil} {
		h.createApp(t, name, `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}}`)
		if label != nil {
			h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/"+name, testSecret, map[string]any{"labels": label})
		}
	}
	wants := map[string]bool{"never 01": false, "always 00": true, "usual 00": false, "usual 01": true}
	n := 0
	traces := map[string]string{}
	for which := range wants {
		n++
		app, flags, _ := strings.Cut(which, " ")
		traces[which] = fmt.Sprintf("%032x", n)
		send(app, traces[which], flags)
	}
	c.awaitSpans(t, traces["always 00"], "run", "POST /agents/{agent}")
	c.awaitSpans(t, traces["usual 01"], "run", "POST /agents/{agent}")
	got := map[string]bool{}
	for which, trace := range traces {
		got[which] = len(c.awaitSpans(t, trace)) > 0
	}
	if diff := cmp.Diff(wants, got); diff != "" {
		t.Errorf("what is recorded (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{"2", "-0.1", "half", "NaN", ""} {
		status, body := h.doRequest(t, "PATCH", "/admin/apps/usual", testSecret, map[string]any{"labels": map[string]string{"trace_ratio": wrong}})
		if status != http.StatusBadRequest || !strings.Contains(body, "from 0 to 1") {
			t.Errorf("the ratio %q: %d %s", wrong, status, body)
		}
	}
}

// TestTracesOfRefusedCallers checks that a caller who is not authenticated has no influence on what is recorded.
func TestTracesOfRefusedCallers(t *testing.T) {
	c := newCollector(t)
	h, _, _ := openTracedServer(t, "sqlite://:memory:")
	trace := strings.Repeat("5e", 16)
	req := h.newRequest(t, "POST", "/agents/assistant", "wrong", newRPCCall("message:send", newTextMessage("hello")))
	req.Header.Set("Traceparent", "00-"+trace+"-00000000000000aa-01")
	if status, _ := h.sendRequest(t, req); status != http.StatusUnauthorized {
		t.Fatal(status)
	}
	dbtest.WaitUntil(t, "a span of the refusal", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		s := findSpan(c.spans, "POST /agents/{agent}")
		return s != nil && attributeTexts(s.Attributes)["error.type"] == "UNAUTHENTICATED"
	})
	if got := c.awaitSpans(t, trace); len(got) > 0 {
		t.Errorf("it stands in the trace of whoever was refused: %v", got)
	}
}
