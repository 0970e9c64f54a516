package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// greedyApp has a scripted model that pauses, and one at %s that sends a word now and then and does not end.
const greedyApp = `
llms:
  pauses: {provider: scripted, script: [{when: {text: quick}, then: [{say: "at once"}]}, {then: [{say: "one ", pause: 10m}, {say: two}]}]}
  drips: {provider: openai, api_key: k, model: m, base_url: "%s"}
agents:
  pauses: {llm: pauses}
  drips: {llm: drips}
`

const quietApp = `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}}`

// newEndlessModel starts a model that sends a word every second until its caller disconnects.
func newEndlessModel(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for tick := time.NewTicker(time.Second); ; {
			_, _ = io.WriteString(w, `data: {"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				tick.Stop()
				return
			}
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// openCrowdedServer opens a server with few workers, an app that uses all of them and an app that needs one.
func openCrowdedServer(t *testing.T, database string) (h *testServer, greedy, quiet string) {
	t.Helper()
	port, host, places, shutdownTimeout := 0, "127.0.0.1", 32, time.Duration(0)
	line := server.Flags{Database: &database, Port: &port, Host: &host, MaxInflight: &places, ShutdownTimeout: &shutdownTimeout}
	opened, err := openFlaggedServer(t, line, newTestLog(t), exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	h = startTestServer(t, opened)
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
		"name": "greedy", "config": fmt.Sprintf(greedyApp, newEndlessModel(t)), "grants": []string{"private_network"},
	})
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "quiet", "config": quietApp})
	return h, h.createToken(t, "greedy", "eve", nil), h.createToken(t, "quiet", "ana", nil)
}

// nonBlockingMessage returns the params of a message whose caller does not wait for the result.
func nonBlockingMessage(text string) map[string]any {
	m := newTextMessage(text)
	m["configuration"] = map[string]any{"blocking": false}
	return m
}

// queryNumber returns the number that a query selects.
func (ts *testServer) queryNumber(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, query, args...)
	if err := ts.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// taskView is a task in a response.
type taskView struct {
	Result struct {
		ID     string `json:"task_id"`
		Status struct{ State string }
	} `json:"result"`
}

// onEachDatabase runs f with each engine.
func onEachDatabase(t *testing.T, f func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, dbtest.NewSQLiteURL(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, dbtest.NewPostgresURL(t)) })
}

// TestQueueDuringEndlessRuns fills the queue with one app's runs that pause, or whose model sends a word now and then
// without an end. A queued task of another app starts and ends meanwhile.
func TestQueueDuringEndlessRuns(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"pauses", "drips"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			onEachDatabase(t, func(t *testing.T, database string) {
				h, greedy, quiet := openCrowdedServer(t, database)
				for range 3 * h.Settings.Queue.Workers {
					h.requireStatus(t, http.StatusOK, nil, "POST", "/apps/greedy/agents/"+agent, greedy, newRPCCall("message/send", nonBlockingMessage("go")))
				}
				dbtest.WaitUntil(t, "every worker has a run of the greedy app", func() bool { return h.Execution.RunPool.Inflight() >= h.Settings.Queue.Workers })
				var got taskView
				h.requireStatus(t, http.StatusOK, &got, "POST", "/apps/quiet/agents/a", quiet, newRPCCall("message/send", nonBlockingMessage("hello")))
				id := got.Result.ID
				dbtest.WaitUntil(t, "the quiet app's task ends", func() bool {
					h.requireStatus(t, http.StatusOK, &got, "POST", "/apps/quiet/agents/a", quiet, newRPCCall("tasks/get", map[string]any{"id": id}))
					return got.Result.Status.State == "completed"
				})
				if n := h.queryNumber(t, "SELECT COUNT(*) FROM run WHERE state = 'running'"); n != int64(h.Settings.Queue.Workers) {
					t.Errorf("%d runs of the greedy app are at work, want %d all the while", n, h.Settings.Queue.Workers)
				}
			})
		})
	}
}

// TestLiveDuringBlockingCalls has far more slow blocking calls of one app in progress than there are workers. A
// blocking call of another app starts at once, without the queue. When the callers have disconnected, the first app
// can start such calls again, and its runs continue.
func TestLiveDuringBlockingCalls(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, database string) {
		h, greedy, quiet := openCrowdedServer(t, database)
		// call sends n slow calls at once and returns a function that disconnects their callers.
		call := func(n int) (disconnect func()) {
			ctx, cancelCalls := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for range n {
				req := h.newRequest(t, "POST", "/apps/greedy/agents/pauses", greedy, newRPCCall("message/send", newTextMessage("go")))
				callers.Go(func() {
					if resp, err := http.DefaultClient.Do(req.WithContext(ctx)); err == nil {
						_ = resp.Body.Close()
						t.Errorf("a slow call was answered %d", resp.StatusCode)
					}
				})
			}
			disconnect = func() { cancelCalls(); callers.Wait() }
			t.Cleanup(disconnect)
			return disconnect
		}
		share, all := h.Settings.Queue.MaxInflight/2+h.Settings.Queue.Workers, 3*h.Settings.Queue.MaxInflight
		disconnectActive := call(share)
		dbtest.WaitUntil(t, "the greedy app has all that it may", func() bool { return h.Execution.RunPool.Inflight() >= share })
		disconnectQueued := call(all - share)
		dbtest.WaitUntil(t, "the other calls wait in the queue", func() bool {
			return h.queryNumber(t, "SELECT COUNT(*) FROM run WHERE priority = 0") == int64(all)
		})
		live := func(app, agent, token, text string) {
			t.Helper()
			var got taskView
			h.requireStatus(t, http.StatusOK, &got, "POST", "/apps/"+app+"/agents/"+agent, token, newRPCCall("message/send", newTextMessage(text)))
			if got.Result.Status.State != "completed" {
				t.Errorf("the call of %s came to %s", app, got.Result.Status.State)
			}
			// A run that a worker claims from the queue raises the epoch of its task.
			if n := h.queryNumber(t, "SELECT epoch FROM task WHERE id = $1", got.Result.ID); n != 1 {
				t.Errorf("the call of %s went through the queue: epoch %d", app, n)
			}
		}
		live("quiet", "a", quiet, "hello")
		if n := h.Execution.RunPool.Inflight(); n != share {
			t.Errorf("%d runs of the greedy app are at work, want %d", n, share)
		}
		// The queued ones first: a slot that an active run leaves goes to the next queued one whose caller is not known to
		// be gone, and the app may keep as many abandoned runs as it has live slots.
		disconnectQueued()
		dbtest.WaitUntil(t, "no run waits in the queue as if its caller were there", func() bool {
			return h.queryNumber(t, "SELECT COUNT(*) FROM run WHERE state = 'pending' AND priority = 0") == 0
		})
		disconnectActive()
		dbtest.WaitUntil(t, "the greedy app has a live place again", func() bool {
			app, err := h.apps.LoadApp(t.Context(), "greedy")
			if err != nil {
				t.Fatal(err)
			}
			_, ok := h.Execution.RunPool.AcquireSlot(app.ID)
			if ok {
				h.Execution.RunPool.ReleaseSlot(app.ID)
			}
			return ok
		})
		live("greedy", "pauses", greedy, "quick")
		if n := h.queryNumber(t, "SELECT COUNT(*) FROM run WHERE state = 'running'"); n < int64(share) {
			t.Errorf("%d runs are at work, want the %d whose callers are gone to go on", n, share)
		}
	})
}
