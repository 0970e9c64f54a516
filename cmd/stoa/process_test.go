package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"stoa/cmd/stoa/server"
	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// process is a real stoa process.
type process struct {
	*stoatest.Process
	*testServer
}

// startProcess starts stoa serve in a folder and waits until it serves.
func startProcess(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := stoatest.StartServing(t, "stoa", dir, args...)
	return &process{p, &testServer{url: p.URL}}
}

// slowApp is an app whose agent takes two seconds for each answer.
const slowApp = `
llms: {m: {provider: scripted, script: [{when: {text: "^slow"}, then: [{say: "one ", pause: 2s}, {say: two}]}, {then: [{say: "%s: {{text}}"}]}]}}
agents: {assistant: {llm: m}}
`

func (ts *testServer) createApp(t *testing.T, name, config string) {
	t.Helper()
	ts.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": config})
}

type taskAnswer struct {
	Result struct {
		TaskID string `json:"task_id"`
		Status struct {
			State   string
			Message struct{ Parts []struct{ Text string } }
		}
	}
}

// statusText returns the text of the task's last status.
func (a taskAnswer) statusText() string {
	var b strings.Builder
	for _, p := range a.Result.Status.Message.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// onEachProcessDatabase runs f with the database URL of each engine.
func onEachProcessDatabase(t *testing.T, f func(t *testing.T, dir, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, t.TempDir(), "sqlite://stoa.db") })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, t.TempDir(), dbtest.NewPostgresURL(t)) })
}

// TestTwoProcesses runs two servers on one PostgreSQL: each serves every tenant, and a change made at one acts at the
// other within two seconds.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgresURL(t)
	one, two := startProcess(t, t.TempDir(), "--database", database), startProcess(t, t.TempDir(), "--database", database)
	both := []*process{one, two}
	tokens := map[string]string{}
	for i, app := range []string{"acme", "globex"} {
		both[i].createApp(t, app, fmt.Sprintf(slowApp, app))
		tokens[app] = both[i].createToken(t, app, "ana", nil)
	}
	request := func(p *process, app string) string {
		var got taskAnswer
		p.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", tokens[app], newRPCCall("message:send", newTextMessage("hi")))
		return got.statusText()
	}
	for _, p := range both {
		for app := range tokens {
			if got := request(p, app); got != app+": hi" {
				t.Errorf("%s at %s says %q", app, p.url, got)
			}
		}
	}
	one.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": fmt.Sprintf(slowApp, "new acme")})
	dbtest.WaitUntil(t, "the new revision serves at the other process", func() bool { return request(two, "acme") == "new acme: hi" })
	one.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/globex:suspend", testSecret, map[string]any{})
	dbtest.WaitUntil(t, "the other process refuses the suspended app", func() bool {
		status, _ := two.doRequest(t, "POST", "/agents/assistant", tokens["globex"], newRPCCall("message:send", newTextMessage("hi")))
		return status == http.StatusForbidden
	})
	one.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
	dbtest.WaitUntil(t, "the other process refuses tokens of the deleted app", func() bool {
		status, _ := two.doRequest(t, "POST", "/agents/assistant", tokens["acme"], newRPCCall("message:send", newTextMessage("hi")))
		return status == http.StatusUnauthorized
	})
}

// TestProcessEnvironment checks that nothing of a test's own environment reaches the program under test: neither its
// settings, nor the API keys of its user, nor the variables of the tests.
func TestProcessEnvironment(t *testing.T) {
	for _, name := range []string{"STOA_TEST_OF_ANOTHER_TEST", "STOA_LOG_FORMAT", "OPENAI_API_KEY", "OTEL_TRACES_EXPORTER"} {
		t.Setenv(name, "unusable")
	}
	p := startProcess(t, t.TempDir())
	if out := p.Output(); strings.Contains(out, "level=WARN") || strings.Contains(out, "unusable") {
		t.Errorf("the environment of the test reaches the program:\n%s", out)
	}
}

// TestCardAddress checks that the URL on a card is the address at which the server was reached.
func TestCardAddress(t *testing.T) {
	t.Parallel()
	p := startProcess(t, t.TempDir())
	var card struct{ URL string }
	p.requireStatus(t, http.StatusOK, &card, "GET", "/agents/assistant", "", nil)
	if want := p.url + "/agents/assistant"; card.URL != want {
		t.Errorf("the card says %s, want %s", card.URL, want)
	}
}

// TestRefusesToStart checks that each way in which a start can fail gives one clear line, and the exit code 2 if only a
// change of the settings or of a file cures it: a service manager then starts the server no more.
func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	taken := startProcess(t, t.TempDir())
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{"port taken", []string{"--port", taken.url[strings.LastIndex(taken.url, ":")+1:]}, "address already in use (another program listens there: stop it, or choose another with --port (STOA_PORT))", 1},
		{"second process on a file", []string{"--database", "sqlite://" + filepath.Join(taken.Cmd.Dir, "stoa.db")}, "in use by another process", 1},
		{"file not writable", []string{"--database", "sqlite:///proc/stoa.db"}, "/proc/stoa.db", 1},
		{"no PostgreSQL there", []string{"--database", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"}, "connect to PostgreSQL at 127.0.0.1:1", 1},
		{"no database URL", []string{"--database", "mysql://x"}, "sqlite:// or postgres://", 2},
		{"typo in the file", []string{"--config", write("typo.yaml", "agnets: {}\n")}, "typo.yaml:1:1", 2},
		{"no such file", []string{"--config", filepath.Join(dir, "none.yaml")}, "none.yaml", 2},
		{"agent without its model", []string{"--config", write("model.yaml", "agents: {a: {llm: m}}\n")}, "agents.a.llm", 2},
		{"log file in no folder", []string{"--config", write("log.yaml", "logger: {file: none/stoa.log}\n")}, "logger.file", 2},
		{"studio without a file", []string{"--studio"}, "--studio", 2},
		{"half a process on a file", []string{"--role", "worker"}, "--role worker needs PostgreSQL", 2},
		{"bad Redis", []string{"--redis", "http://x"}, "--redis", 2},
		{"bad public URL", []string{"--public-url", "https://x?y"}, "public URL", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := stoatest.StartServer(t, "stoa", t.TempDir(), c.args...)
			select {
			case <-p.Ended():
			case <-time.After(time.Minute):
				t.Fatalf("it starts all the same:\n%s", p.Output())
			}
			if code := p.Cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(p.Output(), c.want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, p.Output(), c.code, c.want)
			}
			if strings.Contains(p.Output(), testSecret) {
				t.Error("the output holds the admin secret")
			}
		})
	}
}

// TestJSONLogFromStart checks that a server whose log is JSON writes nothing else when it cannot start, also if that is
// known before its settings are: by a flag, the environment or the file.
func TestJSONLogFromStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"good.yaml": "agents: {a: {llm: m}}\nllms: {m: {provider: scripted}}\n", "bad.yaml": "agents: {a: {llm: m}}\nlogger: {format: json}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, variable string
		args           []string
		want           string
		code           int
	}{
		{"file with an error", "", []string{"--log-format", "json", "--config", "bad.yaml"}, "agents.a.llm", 2},
		{"format in the file with an error", "", []string{"--config", "bad.yaml"}, "agents.a.llm", 2},
		{"no file", "STOA_LOG_FORMAT=json", []string{"--config", "none.yaml"}, "none.yaml", 2},
		{"wrong flag", "STOA_LOG_FORMAT=json", []string{"--prot", "80"}, "--prot", 2},
		{"value of a flag", "", []string{"--port", "http", "--log-format=json"}, "--port", 2},
		{"setting out of range", "", []string{"--log-format=json", "--config=good.yaml", "--port", "70000"}, "--port must be between", 2},
		{"variable", "STOA_PORT=http", []string{"--log-format=json"}, "STOA_PORT", 2},
		{"no JSON", "STOA_LOG_FORMAT=json", []string{"--log-format=simple", "--config", "none.yaml"}, "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := stoatest.LaunchProcess("stoa", dir, []string{tt.variable}, append([]string{"serve"}, tt.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			<-p.Ended()
			if code := p.Cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("it ends with %d, want %d", code, tt.code)
			}
			for line := range strings.Lines(p.Output()) {
				record, err := decodeUniqueNames(line)
				if isJSON := err == nil; isJSON != (tt.want != "") {
					t.Errorf("the line %s", line)
				} else if wrong, _ := record["error"].(string); isJSON && (record["level"] != "ERROR" || !strings.Contains(wrong, tt.want)) {
					t.Errorf("%v, want an error with %q", record, tt.want)
				}
			}
			if p.Output() == "" {
				t.Error("it writes nothing")
			}
		})
	}
}

// TestSecretFilesAreRead starts a server for each of its secrets with a file of it that does not exist: the server ends and
// names the variable, so the file of each secret is read.
func TestSecretFilesAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		server.DatabaseName, server.MigrateDatabaseName, "STOA_REDIS", server.AdminSecretName, server.MasterKeyName, server.MetricsTokenName,
		server.NotificationSecretName, server.WebhookSecretName, "STOA_EXPORT_STRIPE_KEY",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The test's environment has some of the secrets; an empty variable counts as not set.
			p, err := stoatest.LaunchProcess("stoa", t.TempDir(), []string{name + "=", name + "_FILE=none"}, "serve", "--host", "127.0.0.1", "--port", "0")
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Ended():
			case <-time.After(time.Minute):
				_ = p.SignalAndWait(syscall.SIGKILL)
				t.Fatalf("the server does not end: %s", p.Output())
			}
			if code := p.Cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(p.Output(), name+"_FILE: open none") {
				t.Errorf("it ends with %d and %s", code, p.Output())
			}
		})
	}
}

// TestJSONLog checks that every line of a server whose log is JSON is one object, without a name that occurs twice: when it
// serves, answers and stops, and when it cannot start. Lines of requests name the client, the subject, the task and the limit.
func TestJSONLog(t *testing.T) {
	t.Parallel()
	p := startProcess(t, t.TempDir(), "--log-format", "json")
	p.createApp(t, "acme", fmt.Sprintf(slowApp, "acme"))
	p.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"limits": map[string]any{"rate": []any{
		map[string]any{"per": "app", "type": "count", "window": "month", "limit": 1},
	}}})
	ana := p.createToken(t, "acme", "ana", nil)
	var got taskAnswer
	p.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("hi")))
	p.requireStatus(t, http.StatusTooManyRequests, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("hi")))
	second := stoatest.StartServer(t, "stoa", p.Cmd.Dir, "--log-format", "json")
	<-second.Ended()
	if !strings.Contains(second.Output(), "in use by another process") {
		t.Errorf("a server that cannot start says %s", second.Output())
	}
	if err := p.SignalAndWait(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	var requests, changes []map[string]any
	for line := range strings.Lines(p.Output() + second.Output()) {
		record, err := decodeUniqueNames(line)
		if err != nil {
			t.Errorf("%v in the line %s", err, line)
		}
		switch {
		case record["msg"] != "request" || record["app"] != "acme":
		case record["agent"] == nil:
			changes = append(changes, record)
		default:
			requests = append(requests, record)
		}
	}
	if len(requests) != 2 || len(changes) != 3 {
		t.Fatalf("%d requests of the app and %d of the operator about it are logged, want 2 and 3:\n%s", len(requests), len(changes), p.Output())
	}
	for i, want := range []map[string]any{
		{"client": "127.0.0.1", "subject": "ana", "agent": "assistant", "task": got.Result.TaskID, "limit": nil, "status": 200.0},
		{"client": "127.0.0.1", "subject": "ana", "agent": "assistant", "task": nil, "limit": "app-count-month", "status": 429.0},
	} {
		for name, value := range want {
			if requests[i][name] != value {
				t.Errorf("request %d has %s %v, want %v", i, name, requests[i][name], value)
			}
		}
		if d, ok := requests[i]["duration"].(float64); !ok || d <= 0 || d > 60 {
			t.Errorf("request %d took %v, want seconds", i, requests[i]["duration"])
		}
	}
}

// decodeUniqueNames decodes a JSON object and returns an error for a name that occurs twice.
func decodeUniqueNames(text string) (map[string]any, error) {
	out := map[string]any{}
	d := json.NewDecoder(strings.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if _, twice := out[name.(string)]; twice {
			return nil, fmt.Errorf("%s occurs twice", name)
		}
		out[name.(string)] = value
	}
	return out, nil
}

// TestConfigurationWarnings checks that a server logs what its file and an app's configuration ask for and do not get,
// once each.
func TestConfigurationWarnings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const hot = `
llms: {m: {provider: scripted}, hot: {provider: anthropic, api_key: k, temperature: 1.5}}
agents: {assistant: {llm: m}}
`
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(hot), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", "stoa.yaml")
	p.createApp(t, "acme", hot)
	token := p.createToken(t, "acme", "ana", nil)
	for range 2 {
		for _, as := range []string{"", token} {
			p.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", as, newRPCCall("message:send", newTextMessage("hi")))
		}
	}
	count := func() int {
		return strings.Count(p.Output(), "is more than 1, the most that anthropic takes: 1 is used")
	}
	dbtest.WaitUntil(t, "both warnings are logged", func() bool { return count() >= 2 })
	if n := count(); n != 2 {
		t.Errorf("%d warnings, want one of the file and one of the app:\n%s", n, p.Output())
	}
}

// TestWatch changes the configuration file and its .env while the server runs: valid changes act without a restart
// and leave sessions and tasks alone, an invalid one changes nothing.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(greeting string) string {
		return fmt.Sprintf(`
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {then: [{say: "%s: {{text}}"}]}]}}
agents: {assistant: {llm: m}}
observability: {metrics: {enabled: true}}
`, greeting)
	}
	write("stoa.yaml", config("one"))
	p := startProcess(t, dir, "--config", "stoa.yaml", "--watch")
	send := func(m map[string]any) (got taskAnswer) {
		p.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", "", newRPCCall("message:send", m))
		return got
	}
	says := func(want string) func() bool {
		return func() bool { got := send(newTextMessage("hi")); return got.statusText() == want }
	}
	waiting := send(newTextMessage("ask"))
	dbtest.WaitUntil(t, "the file serves", says("one: hi"))
	write("stoa.yaml", config("two"))
	dbtest.WaitUntil(t, "a changed file serves", says("two: hi"))
	write("stoa.yaml", "agnets: {}\n")
	dbtest.WaitUntil(t, "a broken file is told", func() bool { return strings.Contains(p.Output(), "agnets") })
	if !says("two: hi")() {
		t.Error("a broken file replaced the one before")
	}
	write("stoa.yaml", config("two")+"server: {port: 9999}\n")
	dbtest.WaitUntil(t, "a change that needs a restart is logged", func() bool { return strings.Contains(p.Output(), "need a restart") })
	if _, app := p.doRequest(t, "GET", "/admin/apps/default", testSecret, nil); !strings.Contains(app, `"awaits_restart":["server.port"]`) {
		t.Errorf("the admin API does not say what takes a restart: %s", app)
	}
	write("stoa.yaml", config("${GREETING:three}"))
	dbtest.WaitUntil(t, "a mended file serves", says("three: hi"))
	if _, app := p.doRequest(t, "GET", "/admin/apps/default", testSecret, nil); strings.Contains(app, "awaits_restart") {
		t.Errorf("the file is what it was at the start, but for what needs no restart: %s", app)
	}
	write(".env", "GREETING=four\n")
	dbtest.WaitUntil(t, "a changed .env serves", says("four: hi"))
	dbtest.WaitUntil(t, "each configuration is on the audit trail", func() bool {
		_, trail := p.doRequest(t, "GET", "/admin/audit?app=default&action=config", testSecret, nil)
		return strings.Count(trail, `"config.load"`) == 4 // a change of .env changes variables, not the document
	})
	_, text := p.doRequest(t, "GET", "/metrics", "", nil)
	for _, want := range []string{`refused"} 1\n`, `applied"} [1-9]`} {
		if !regexp.MustCompile(`stoa_config_reloads_total{outcome="` + want).MatchString(text) {
			t.Errorf("the metrics of reloads are %q, want %s", regexp.MustCompile(`stoa_config_reloads_total{.*`).FindAllString(text, -1), want)
		}
	}
	answer := newTextMessage("go on")
	answer["message"].(map[string]any)["task_id"] = waiting.Result.TaskID
	if got := send(answer); got.statusText() != "four: go on" {
		t.Errorf("the task that waited goes on with %q", got.statusText())
	}
}

// TestWatchVariables changes the .env next to the configuration of a server that runs without --watch: the variables act
// without a restart. A change of the file itself waits for one, also when the variables change afterwards.
func TestWatchVariables(t *testing.T) {
	t.Parallel()
	here, dir := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const config = `llms: {default: {provider: scripted, script: [{then: [{say: "%s ${GREETING:none}"}]}]}}
agents: {assistant: {}}
`
	write("stoa.yaml", fmt.Sprintf(config, "old"))
	p := startProcess(t, here, "--config", filepath.Join(dir, "stoa.yaml"))
	answer := func() string {
		var got taskAnswer
		p.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", "", newRPCCall("message:send", newTextMessage("hi")))
		return got.statusText()
	}
	dbtest.WaitUntil(t, "the file serves", func() bool { return answer() == "old none" })
	write("stoa.yaml", fmt.Sprintf(config, "new"))
	write(".env", "GREETING=one\n")
	dbtest.WaitUntil(t, "a variable serves", func() bool { return answer() == "old one" })
	write(".env", "GREETING=\n")
	dbtest.WaitUntil(t, "an empty variable is not a missing one", func() bool { return answer() == "old " })
	write(".env", "GREETING \"two\n")
	dbtest.WaitUntil(t, "variables that cannot be read are told", func() bool { return strings.Contains(p.Output(), "does not load") })
	if got := answer(); got != "old " {
		t.Errorf("what does not load changes the answer to %q", got)
	}
}

// TestFilesDiffer gives two processes on one database different configuration files: both log a warning.
func TestFilesDiffer(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgresURL(t)
	var both []*process
	for _, greeting := range []string{"one", "two"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), fmt.Appendf(nil, slowApp, greeting), 0o600); err != nil {
			t.Fatal(err)
		}
		both = append(both, startProcess(t, dir, "--database", database, "--config", "stoa.yaml", "--queue-stale-threshold", "1s"))
	}
	for _, p := range both {
		dbtest.WaitUntil(t, "the process warns of the other's file", func() bool {
			return strings.Contains(p.Output(), "another configuration file")
		})
	}
}

// TestOpenDefault checks that a process warns when others reach the agents of its default app without a credential.
func TestOpenDefault(t *testing.T) {
	t.Parallel()
	const agent = "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\n"
	for _, tt := range []struct {
		name, file string // file is the text of the operator's file, "" for none
		args       []string
		want       string // what the warning has, "" for none
	}{
		{"every address", "", []string{"--host", "0.0.0.0"}, "--host (STOA_HOST) is 0.0.0.0"},
		{"loopback", "", nil, ""},
		{"a file at every address", agent, []string{"--host", "0.0.0.0"}, "--host (STOA_HOST) is 0.0.0.0"},
		{"a proxy with a public URL", agent, []string{"--public-url", "https://agents.example.com"}, "--public-url (STOA_PUBLIC_URL) is https://agents.example.com"},
		{"a proxy that is trusted", agent, []string{"--trusted-proxies", "127.0.0.1/32"}, "--trusted-proxies (STOA_TRUSTED_PROXIES) is set"},
		{"a file at loopback", agent, []string{"--public-url", "http://localhost:8080"}, ""},
		{"no agent", "agents: {}\n", []string{"--host", "0.0.0.0"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			args := tt.args
			if tt.file != "" {
				if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append([]string{"--config", "stoa.yaml"}, args...)
			}
			log := startProcess(t, dir, args...).Output()
			if got := strings.Contains(log, "is open: everyone who reaches"); got != (tt.want != "") || !strings.Contains(log, tt.want) {
				t.Errorf("want a warning with %q, the log has:\n%s", tt.want, log)
			}
		})
	}
}

// TestOpenDefaultReload checks that the warning also appears when a reload gives the default app its first agent.
func TestOpenDefaultReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("agents: {}\n")
	p := startProcess(t, dir, "--config", "stoa.yaml", "--watch", "--public-url", "https://agents.example.com")
	if strings.Contains(p.Output(), "is open: everyone who reaches") {
		t.Errorf("it warns without an agent:\n%s", p.Output())
	}
	write("llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\n")
	dbtest.WaitUntil(t, "the process warns", func() bool { return strings.Contains(p.Output(), "is open: everyone who reaches") })
}
