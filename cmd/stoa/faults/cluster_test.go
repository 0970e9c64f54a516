package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// stale is the age of a heartbeat at which a worker of a cluster counts as dead.
const stale = 2 * time.Second

// cluster is some stoa processes on one database, and all that they depend on.
type cluster struct {
	*testing.T
	nodes    []*node
	database string   // its address without the proxy
	cache    *service // Redis; nil without
	model    *model
	tools    *recorder
	client   *http.Client
	token    string // of the user ana of the app acme, who may do everything
}

// setup says how a cluster differs from the usual: two processes on PostgreSQL.
type setup struct {
	nodes    int
	sqlite   bool
	redis    bool
	database string // an address; "" = a database of its own on the tests' server
	args     []string
	env      func(n int) []string // of each process
	build    *build
}

// node is a process, which keeps its address when it is started again.
type node struct {
	*stoatest.Process
	*client
	c       *cluster
	pg      *proxy // between the process and PostgreSQL; nil on SQLite
	redis   *proxy // between the process and Redis; nil without
	program string
	dir     string
	args    []string
	env     []string
	metrics string // where its metrics are
	earlier []*stoatest.Process
}

// up starts a cluster with an app acme.
func up(t *testing.T, s setup) *cluster {
	t.Helper()
	c := &cluster{T: t, database: s.database, tools: newRecorder(t)}
	c.model = newModel(t, c.tools)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	c.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	c.services(s)
	if s.build == nil {
		s.build = plain
	}
	for i := range max(s.nodes, 1) {
		port := itoa(freePort(t))
		n := &node{c: c, program: s.build.program(t), dir: t.TempDir()}
		n.metrics = "127.0.0.1:" + itoa(freePort(t))
		n.args = append([]string{"serve", "--host", "127.0.0.1", "--port", port, "--grpc-port", "0", "--metrics-addr", n.metrics,
			"--queue-stale-threshold", stale.String(), "--queue-initial-delay", "100ms"}, n.wires()...)
		n.args = append(n.args, s.args...)
		n.client = &client{base: "http://127.0.0.1:" + port, http: c.client}
		if s.env != nil {
			n.env = s.env(i)
		}
		c.nodes = append(c.nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
			if t.Failed() && n.Process != nil {
				t.Logf("%s said:\n%s", n.base, tail(n.complaints(), 4000))
			}
		}
	})
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
	}
	c.app("acme", c.config())
	c.token = c.mint("acme", "ana")
	for _, n := range c.nodes {
		n.token = c.token
	}
	return c
}

// services brings up what the processes depend on.
func (c *cluster) services(s setup) {
	switch {
	case s.sqlite && c.database == "":
		c.database = "sqlite://" + filepath.Join(c.TempDir(), "stoa.db")
	case c.database == "":
		c.database = dbtest.PostgresURL(c)
	}
	if s.redis {
		c.cache = newRedis(c)
	}
}

// wires returns where the process finds what it depends on.
func (n *node) wires() []string {
	database := n.c.database
	if strings.HasPrefix(database, "postgres") {
		n.pg = newProxy(n.c, host(database))
		database = through(database, n.pg)
	}
	if n.c.cache == nil {
		return []string{"--database", database}
	}
	n.redis = newProxy(n.c, n.c.cache.addr)
	return []string{"--database", database, "--redis", "redis://" + n.redis.addr + "/0"}
}

// config is the configuration of the app acme. Its agent assistant plays a script, modelled talks to a vendor, and hooked is
// started by a webhook, whose sender is called back.
func (c *cluster) config() string {
	return strings.NewReplacer("RECORDER", c.tools.URL, "HOST", host(c.tools.URL), "MODEL", c.model.URL, "SECRET", hookSecret).Replace(`
llms:
  script:
    provider: scripted
    script:
      - when: {text: "^slow (?P<n>\\S+)"}
        then: [{say: "one ", pause: 1500ms}, {say: "two {{n}}"}]
      - when: {text: "^long (?P<n>\\S+)"}
        then: [{say: "a ", pause: 30ms}, {say: "b ", pause: 30ms}, {say: "c ", pause: 30ms}, {say: "{{n}}"}]
      - when: {text: "^record (?P<n>\\S+)"}
        then: [{say: "I shall. ", pause: 50ms}, {call: {tool: record, arguments: {url: "RECORDER/{{n}}", method: POST}}}]
      - when: {text: "^repeat (?P<n>\\S+)"}
        then: [{call: {tool: repeat, arguments: {url: "RECORDER/{{n}}", method: POST}}}]
      - when: {text: "^careful (?P<n>\\S+)"}
        then: [{call: {tool: careful, arguments: {url: "RECORDER/{{n}}", method: POST}}}]
      - when: {text: "^ask (?P<n>.+)"}
        then: [{ask: "{{n}}"}]
      - when: {tool_result: record}
        then: [{say: "recorded: ", pause: 50ms}, {say: "{{result}}"}]
      - when: {tool_result: repeat}
        then: [{say: "repeated: {{result}}"}]
      - when: {tool_result: careful}
        then: [{say: "carefully: {{result}}"}]
      - then: [{say: "{{text}}"}]
  vendor: {provider: openai, model: gpt-4o, api_key: key-of-the-test, base_url: "MODEL/v1"}
tools:
  record: {type: function, handler: http_request, max_execution_time: 20s}
  repeat: {type: function, handler: http_request, max_execution_time: 20s, idempotent: true}
  careful: {type: function, handler: http_request, require_approval: true}
agents:
  assistant: {llm: script, tools: [record, repeat, careful]}
  modelled: {llm: vendor, tools: [record, repeat]}
  hooked: {llm: script, tools: [record], trigger: {type: webhook, secret: "SECRET", webhook_input: {template: "{{.text}}"}, response: {mode: callback, callback_hosts: ["HOST"]}}}
`)
}

// wire puts the wires of all processes to PostgreSQL into a state.
func (c *cluster) wire(w wire) {
	for _, n := range c.nodes {
		n.pg.set(w)
	}
}

// start launches the process and waits until it serves.
func (n *node) start() error {
	p, err := stoatest.Launch(n.program, n.dir, n.env, n.args...)
	if err != nil {
		return err
	}
	if n.Process != nil {
		n.earlier = append(n.earlier, n.Process)
	}
	n.Process = p
	return p.Serving(context.Background())
}

func (n *node) restart() {
	n.c.Helper()
	if err := n.start(); err != nil {
		n.c.Fatal(err)
	}
}

// kill ends the process at once, as a machine that loses its power would.
func (n *node) kill() {
	if n.Process != nil {
		_ = n.End(syscall.SIGKILL)
	}
}

func (n *node) signal(s syscall.Signal) {
	n.c.Helper()
	if err := n.Cmd.Process.Signal(s); err != nil {
		n.c.Fatal(err)
	}
}

// freeze stops the process and waits until the last of its threads stands still: on a busy machine they go on for a
// while after the signal.
func (n *node) freeze() {
	n.c.Helper()
	n.signal(syscall.SIGSTOP)
	n.c.within(10*time.Second, "the process stands still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.Cmd.Process.Pid))
		n.c.must(err)
		return !slices.ContainsFunc(threads, func(path string) bool {
			raw, err := os.ReadFile(path)
			_, after, _ := strings.Cut(string(raw), ") ")
			return err == nil && !strings.HasPrefix(after, "T")
		})
	})
}

// admin speaks with the operator's secret.
func (n *node) admin() *client {
	return &client{base: n.base, token: stoatest.AdminSecret, http: n.c.client}
}

// metric reads one figure of the process.
func (n *node) metric(name string) float64 {
	n.c.Helper()
	a, err := (&client{base: "http://" + n.metrics, http: n.c.client}).do(n.c.Context(), http.MethodGet, "/", nil)
	n.c.must(err)
	for line := range strings.Lines(string(a.body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			var v float64
			_, err := fmt.Sscan(rest, &v)
			n.c.must(err)
			return v
		}
	}
	n.c.Fatalf("there is no metric %s", name)
	return 0
}

// app creates an app that may reach this machine's own addresses.
func (c *cluster) app(name, config string) {
	c.Helper()
	body := map[string]any{"name": name, "config": config, "grants": []string{"private_network"}}
	c.must(c.nodes[0].admin().ask(c.Context(), http.MethodPost, "/admin/apps", body, nil))
}

// mint returns a token of an app.
func (c *cluster) mint(app, sub string) string { return c.nodes[0].mint(app, sub) }

func (n *node) mint(app, sub string) string {
	n.c.Helper()
	var out struct {
		AccessToken string `json:"access_token"`
	}
	body := map[string]any{"sub": sub, "roles": []string{"admin"}, "ttl": "24h"}
	n.c.must(n.admin().ask(n.c.Context(), http.MethodPost, "/admin/apps/"+app+"/tokens", body, &out))
	return out.AccessToken
}

// key returns an API key of an app, which is good whatever a clock says.
func (c *cluster) key(app string) string {
	c.Helper()
	var out struct{ Key string }
	body := map[string]any{"name": "test", "roles": []string{"admin"}}
	c.must(c.nodes[0].admin().ask(c.Context(), http.MethodPost, "/admin/apps/"+app+"/keys", body, &out))
	return out.Key
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// sql reads rows, past the API: for what nothing else can show.
func (c *cluster) sql(query string, args ...any) (rows [][]any) {
	c.Helper()
	conn, err := pgx.Connect(c.Context(), c.database)
	c.must(err)
	defer conn.Close(context.Background())
	got, err := conn.Query(c.Context(), query, args...)
	c.must(err)
	rows, err = pgx.CollectRows(got, func(r pgx.CollectableRow) ([]any, error) { return r.Values() })
	c.must(err)
	return rows
}

// hold takes a lock in a transaction, which ends when the returned function is called.
func (c *cluster) hold(lock string) (free func()) {
	c.Helper()
	conn, err := pgx.Connect(c.Context(), c.database)
	c.must(err)
	_, err = conn.Exec(c.Context(), "BEGIN; "+lock)
	c.must(err)
	return sync.OnceFunc(func() { _ = conn.Close(context.Background()) })
}

// within waits until something holds, at most for d, and returns how long that took.
func (c *cluster) within(d time.Duration, what string, holds func() bool) time.Duration {
	c.Helper()
	began := time.Now()
	hangs := time.AfterFunc(d+10*time.Second, c.stacks)
	defer hangs.Stop()
	for !holds() {
		if time.Since(began) > d {
			c.Fatalf("after %v it does not hold that %s", d, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	if took > d+10*time.Second { // the last look may itself take a while
		c.Errorf("only after %v it holds that %s, want it within %v", took, what, d)
	}
	return took
}

// stacks ends the processes of a test that hangs, and tells where their runs and calls stand.
func (c *cluster) stacks() {
	for _, n := range c.nodes {
		_ = n.End(syscall.SIGQUIT)
		for one := range strings.SplitSeq(n.Output(), "\n\n") {
			if strings.HasPrefix(one, "goroutine ") && (strings.Contains(one, "agentsvc/runner.") || strings.Contains(one, "agentsvc/task.") || strings.Contains(one, "agentsvc/queue.")) {
				c.Logf("%s:\n%s", n.base, one)
			}
		}
	}
}

// restsAs waits until a task comes to rest, at most for d, and wants it to be in a state.
func (c *cluster) restsAs(n *node, agent, id, state string, d time.Duration) task {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), d)
	defer cancel()
	t, err := n.rest(ctx, agent, id)
	c.must(err)
	if t.Status.State != state {
		c.Fatalf("task %s is %s (%s), want %s", id, t.Status.State, t.text(), state)
	}
	return t
}

// complaints is what the process has said, beside the requests it answered well, in all of its lives.
func (n *node) complaints() string {
	var b strings.Builder
	for _, p := range append(n.earlier, n.Process) {
		for line := range strings.Lines(p.Output()) {
			if !strings.Contains(line, "level=INFO msg=request ") || strings.Contains(line, " status=5") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
