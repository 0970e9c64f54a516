package faults_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
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

// staleThreshold is the age of a heartbeat at which a worker of a cluster counts as dead.
const staleThreshold = 2 * time.Second

// setupTimeout is how long a test waits for what it needs and nothing promises a time for.
const setupTimeout = time.Minute

// cluster is some stoa processes on one database, with everything they depend on.
type cluster struct {
	*testing.T
	nodes       []*node
	database    string           // its address without the proxy
	adminURL    string           // where querySQL connects; "" = database
	redisServer *externalService // nil = no Redis
	model       *modelServer
	tools       *recorder
	client      *http.Client
	token       string // of the user ana of the app acme, who has all rights
}

// clusterOptions configure a cluster. The zero value is two processes on PostgreSQL.
type clusterOptions struct {
	nodes    int
	sqlite   bool
	redis    bool
	database string // address; "" = a new database on the tests' server
	noProxy  bool   // the processes reach PostgreSQL and Redis without a proxy, which large data would keep busy
	adminURL string // where the test reads rows; "" = database
	args     []string
	env      func(n int) []string // environment of process n
	hosts    []string             // addresses of loopback of the processes, which then have one port; nil = 127.0.0.1
	build    *build
}

// node is a process of a cluster. It keeps its address when it is restarted.
type node struct {
	*stoatest.Process
	*client
	cluster          *cluster
	postgresProxy    *proxy // between the process and PostgreSQL; nil on SQLite and without proxies
	redisProxy       *proxy // between the process and Redis; nil without Redis and without proxies
	program          string
	dir              string
	args             []string
	env              []string
	metricsAddr      string // address of its metrics
	earlierProcesses []*stoatest.Process
}

// startCluster starts a cluster with an app acme.
func startCluster(t *testing.T, s clusterOptions) *cluster {
	t.Helper()
	c := &cluster{T: t, database: s.database, adminURL: s.adminURL, tools: newRecorder(t)}
	c.model = newModelServer(t, c.tools)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	c.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	c.startServices(s)
	if s.build == nil {
		s.build = plainBuild
	}
	common := itoa(freePort(t))
	for i := range max(s.nodes, 1) {
		host, port := "127.0.0.1", common
		if s.hosts != nil {
			host = s.hosts[i]
		} else {
			port = itoa(freePort(t))
		}
		n := &node{cluster: c, program: s.build.programPath(t), dir: t.TempDir()}
		n.metricsAddr = "127.0.0.1:" + itoa(freePort(t))
		n.args = append([]string{"serve", "--host", host, "--port", port, "--grpc-port", "0", "--metrics-addr", n.metricsAddr,
			"--queue-stale-threshold", staleThreshold.String(), "--queue-initial-delay", "100ms"}, n.connectionArgs(!s.noProxy)...)
		n.args = append(n.args, s.args...)
		n.client = &client{baseURL: "http://" + net.JoinHostPort(host, port), http: c.client}
		if s.env != nil {
			n.env = s.env(i)
		}
		c.nodes = append(c.nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.killProcess()
			if t.Failed() && n.Process != nil {
				t.Logf("%s wrote:\n%s", n.baseURL, lastBytes(n.filteredOutput(), 4000))
			}
		}
	})
	for _, n := range c.nodes {
		if err := n.startProcess(); err != nil {
			t.Fatal(err)
		}
	}
	c.createApp("acme", c.appConfig())
	c.token = c.createToken("acme", "ana")
	for _, n := range c.nodes {
		n.token = c.token
	}
	return c
}

// startServices starts what the processes depend on.
func (c *cluster) startServices(s clusterOptions) {
	switch {
	case s.sqlite && c.database == "":
		c.database = "sqlite://" + filepath.Join(c.TempDir(), "stoa.db")
	case c.database == "":
		c.database = dbtest.NewPostgresURL(c)
	}
	if s.redis {
		c.redisServer = startRedis(c)
	}
}

// connectionArgs returns the arguments with the addresses of the process's dependencies, or of new proxies to them.
func (n *node) connectionArgs(proxies bool) []string {
	database := n.cluster.database
	if proxies && strings.HasPrefix(database, "postgres") {
		n.postgresProxy = newProxy(n.cluster, hostOf(database))
		database = viaProxy(database, n.postgresProxy)
	}
	args := []string{"--database", database}
	if n.cluster.redisServer == nil {
		return args
	}
	addr := n.cluster.redisServer.addr
	if proxies {
		n.redisProxy = newProxy(n.cluster, addr)
		addr = n.redisProxy.addr
	}
	return append(args, "--redis", "redis://"+addr+"/0")
}

// appConfig returns the configuration of the app acme. Its agent assistant follows a script, modelled uses a model's
// server, and hooked is started by a webhook with a callback.
func (c *cluster) appConfig() string {
	return strings.NewReplacer("RECORDER", c.tools.URL, "HOST", hostOf(c.tools.URL), "MODEL", c.model.URL, "SECRET", hookSecret).Replace(`
llms:
  script:
    provider: scripted
    script:
      - when: {text: "^slow (?P<n>\\S+)"}
        then: [{say: "one ", pause: 1500ms}, {say: "two {{n}}"}]
      - when: {text: "^journey (?P<n>\\S+)"}
        then: [{say: "1 ", pause: 1s}, {say: "2 ", pause: 1s}, {say: "3 ", pause: 1s}, {say: "4 ", pause: 1s}, {say: "5 ", pause: 1s}, {say: "6 ", pause: 1s}, {say: "{{n}}"}]
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

// setDatabaseLinks sets the state of all proxies to PostgreSQL.
func (c *cluster) setDatabaseLinks(w linkState) {
	for _, n := range c.nodes {
		n.postgresProxy.setState(w)
	}
}

// startProcess starts the process and waits until it serves.
func (n *node) startProcess() error {
	p, err := stoatest.LaunchProcess(n.program, n.dir, n.env, n.args...)
	if err != nil {
		return err
	}
	if n.Process != nil {
		n.earlierProcesses = append(n.earlierProcesses, n.Process)
	}
	n.Process = p
	return p.AwaitServing(context.Background())
}

func (n *node) restartProcess() {
	n.cluster.Helper()
	if err := n.startProcess(); err != nil {
		n.cluster.Fatal(err)
	}
}

// replaceProgram stops the process like a rolling restart, starts program in its place, and waits until it is ready.
func (n *node) replaceProgram(program string) {
	c := n.cluster
	c.Helper()
	if err := n.SignalAndWait(syscall.SIGTERM); err != nil {
		c.Errorf("a process ended with %v:\n%s", err, lastBytes(n.Output(), 2000))
	}
	n.program = program
	n.restartProcess()
	c.waitWithin(setupTimeout, "the process is ready", func() bool {
		a, err := n.doRequest(c.Context(), http.MethodGet, "/ready", nil)
		return err == nil && a.status == http.StatusOK
	})
}

// killProcess kills the process with SIGKILL, like a power failure.
func (n *node) killProcess() {
	if n.Process != nil {
		_ = n.SignalAndWait(syscall.SIGKILL)
	}
}

func (n *node) sendSignal(s syscall.Signal) {
	n.cluster.Helper()
	if err := n.Cmd.Process.Signal(s); err != nil {
		n.cluster.Fatal(err)
	}
}

// freezeProcess stops the process with SIGSTOP and waits until all its threads have stopped, which takes a while on a
// busy machine.
func (n *node) freezeProcess() {
	n.cluster.Helper()
	n.sendSignal(syscall.SIGSTOP)
	n.cluster.waitWithin(setupTimeout, "the process stands still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.Cmd.Process.Pid))
		n.cluster.requireNoError(err)
		return !slices.ContainsFunc(threads, func(path string) bool {
			raw, err := os.ReadFile(path)
			_, after, _ := strings.Cut(string(raw), ") ")
			return err == nil && !strings.HasPrefix(after, "T")
		})
	})
}

// adminClient returns a client with the operator's secret.
func (n *node) adminClient() *client {
	return &client{baseURL: n.baseURL, token: stoatest.AdminSecret, http: n.cluster.client}
}

// readMetric returns the value of a metric of the process.
func (n *node) readMetric(name string) float64 {
	n.cluster.Helper()
	a, err := (&client{baseURL: "http://" + n.metricsAddr, http: n.cluster.client}).doRequest(n.cluster.Context(), http.MethodGet, "/", nil)
	n.cluster.requireNoError(err)
	for line := range strings.Lines(string(a.body)) {
		if remainder, ok := strings.CutPrefix(line, name+" "); ok {
			var v float64
			_, err := fmt.Sscan(remainder, &v)
			n.cluster.requireNoError(err)
			return v
		}
	}
	n.cluster.Fatalf("there is no metric %s", name)
	return 0
}

// createApp creates an app that may call private addresses.
func (c *cluster) createApp(name, config string) {
	c.Helper()
	body := map[string]any{"name": name, "config": config, "grants": []string{"private_network"}}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPost, "/admin/apps", body, nil))
}

// createToken returns a token of an app.
func (c *cluster) createToken(app, sub string) string { return c.nodes[0].createToken(app, sub) }

func (n *node) createToken(app, sub string) string {
	n.cluster.Helper()
	var out struct {
		AccessToken string `json:"access_token"`
	}
	body := map[string]any{"sub": sub, "roles": []string{"admin"}, "ttl": "24h"}
	n.cluster.requireNoError(n.adminClient().requestJSON(n.cluster.Context(), http.MethodPost, "/admin/apps/"+app+"/tokens", body, &out))
	return out.AccessToken
}

// createAPIKey returns an API key of an app, which is valid at any clock.
func (c *cluster) createAPIKey(app string) string {
	c.Helper()
	var out struct{ Key string }
	body := map[string]any{"name": "test", "roles": []string{"admin"}}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPost, "/admin/apps/"+app+"/keys", body, &out))
	return out.Key
}

func (c *cluster) requireNoError(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// querySQL reads rows of the database, for what the API does not show. A SQLite file may be in use.
func (c *cluster) querySQL(query string, args ...any) (rows [][]any) {
	c.Helper()
	if file, ok := strings.CutPrefix(c.database, "sqlite://"); ok {
		return c.queryFile(file, query, args...)
	}
	conn, err := pgx.Connect(c.Context(), cmp.Or(c.adminURL, c.database))
	c.requireNoError(err)
	defer conn.Close(context.Background())
	got, err := conn.Query(c.Context(), query, args...)
	c.requireNoError(err)
	rows, err = pgx.CollectRows(got, func(r pgx.CollectableRow) ([]any, error) { return r.Values() })
	c.requireNoError(err)
	return rows
}

// queryFile is querySQL on SQLite.
func (c *cluster) queryFile(file, query string, args ...any) (rows [][]any) {
	c.Helper()
	s, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
	c.requireNoError(err)
	defer func() { _ = s.Close() }()
	got, err := s.QueryContext(c.Context(), query, args...)
	c.requireNoError(err)
	defer func() { _ = got.Close() }()
	names, err := got.Columns()
	c.requireNoError(err)
	for got.Next() {
		row := make([]any, len(names))
		targets := make([]any, len(names))
		for i := range row {
			targets[i] = &row[i]
		}
		c.requireNoError(got.Scan(targets...))
		rows = append(rows, row)
	}
	c.requireNoError(got.Err())
	return rows
}

// acquireLock takes a lock in a transaction, which ends when the returned function is called.
func (c *cluster) acquireLock(lock string) (free func()) {
	c.Helper()
	conn, err := pgx.Connect(c.Context(), c.database)
	c.requireNoError(err)
	_, err = conn.Exec(c.Context(), "BEGIN; "+lock)
	c.requireNoError(err)
	return sync.OnceFunc(func() { _ = conn.Close(context.Background()) })
}

// waitForLockWaiter waits until a statement waits for the advisory lock 7. The other databases of the server have locks of
// their own, for instance of migrations.
func (c *cluster) waitForLockWaiter() {
	c.Helper()
	c.waitWithin(setupTimeout, "a statement waits for the lock", func() bool {
		return len(c.querySQL(`SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND objid = 7
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)) > 0
	})
}

// waitWithin waits until a condition holds, at most for d, and returns how long that took.
func (c *cluster) waitWithin(d time.Duration, what string, condition func() bool) time.Duration {
	c.Helper()
	began := time.Now()
	timeout := time.AfterFunc(d+10*time.Second, c.dumpStacks)
	defer timeout.Stop()
	for !condition() {
		if time.Since(began) > d {
			c.Fatalf("after %v it does not hold that %s", d, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	if took > d+10*time.Second { // the last check may itself take a while
		c.Errorf("only after %v it holds that %s, want it within %v", took, what, d)
	}
	return took
}

// dumpStacks ends the processes of a hanging test and prints their goroutines.
func (c *cluster) dumpStacks() {
	for _, n := range c.nodes {
		_ = n.SignalAndWait(syscall.SIGQUIT)
		for one := range strings.SplitSeq(n.Output(), "\n\n") {
			if strings.HasPrefix(one, "goroutine ") && (strings.Contains(one, "agentsvc/runner.") || strings.Contains(one, "agentsvc/task.") || strings.Contains(one, "agentsvc/queue.")) {
				c.Logf("%s:\n%s", n.baseURL, one)
			}
		}
	}
}

// waitForState waits until a task is settled, at most for d, and requires it to be in a state.
func (c *cluster) waitForState(n *node, agent, id, state string, d time.Duration) task {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), d)
	defer cancel()
	t, err := n.waitSettled(ctx, agent, id)
	c.requireNoError(err)
	if t.Status.State != state {
		c.Fatalf("task %s is %s (%s), want %s", id, t.Status.State, t.lastText(), state)
	}
	return t
}

// filteredOutput returns the output of the process, over all restarts, without the log lines of successful requests.
func (n *node) filteredOutput() string {
	var b strings.Builder
	for _, p := range append(n.earlierProcesses, n.Process) {
		for line := range strings.Lines(p.Output()) {
			if !strings.Contains(line, "level=INFO msg=request ") || strings.Contains(line, " status=5") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }
