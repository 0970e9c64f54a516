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

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// greedyApp has a scripted model that pauses and one at %s that sends a word now and then and does not end.
const greedyApp = `
llms:
  pauses: {provider: scripted, script: [{when: {text: quick}, then: [{say: "at once"}]}, {then: [{say: "one ", pause: 10m}, {say: two}]}]}
  drips: {provider: openai, api_key: k, model: m, base_url: "%s"}
agents:
  pauses: {llm: pauses}
  drips: {llm: drips}
`

const quietApp = `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}}`

// dripping is a model that sends a word every second until its caller is gone.
func dripping(t *testing.T) string {
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

// crowded opens a house with few places, an app that wants them all and one that wants one.
func crowded(t *testing.T, database string) (h *testHouse, greedy, quiet string) {
	t.Helper()
	mine, err := loadOwn(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	port, host, places, patience := 0, "127.0.0.1", 32, time.Duration(0)
	s, err := resolve(flags{Database: &database, Port: &port, Host: &host, MaxInflight: &places, ShutdownTimeout: &patience}, mine.cfg.Load())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := openHouse(t.Context(), s, mine, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	h = serveHouse(t, opened)
	h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
		"name": "greedy", "config": fmt.Sprintf(greedyApp, dripping(t)), "grants": []string{"private_network"},
	})
	h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "quiet", "config": quietApp})
	return h, h.token(t, "greedy", "eve", nil), h.token(t, "quiet", "ana", nil)
}

// unawaited has words for an agent that nobody waits for.
func unawaited(text string) map[string]any {
	m := words(text)
	m["configuration"] = map[string]any{"blocking": false}
	return m
}

// number reads a number of the database.
func (h *testHouse) number(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, query, args...)
	if err := h.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// taskView is a task as its caller sees it.
type taskView struct {
	Result struct {
		ID     string `json:"task_id"`
		Status struct{ State string }
	} `json:"result"`
}

// onEachDatabase runs f with each engine.
func onEachDatabase(t *testing.T, f func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, dbtest.SQLiteURL(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, dbtest.PostgresURL(t)) })
}

// TestQueueBesideEndlessRuns: an app fills the queue with runs that pause, or whose model sends a word now and then for
// ever. A queued task of another app begins and ends meanwhile.
func TestQueueBesideEndlessRuns(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"pauses", "drips"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			onEachDatabase(t, func(t *testing.T, database string) {
				h, greedy, quiet := crowded(t, database)
				for range 3 * h.settings.workers {
					h.want(t, http.StatusOK, nil, "POST", "/apps/greedy/agents/"+agent, greedy, rpc("message/send", unawaited("go")))
				}
				eventually(t, "every worker has a run of the greedy app", func() bool { return h.pool.Inflight() >= h.settings.workers })
				var got taskView
				h.want(t, http.StatusOK, &got, "POST", "/apps/quiet/agents/a", quiet, rpc("message/send", unawaited("hello")))
				id := got.Result.ID
				eventually(t, "the quiet app's task ends", func() bool {
					h.want(t, http.StatusOK, &got, "POST", "/apps/quiet/agents/a", quiet, rpc("tasks/get", map[string]any{"id": id}))
					return got.Result.Status.State == "completed"
				})
				if n := h.number(t, "SELECT COUNT(*) FROM run WHERE state = 'running'"); n != int64(h.settings.workers) {
					t.Errorf("%d runs of the greedy app are at work, want %d all the while", n, h.settings.workers)
				}
			})
		})
	}
}

// TestLiveBesideBlockingCalls: an app has far more slow blocking calls under way than there are places. A blocking call of
// another begins at once, without the queue. When the callers are gone the app itself has live places again, and its runs go on.
func TestLiveBesideBlockingCalls(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, database string) {
		h, greedy, quiet := crowded(t, database)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var callers sync.WaitGroup
		for range 3 * h.settings.maxInflight {
			req := h.request(t, "POST", "/apps/greedy/agents/pauses", greedy, rpc("message/send", words("go")))
			callers.Go(func() {
				if resp, err := http.DefaultClient.Do(req.WithContext(ctx)); err == nil {
					_ = resp.Body.Close()
					t.Errorf("a slow call was answered %d", resp.StatusCode)
				}
			})
		}
		share := h.settings.maxInflight/2 + h.settings.workers
		eventually(t, "the greedy app has all that it may", func() bool {
			return h.pool.Inflight() >= share && h.number(t, "SELECT COUNT(*) FROM run WHERE priority = 0") == int64(3*h.settings.maxInflight)
		})
		live := func(app, agent, token, text string) {
			t.Helper()
			var got taskView
			h.want(t, http.StatusOK, &got, "POST", "/apps/"+app+"/agents/"+agent, token, rpc("message/send", words(text)))
			if got.Result.Status.State != "completed" {
				t.Errorf("the call of %s came to %s", app, got.Result.Status.State)
			}
			// A run that a worker claims from the queue raises the epoch of its task.
			if n := h.number(t, "SELECT epoch FROM task WHERE id = $1", got.Result.ID); n != 1 {
				t.Errorf("the call of %s went through the queue: epoch %d", app, n)
			}
		}
		live("quiet", "a", quiet, "hello")
		if n := h.pool.Inflight(); n != share {
			t.Errorf("%d runs of the greedy app are at work, want %d", n, share)
		}
		leave()
		callers.Wait()
		eventually(t, "no run waits in the queue as if its caller were there", func() bool {
			return h.number(t, "SELECT COUNT(*) FROM run WHERE state = 'pending' AND priority = 0") == 0
		})
		eventually(t, "the greedy app has a live place again", func() bool {
			app, err := h.apps.Get(t.Context(), "greedy")
			if err != nil {
				t.Fatal(err)
			}
			_, ok := h.pool.Reserve(app.ID)
			if ok {
				h.pool.Release(app.ID)
			}
			return ok
		})
		live("greedy", "pauses", greedy, "quick")
		if n := h.number(t, "SELECT COUNT(*) FROM run WHERE state = 'running'"); n < int64(share) {
			t.Errorf("%d runs are at work, want the %d whose callers are gone to go on", n, share)
		}
	})
}
