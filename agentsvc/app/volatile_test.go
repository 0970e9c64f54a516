package app

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
)

// process is a process with both queues, in which one app is loaded at a time.
type process struct {
	House
	app    atomic.Pointer[App]
	url    string // of the server that its tool calls
	limits tenancy.Limits
}

func openProcess(t *testing.T, lasting *db.DB, o VolatileOptions) *process {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	v, err := OpenVolatile(t.Context(), lasting, o)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := tenancy.NewKeyring(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{House: House{
		DB: lasting, Keys: keys, Volatile: v, Hub: task.NewHub(nil), Outside: egress.New(egress.Options{}), Inside: egress.New(egress.Options{PrivateNetwork: true}), Log: o.Log,
	}}
	ctx, cancel := context.WithCancel(context.Background())
	var ends []chan error
	var pools []*queue.Pool
	for _, q := range []struct {
		d        *db.DB
		volatile bool
		workers  *task.Handoff
	}{{lasting, false, &p.Workers}, {v.DB, true, &v.Workers}} {
		pool := queue.New(store.NewRuns(q.d), func(ctx context.Context, run store.Run) error {
			run.Volatile = q.volatile
			return p.app.Load().Run(ctx, run)
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

const volatileSource = `
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

// load replaces the app by one with that storage.
func (p *process) load(t *testing.T, storage string) {
	t.Helper()
	cfg, err := config.Parse([]byte(strings.ReplaceAll(fmt.Sprintf(volatileSource, storage), "URL", cmp.Or(p.url, "http://localhost"))), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := Build(cfg, Tenant{ID: "acme", Name: "acme", Revision: 1, Own: true, Inside: true, Limits: p.limits}, p.House)
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

// say sends text in context c1, and where id is not "" to that task, and waits for the end of the turn.
func (p *process) say(t *testing.T, text string, id agentsvc.TaskID) agentsvc.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	told, events, err := p.app.Load().Tasks().Call(ctx, task.Submission{
		Agent: "helper", Owner: bea, Message: agentsvc.Message{Context: "c1", Task: id, Parts: []agentsvc.Part{agentsvc.TextPart(text)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if told.Apply(ev); ev.Status != nil && ev.Status.State.Interrupted() {
			break
		}
	}
	return told
}

// holds says what lies in a database: "tasks", "turns".
func holds(t *testing.T, d *db.DB) string {
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

// TestBackends: each of tasks and sessions is where it is wanted, whatever the other's place, and a conversation goes on
// over turns and tasks.
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
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				p := openProcess(t, d, VolatileOptions{})
				p.load(t, c.storage)
				asked := p.say(t, "ask", "")
				p.load(t, c.storage) // a reload loses nothing
				if told := p.say(t, "Rome", asked.ID); told.Status.State != agentsvc.Completed || told.Status.Message.Text() != "You said: Rome" {
					t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
				}
				p.say(t, "thanks", "")
				sess, err := p.app.Load().kept.Session(t.Context(), bea, "c1")
				if err != nil {
					t.Fatal(err)
				}
				var said []string
				for _, e := range sess.Entries {
					said = append(said, e.Message.Text())
				}
				if diff := gocmp.Diff([]string{"ask", "Which city?", "Rome", "You said: Rome", "thanks", "You said: thanks"}, said); diff != "" {
					t.Error(diff)
				}
				if lasting, memory := holds(t, d), holds(t, p.Volatile.DB); lasting != c.lasting || memory != c.memory {
					t.Errorf("the database holds %q, memory %q; want %q and %q", lasting, memory, c.lasting, c.memory)
				}
			})
		})
	}
}

// TestBackendChanged: a run that was accepted before an app's tasks moved ends where it began.
func TestBackendChanged(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.SQLite(t), VolatileOptions{})
	for _, c := range []struct {
		from, to string
		in       *db.DB
	}{
		{"tasks: {backend: inmemory}", "", p.Volatile.DB},
		{"", "tasks: {backend: inmemory}", p.DB},
	} {
		p.load(t, c.from)
		told, err := p.app.Load().Tasks().Submit(t.Context(), task.Submission{
			Agent: "helper", Owner: bea, Message: agentsvc.Message{Context: "c1", Parts: []agentsvc.Part{agentsvc.TextPart("hello")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.load(t, c.to)
		st := store.New(c.in, "acme")
		for range 3000 {
			stored, err := st.Task(t.Context(), told.ID, store.With{})
			if err != nil {
				t.Fatal(err)
			}
			if told = stored.Task; told.Status.State.Terminal() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if told.Status.State != agentsvc.Completed {
			t.Errorf("from %q to %q: %s", c.from, c.to, told.Status.State)
		}
	}
}

// TestTidy: what an app has in memory stays while it is loaded or waits for somebody, and goes when it has rested long
// enough, when it is deleted, and as its retention says.
func TestTidy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, storage, text string
		then                func(t *testing.T, p *process)
		want                string
	}{
		{"loaded", "tasks: {backend: inmemory}", "hello", func(*testing.T, *process) {}, "tasks"},
		{"evicted", "tasks: {backend: inmemory}", "hello", evict, ""},
		{"waiting", "tasks: {backend: inmemory}", "ask", evict, "tasks"},
		{"session of a waiting task", "sessions: {backend: inmemory}", "ask", evict, "turns"},
		{"session", "sessions: {backend: inmemory}", "hello", evict, ""},
		{"deleted", "tasks: {backend: inmemory}, sessions: {backend: inmemory}", "ask", func(t *testing.T, p *process) {
			if err := p.Volatile.Forget(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"retention", "tasks: {backend: inmemory}, sessions: {backend: inmemory}, retention: {sessions: 1m}", "hello", func(t *testing.T, p *process) {
			var b db.Batch
			b.Exec(nil, "UPDATE session_turn SET at = 1")
			if err := p.Volatile.DB.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}, "tasks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := openProcess(t, dbtest.SQLite(t), VolatileOptions{Idle: time.Nanosecond})
			p.load(t, c.storage)
			p.say(t, c.text, "")
			c.then(t, p)
			if err := p.Volatile.tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := holds(t, p.Volatile.DB); got != c.want {
				t.Errorf("memory holds %q, want %q", got, c.want)
			}
		})
	}
}

// evict closes the app as its house does when nobody calls it.
func evict(t *testing.T, p *process) {
	t.Helper()
	if err := p.app.Load().Close(); err != nil {
		t.Fatal(err)
	}
}

// TestShed: where memory as a whole gets scarce, what is finished goes, and the task that has not ended stays.
func TestShed(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.SQLite(t), VolatileOptions{Pages: 700})
	p.load(t, "tasks: {backend: inmemory}, sessions: {backend: inmemory}")
	waiting := p.say(t, "ask", "")
	p.say(t, "hello", "")
	p.Volatile.o.Pages = 1 // so that it is scarce
	if err := p.Volatile.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := atWork(t, p.Volatile.DB, "acme"); n != 0 {
		t.Errorf("%d runs are left, want none", n)
	}
	list, err := p.app.Load().Tasks().Get(t.Context(), task.Reach{}, waiting.ID, store.With{})
	if err != nil || list.ID != waiting.ID {
		t.Errorf("the task that waits: %v", err)
	}
	if got := rows(t, p.Volatile.DB, "task"); got != 1 {
		t.Errorf("%d tasks are left, want the one that waits", got)
	}
}

// TestVolatileIsolation: what one app has in memory is nothing to another.
func TestVolatileIsolation(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.SQLite(t), VolatileOptions{})
	p.load(t, "tasks: {backend: inmemory}, sessions: {backend: inmemory}")
	told := p.say(t, "hello", "")
	bob := store.New(p.Volatile.DB, "globex")
	if _, err := bob.Task(t.Context(), told.ID, store.With{}); !errors.Is(err, agentsvc.ErrNotFound) {
		t.Errorf("%v, want not found", err)
	}
	if sess, err := bob.Session(t.Context(), bea, "c1"); err != nil || len(sess.Entries) > 0 {
		t.Errorf("%v %v, want nothing", sess, err)
	}
	if err := bob.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Shed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := holds(t, p.Volatile.DB); got != "tasks turns" {
		t.Errorf("memory holds %q", got)
	}
}

// TestVolatileLimits: no more runs of an app are taken from the queue in memory than it may have at work.
func TestVolatileLimits(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.SQLite(t), VolatileOptions{})
	p.limits.MaxConcurrentTasks = 1
	p.load(t, "tasks: {backend: inmemory}")
	for range 2 {
		if _, err := p.app.Load().Tasks().Submit(t.Context(), task.Submission{
			Agent: "helper", Owner: bea, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart("wait")}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	most, ended := 0, 0
	for end := time.Now().Add(30 * time.Second); ended < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM run WHERE state = 'running'")
		b.Query(func(r db.Row) error { return r.Scan(&ended) }, "SELECT COUNT(*) FROM run WHERE state = 'completed'")
		if err := p.Volatile.DB.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if most != 1 || ended != 2 {
		t.Errorf("%d runs at work at once, want 1; %d ended, want 2", most, ended)
	}
}

// TestVolatileCredential: what a task in memory was entrusted with is found by it, and is nowhere else.
func TestVolatileCredential(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.Header.Get("X-Key")) }))
	defer srv.Close()
	p := openProcess(t, dbtest.SQLite(t), VolatileOptions{})
	p.url = srv.URL
	p.load(t, "tasks: {backend: inmemory}")
	told := p.say(t, "get "+srv.URL+"/x", "")
	if told.Status.State != agentsvc.AuthRequired {
		t.Fatalf("%s %q, want a credential to be asked for", told.Status.State, told.Status.Message.Text())
	}
	sub := task.Submission{Agent: "helper", Owner: bea, Message: agentsvc.Message{Task: told.ID, Parts: []agentsvc.Part{
		{Data: &agentsvc.Data{Value: map[string]any{"type": "tool_credential", "tool": "api", "value": "bea's key"}}},
	}}}
	var err error
	if sub.Rulings, err = task.Rulings(&sub.Message); err != nil {
		t.Fatal(err)
	}
	if _, err := p.app.Load().Tasks().Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if told, err = p.app.Load().Tasks().Get(t.Context(), task.Reach{}, told.ID, store.With{}); err != nil {
			t.Fatal(err)
		}
		if told.Status.State.Terminal() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if told.Status.State != agentsvc.Completed || !strings.Contains(told.Status.Message.Text(), "hello [credential]") {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
	for place, c := range map[string]struct {
		d    *db.DB
		want int
	}{"the database": {p.DB, 0}, "memory": {p.Volatile.DB, 1}} {
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM credential")
		if err := c.d.Platform().Do(t.Context(), &b); err != nil || n != c.want {
			t.Errorf("%s has %d credentials, %v, want %d", place, n, err, c.want)
		}
	}
}
