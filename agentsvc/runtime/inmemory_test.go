package runtime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

// testProcess is a process with both queues, in which one app is loaded at a time.
type testProcess struct {
	Dependencies
	app    atomic.Pointer[Runtime]
	url    string // the server that its tool calls
	limits tenancy.Limits
}

func openProcess(t *testing.T, durable *db.DB, o InMemoryDBOptions) *testProcess {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	v, err := OpenInMemoryDB(t.Context(), durable, o)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := keyring.New(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	p := &testProcess{Dependencies: Dependencies{
		DB: durable, Keys: keys, InMemory: v, Hub: task.NewHub(nil), Host: Host{PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true})}, Log: o.Log,
	}}
	ctx, cancel := context.WithCancel(context.Background())
	var ends []chan error
	var pools []*queue.Pool
	for _, q := range []struct {
		d        *db.DB
		volatile bool
		workers  *task.Executor
	}{{durable, false, &p.Workers}, {v.DB, true, &p.InMemoryWorkers}} {
		pool := queue.New(q.d, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			run.InMemory = q.volatile
			return p.app.Load().ExecuteRun(ctx, run, lease)
		}, queue.Options{Log: o.Log})
		if err := pool.Open(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		*q.workers = pool
		end := make(chan error)
		go func() { end <- pool.Run(ctx) }()
		ends, pools = append(ends, end), append(pools, pool)
	}
	t.Cleanup(func() {
		cancel()
		for i, end := range ends {
			<-end
			_ = pools[i].Drain(context.Background())
		}
		if a := p.app.Load(); a != nil {
			_ = a.Close()
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

const inMemorySource = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {text: "^wait$"}
        then: [{say: "Done.", pause: 400ms}]
      - when: {tool_result: api}
        then: [{say: "Got: {{result}}"}]
      - when: {text: "^get (?P<url>.+)$"}
        then: [{call: {tool: api, arguments: {url: "{{url}}"}}}]
      - then: [{say: "You said: {{text}}"}]
agents:
  helper: {llm: demo, tools: [api]}
  timed: {llm: demo, trigger: {type: schedule, cron: "@yearly", input: hello}}
tools: {api: {type: function, handler: http_request, credential: {header: X-Key, url: "URL"}}}
storage: {%s}
`

// loadApp replaces the app by one with that storage.
func (p *testProcess) loadApp(t *testing.T, storage string) {
	t.Helper()
	cfg, err := config.Parse([]byte(strings.ReplaceAll(fmt.Sprintf(inMemorySource, storage), "URL", cmp.Or(p.url, "http://localhost"))), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := Build(cfg, Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true, Limits: p.limits}, p.Dependencies)
	if err != nil {
		t.Fatal(err)
	}
	if before := p.app.Swap(a); before != nil {
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

var bea = agentsvc.Owner{Issuer: "test", Subject: "bea"}

// runTurn sends text in context c1, to task id if that is not "", and waits for the end of the turn.
func (p *testProcess) runTurn(t *testing.T, text string, id agentsvc.TaskID) agentsvc.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outcome, events, err := p.app.Load().Tasks().Messages.SubmitAndFollow(ctx, task.Submission{
		Agent: "helper", Owner: bea, Message: agentsvc.Message{Context: "c1", Task: id, Parts: []agentsvc.Part{agentsvc.TextPart(text)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if outcome.ApplyEvent(ev); ev.Status != nil && ev.Status.State.IsInterrupted() {
			break
		}
	}
	return outcome
}

// storedKinds returns what a database contains: "tasks", "turns".
func storedKinds(t *testing.T, d *db.DB) string {
	t.Helper()
	var what []string
	var b db.Batch
	for name, table := range map[string]string{"tasks": "task", "turns": "session_turn"} {
		b.Query(func(r db.Row) error {
			var n int
			err := r.Scan(&n)
			if n > 0 {
				what = append(what, name)
			}
			return err
		}, "SELECT COUNT(*) FROM "+table)
	}
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if len(what) == 2 {
		return "tasks turns"
	}
	return strings.Join(what, " ")
}

// TestBackends checks that tasks and sessions are stored in the configured database, each independent of the other, and
// that a conversation continues over turns and tasks.
func TestBackends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ storage, lasting, memory string }{
		{"", "tasks turns", ""},
		{"tasks: {backend: sql}, sessions: {backend: inmemory}", "tasks", "turns"},
		{"tasks: {backend: inmemory}", "turns", "tasks"},
		{"tasks: {backend: inmemory}, sessions: {backend: inmemory}", "", "tasks turns"},
	} {
		t.Run(c.storage, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				p := openProcess(t, d, InMemoryDBOptions{})
				p.loadApp(t, c.storage)
				requested := p.runTurn(t, "ask", "")
				p.loadApp(t, c.storage) // a reload loses nothing
				if outcome := p.runTurn(t, "Rome", requested.ID); outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != "You said: Rome" {
					t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
				}
				p.runTurn(t, "thanks", "")
				sess, err := p.app.Load().store.Sessions.Load(t.Context(), bea, "c1")
				if err != nil {
					t.Fatal(err)
				}
				var content []string
				for _, e := range sess.Entries {
					content = append(content, e.Message.Text())
				}
				if diff := gocmp.Diff([]string{"ask", "Which city?", "Rome", "You said: Rome", "thanks", "You said: thanks"}, content); diff != "" {
					t.Error(diff)
				}
				if durable, memory := storedKinds(t, d), storedKinds(t, p.InMemory.DB); durable != c.lasting || memory != c.memory {
					t.Errorf("the database holds %q, memory %q; want %q and %q", durable, memory, c.lasting, c.memory)
				}
			})
		})
	}
}

// TestBackendChanged checks that a run that was accepted before the app's storage changed ends in the database where it
// began.
func TestBackendChanged(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{})
	for _, c := range []struct {
		from, to string
		in       *db.DB
	}{
		{"tasks: {backend: inmemory}", "", p.InMemory.DB},
		{"", "tasks: {backend: inmemory}", p.DB},
	} {
		p.loadApp(t, c.from)
		outcome, err := p.app.Load().Tasks().Messages.Submit(t.Context(), task.Submission{
			Agent: "helper", Owner: bea, Message: agentsvc.Message{Context: "c1", Parts: []agentsvc.Part{agentsvc.TextPart("hello")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.loadApp(t, c.to)
		st := store.New(c.in, "acme")
		for range 3000 {
			stored, err := st.Tasks.Load(t.Context(), nil, outcome.ID, store.TaskParts{})
			if err != nil {
				t.Fatal(err)
			}
			if outcome = stored.Task; outcome.Status.State.IsTerminal() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if outcome.Status.State != agentsvc.Completed {
			t.Errorf("from %q to %q: %s", c.from, c.to, outcome.Status.State)
		}
	}
}

// TestCleanUpApps checks that an app's data stays while the app is loaded or has an unfinished task, and is deleted
// after the idle timeout, with the app, and by retention.
func TestCleanUpApps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, storage, text string
		then                func(t *testing.T, p *testProcess)
		want                string
	}{
		{"loaded", "tasks: {backend: inmemory}", "hello", func(*testing.T, *testProcess) {}, "tasks"},
		{"evicted", "tasks: {backend: inmemory}", "hello", closeApp, ""},
		{"waiting", "tasks: {backend: inmemory}", "ask", closeApp, "tasks"},
		{"session of a waiting task", "sessions: {backend: inmemory}", "ask", closeApp, "turns"},
		{"session", "sessions: {backend: inmemory}", "hello", closeApp, ""},
		{"deleted", "tasks: {backend: inmemory}, sessions: {backend: inmemory}", "ask", func(t *testing.T, p *testProcess) {
			if err := p.InMemory.DeleteApp(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"retention", "tasks: {backend: inmemory}, sessions: {backend: inmemory}, retention: {sessions: 1m}", "hello", func(t *testing.T, p *testProcess) {
			var b db.Batch
			b.Exec(nil, "UPDATE session_turn SET at = 1")
			if err := p.InMemory.DB.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}, "tasks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{IdleTimeout: time.Nanosecond})
			p.loadApp(t, c.storage)
			p.runTurn(t, c.text, "")
			c.then(t, p)
			if err := p.InMemory.cleanUpApps(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := storedKinds(t, p.InMemory.DB); got != c.want {
				t.Errorf("memory holds %q, want %q", got, c.want)
			}
		})
	}
}

// closeApp closes the app as the process does with an idle one.
func closeApp(t *testing.T, p *testProcess) {
	t.Helper()
	if err := p.app.Load().Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEvictOldest checks that finished data is deleted while memory is nearly full, and that an unfinished task stays.
func TestEvictOldest(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{MaxPages: 700})
	p.loadApp(t, "tasks: {backend: inmemory}, sessions: {backend: inmemory}")
	waiting := p.runTurn(t, "ask", "")
	p.runTurn(t, "hello", "")
	p.InMemory.options.MaxPages = 1 // so that it is always nearly full
	if err := p.InMemory.cleanUpApps(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countActiveRuns(t, p.InMemory.DB, "acme"); n != 0 {
		t.Errorf("%d runs are left, want none", n)
	}
	list, err := p.app.Load().Tasks().Reader.Get(t.Context(), task.Visibility{}, waiting.ID, store.TaskParts{})
	if err != nil || list.ID != waiting.ID {
		t.Errorf("the task that waits: %v", err)
	}
	if got := countRows(t, p.InMemory.DB, "task"); got != 1 {
		t.Errorf("%d tasks are left, want the one that waits", got)
	}
}

// TestInMemoryIsolation checks that an app cannot reach another app's data in memory.
func TestInMemoryIsolation(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{})
	p.loadApp(t, "tasks: {backend: inmemory}, sessions: {backend: inmemory}")
	outcome := p.runTurn(t, "hello", "")
	bob := store.New(p.InMemory.DB, "globex")
	if _, err := bob.Tasks.Load(t.Context(), nil, outcome.ID, store.TaskParts{}); !errors.Is(err, agentsvc.ErrNotFound) {
		t.Errorf("%v, want not found", err)
	}
	if sess, err := bob.Sessions.Load(t.Context(), bea, "c1"); err != nil || len(sess.Entries) > 0 {
		t.Errorf("%v %v, want nothing", sess, err)
	}
	if err := bob.Sweeper.DeleteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Sweeper.EvictOldest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := storedKinds(t, p.InMemory.DB); got != "tasks turns" {
		t.Errorf("memory holds %q", got)
	}
}

// TestInMemoryLimits checks that the in-memory queue executes no more runs of an app than its limit allows.
func TestInMemoryLimits(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{})
	p.limits.MaxConcurrentTasks = 1
	p.loadApp(t, "tasks: {backend: inmemory}")
	for range 2 {
		if _, err := p.app.Load().Tasks().Messages.Submit(t.Context(), task.Submission{
			Agent: "helper", Owner: bea, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart("wait")}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	maximum, ended := 0, 0
	dbtest.WaitUntil(t, "ended", func() bool {
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM run WHERE state = 'running'")
		b.Query(func(r db.Row) error { return r.Scan(&ended) }, "SELECT COUNT(*) FROM run WHERE state = 'completed'")
		if err := p.InMemory.DB.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		maximum = max(maximum, n)
		return ended == 2
	})
	if maximum != 1 {
		t.Errorf("%d runs at work at once, want 1", maximum)
	}
}

// TestInMemoryCredential checks that the credential of a task in memory is available to it and stored nowhere else.
func TestInMemoryCredential(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.Header.Get("X-Key")) }))
	defer srv.Close()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{})
	p.url = srv.URL
	p.loadApp(t, "tasks: {backend: inmemory}")
	outcome := p.runTurn(t, "get "+srv.URL+"/x", "")
	if outcome.Status.State != agentsvc.AuthRequired {
		t.Fatalf("%s %q, want a credential to be asked for", outcome.Status.State, outcome.Status.Message.Text())
	}
	sub := task.Submission{Agent: "helper", Owner: bea, Message: agentsvc.Message{Task: outcome.ID, Parts: []agentsvc.Part{
		{Data: &agentsvc.Data{Value: map[string]any{"type": "tool_credential", "tool": "api", "value": "bea's key"}}},
	}}}
	var err error
	if sub.Decisions, err = task.ParseDecisions(&sub.Message); err != nil {
		t.Fatal(err)
	}
	if _, err := p.app.Load().Tasks().Messages.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if outcome, err = p.app.Load().Tasks().Reader.Get(t.Context(), task.Visibility{}, outcome.ID, store.TaskParts{}); err != nil {
			t.Fatal(err)
		}
		if outcome.Status.State.IsTerminal() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if outcome.Status.State != agentsvc.Completed || !strings.Contains(outcome.Status.Message.Text(), "hello [credential]") {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	for location, c := range map[string]struct {
		d    *db.DB
		want int
	}{"the database": {p.DB, 0}, "memory": {p.InMemory.DB, 1}} {
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM credential")
		if err := c.d.Platform().Do(t.Context(), &b); err != nil || n != c.want {
			t.Errorf("%s has %d credentials, %v, want %d", location, n, err, c.want)
		}
	}
}
