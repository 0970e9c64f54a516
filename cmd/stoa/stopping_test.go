package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// stoppingApp is an app whose agent never ends its answer to "endless".
const stoppingApp = `
llms: {m: {provider: scripted, script: [{when: {text: "^endless"}, then: [{say: "one ", pause: 10m}]}, {then: [{say: "You said: {{text}}"}]}]}}
agents:
  assistant: {llm: m}
  hooked: {llm: m, trigger: {type: webhook, secret: a-secret-of-all-the-hooks, webhook_input: {template: "{{.text}}"}}}
`

// TestStopping stops a process while a run executes. From then on no turn is accepted and left behind: while the load
// balancers still send requests a turn starts at once or is refused, and afterwards every protocol refuses it with 503
// and Retry-After.
func TestStopping(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); checkStopping(t, dbtest.NewSQLiteURL(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); checkStopping(t, dbtest.NewPostgresURL(t)) })
}

func checkStopping(t *testing.T, database string) {
	for _, balanced := range []bool{false, true} {
		t.Run(fmt.Sprintf("balanced=%t", balanced), func(t *testing.T) {
			ts, stop := startStoppableServer(t, database)
			if !balanced {
				ts.createApp(t, "acme", stoppingApp)
			}
			ana := ts.createToken(t, "acme", "ana", nil)
			conn := ts.dialGRPC(t)
			socket := ts.dialWebSocket(t, ana)
			busy := newTextMessage("endless", "context_id", fmt.Sprint("busy-", balanced))
			task := ts.sendNonBlocking(t, ana, busy, http.StatusOK)
			dbtest.WaitUntil(t, "the run is at work", func() bool { return ts.Execution.Inflight() == 1 })
			if balanced {
				ts.requireStatus(t, http.StatusOK, nil, "GET", "/ready", "", nil)
			}
			stop()
			// Cancelling is no new work. It ends the run, and with it the shutdown.
			defer ts.requireStatus(t, http.StatusOK, nil, "POST", "/a2a/assistant/tasks/"+task.Result.TaskID+":cancel", ana, map[string]any{})
			if balanced {
				dbtest.WaitUntil(t, "it is not ready", func() bool {
					status, _ := ts.doRequest(t, "GET", "/ready", "", nil)
					return status == http.StatusServiceUnavailable
				})
				if got := ts.sendNonBlocking(t, ana, newTextMessage("hi"), http.StatusOK); got.Result.Status.State == "submitted" {
					t.Errorf("while the balancers still send requests a task is %s, want it started", got.Result.Status.State)
				}
				ts.sendNonBlocking(t, ana, busy, http.StatusServiceUnavailable)
				for range 3 {
					ts.requireStatus(t, http.StatusServiceUnavailable, nil, "GET", "/ready", "", nil)
				}
			}
			dbtest.WaitUntil(t, "it accepts no turn", func() bool {
				_, end, err := ts.Execution.RunPool.BeginTurn()
				if err == nil {
					end()
				}
				return err != nil
			})
			ts.checkRefusesTurns(t, ana)
			if answer, err := callGRPC(t, conn, ana, service10+"SendMessage", `{"message":{"messageId":"g","role":"ROLE_USER","parts":[{"text":"hi"}]}}`, "assistant"); grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("gRPC: %s %v, want UNAVAILABLE", answer, err)
			}
			if frame := exchangeFrame(t, socket, newTextMessage("hi")); !strings.Contains(frame, `"UNAVAILABLE"`) {
				t.Errorf("WebSocket: %s, want UNAVAILABLE", frame)
			}
		})
	}
}

// TestStopped stops a process whose run does not end in time: the last line of its log has the duration and the run that
// was returned to the queue.
func TestStopped(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	t.Run("serves", func(t *testing.T) {
		port, host, none, database := 0, "127.0.0.1", time.Duration(0), dbtest.NewSQLiteURL(t)
		h, err := openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host, ShutdownTimeout: &none},
			slog.New(slog.NewTextHandler(&log, nil)), exampleConfig)
		if err != nil {
			t.Fatal(err)
		}
		ts := startTestServer(t, h)
		ts.createApp(t, "acme", stoppingApp)
		ts.sendNonBlocking(t, ts.createToken(t, "acme", "ana", nil), newTextMessage("endless"), http.StatusOK)
		dbtest.WaitUntil(t, "the run is at work", func() bool { return ts.Execution.Inflight() == 1 })
	})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if last := lines[len(lines)-1]; !regexp.MustCompile(`level=INFO msg=stopped duration=[0-9.e-]+ returned_runs=1$`).MatchString(last) {
		t.Errorf("the last line is %s, of\n%s", last, log.String())
	}
}

// checkRefusesTurns sends a message over each protocol of HTTP: all answer 503 with Retry-After, and no task is created.
func (ts *testServer) checkRefusesTurns(t *testing.T, token string) {
	t.Helper()
	count := func() (list struct{ TotalSize int }) {
		ts.requireStatus(t, http.StatusOK, &list, "GET", "/v1/agents/assistant/tasks", token, nil)
		return list
	}
	before := count()
	requests := map[string]*http.Request{"webhook": ts.newSignedDelivery(t, "acme", "hi", "http://localhost/none")}
	for _, d := range dialectRequests {
		requests[d.name] = ts.newRequest(t, "POST", d.path, token, d.body("hi"))
	}
	for _, path := range []string{"/v1/agents/assistant/message:stream", "/a2a/assistant/message:stream"} {
		requests[path] = ts.newRequest(t, "POST", path, token, newA2AParams(unknownIDs, map[string]any{"text": "hi"}))
	}
	for name, req := range requests {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, Retry-After %q; want 503 and a time", name, resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
	if after := count(); before.TotalSize == 0 || after != before {
		t.Errorf("the refused messages have changed the number of tasks from %d to %d", before.TotalSize, after.TotalSize)
	}
}

// startStoppableServer serves on database until stop is called, as SIGTERM does, at the latest until the test ends. A
// balancer is awaited for a minute.
func startStoppableServer(t *testing.T, database string) (ts *testServer, stop func()) {
	t.Helper()
	port, host, delay := 0, "127.0.0.1", time.Minute
	h, err := openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host, ShutdownTimeout: &delay, DrainDelay: &delay}, newTestLog(t), exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveUntilStopped(t, h, l)
}

// sendNonBlocking sends a message that does not wait for its task.
func (ts *testServer) sendNonBlocking(t *testing.T, token string, params map[string]any, want int) (got taskAnswer) {
	t.Helper()
	params["configuration"] = map[string]any{"blocking": false}
	ts.requireStatus(t, want, &got, "POST", "/agents/assistant", token, newRPCCall("message:send", params))
	return got
}

// dialWebSocket opens a WebSocket to the agent.
func (ts *testServer) dialWebSocket(t *testing.T, token string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), ts.url+"/v1/agents/assistant/stream", &websocket.DialOptions{Subprotocols: []string{"bearer." + token}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// exchangeFrame sends a message over a WebSocket and returns the next frame.
func exchangeFrame(t *testing.T, conn *websocket.Conn, body any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, websocket.MessageText, raw); err != nil {
		t.Fatal(err)
	}
	_, frame, err := conn.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(frame)
}
