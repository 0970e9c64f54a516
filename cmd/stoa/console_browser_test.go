package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"stoa/tenancy/db/dbtest"
)

// consoleApp is the app that TestConsoleInBrowser uses the console for.
const consoleApp = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^slow$"}
        then: [{say: "one ", pause: 3s}, {say: "two"}]
      - when: {text: "^never$"}
        then: [{say: "wait ", pause: 10m}, {say: "for it"}]
      - when: {text: "^lines$"}
        then: [{say: "first\n\n", pause: 3s}, {say: "second\n\n", pause: 10m}, {say: "third"}]
      - when: {text: "^sum$"}
        then: [{say: "Let me see."}, {call: {tool: calc, arguments: {expression: "40 + 2"}}}]
      - when: {tool_result: calc}
        then: [{say: "The sum is {{result}}."}]
      - when: {text: "^pay$"}
        then: [{call: {tool: pay, arguments: {expression: "40 + 0"}}}]
      - when: {tool_result: pay}
        then: [{say: "Paid {{result}}."}]
      - when: {text: "^echo (?P<what>.*)"}
        then: [{call: {tool: clock, arguments: {timezone: "{{what}}"}}}]
      - when: {tool_result: clock}
        then: [{say: "{{result}}"}]
      - when: {text: "^fail"}
        then: [{fail: {status: 400, message: "no"}}]
      - then: [{say: "You said: {{text}}"}]
storage: {checkpoint: {enabled: true}}
guardrails: {rail: {enabled: true, input: {injection: {enabled: true, patterns: ["open sesame"], action: warn}}}}
tools:
  calc: {type: function, handler: calculator}
  # Its result repeats a time zone that it does not know.
  clock: {type: function, handler: current_time}
  pay: {type: function, handler: calculator, require_approval: true, approval_prompt: "Pay it?"}
agents: {assistant: {llm: demo, tools: [calc, clock, pay], guardrails: rail, description: "Answers, sums and pays", input_modes: [text/plain, application/json]}}
`

// consoleBuildApp is the app whose developer uses the console. Its text has comments and an order of its own.
const consoleBuildApp = `# The agents of initech.
llms:
  demo:
    provider: scripted
document_stores:
  manual: {source: {type: upload}}
  feed: {source: {type: api, api: {url: "https://docs.example.com/list"}}}
agents:
  reporter:
    llm: demo
    description: Reports each morning
    trigger:
      type: schedule
      cron: "30 9 * * MON-FRI"
      timezone: Europe/Berlin
      input: Write the report of yesterday.
  triage:
    llm: demo
    trigger: {type: webhook, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
  zoe:
    llm: demo
`

// consoleBrokenApp is an app whose runs fail for good, as do its notifications.
const consoleBrokenApp = `
llms: {broken: {provider: scripted, script: [{then: [{fail: {status: 400, message: "no such model"}}]}]}}
agents: {broken: {llm: broken, notifications: [{id: chat, url: "https://chat.invalid/hook", events: [task.failed]}]}}
`

// scriptProbe is a text that would run if a page read it as HTML.
const scriptProbe = `<img src=x onerror=globalThis.pwned++><script>globalThis.pwned++</script>`

// consoleProbeConfig returns the configuration of an app whose texts are attack.
func consoleProbeConfig(t *testing.T, attack string) string {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"llms": map[string]any{
			"talker": map[string]any{"provider": "scripted", "script": []any{
				map[string]any{"when": map[string]any{"text": "^data$"}, "then": []any{map[string]any{"say": attack}, map[string]any{"call": map[string]any{"tool": "pay", "arguments": map[string]any{"expression": attack}}}}},
				map[string]any{"then": []any{map[string]any{"say": "{{text}}"}}},
			}},
			"failing": map[string]any{"provider": "scripted", "script": []any{map[string]any{"then": []any{map[string]any{"fail": map[string]any{"status": 400, "message": attack}}}}}},
		},
		"tools":           map[string]any{"pay": map[string]any{"type": "function", "handler": "calculator", "require_approval": true, "approval_prompt": attack}},
		"document_stores": map[string]any{"manual": map[string]any{"source": map[string]any{"type": "upload"}}},
		"agents": map[string]any{
			"talker":  map[string]any{"name": attack, "description": attack, "llm": "talker", "tools": []any{"pay"}, "prompt": map[string]any{"role": attack}},
			"crew":    map[string]any{"type": "sequential", "sub_agents": []any{"talker", "failing"}},
			"failing": map[string]any{"llm": "failing", "trigger": map[string]any{"type": "schedule", "cron": "0 0 1 1 *", "input": attack}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// consoleServers are the servers of a journey: one on SQLite, or two replicas on one PostgreSQL behind a balancer.
type consoleServers struct {
	*testServer
	replicas []*process
	// restart starts a server in the place of one that has died; nil = the other replica goes on.
	restart func()
	// requests counts those to the balancer.
	requests atomic.Int64
}

// startConsoleServers starts servers in studio mode.
func startConsoleServers(t *testing.T, dir, database string) *consoleServers {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(browserApp+"observability: {metrics: {enabled: true}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A run of a server that died is taken over after two seconds.
	args := []string{"--config", "stoa.yaml", "--studio", "--database", database, "--queue-stale-threshold", "2s"}
	one := startProcess(t, dir, args...)
	servers := &consoleServers{testServer: one.testServer, replicas: []*process{one}}
	if strings.HasPrefix(database, "sqlite:") {
		servers.restart = func() {
			startProcess(t, dir, append(args, "--port", one.url[strings.LastIndex(one.url, ":")+1:], "--grpc-port", "0")...)
		}
		return servers
	}
	servers.replicas = append(servers.replicas, startProcess(t, dir, args...))
	proxy := &httputil.ReverseProxy{Rewrite: servers.balance, ErrorLog: log.New(io.Discard, "", 0)}
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise net/http closes the request's body once the answer begins. Where the transport has not yet read its end by then, it
		// closes the replica's connection, and the answer is cut.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			panic(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(balancer.Close)
	servers.testServer = &testServer{url: balancer.URL}
	return servers
}

// balance sends each request to the next replica that lives.
func (s *consoleServers) balance(r *httputil.ProxyRequest) {
	next := s.requests.Add(1)
	for range s.replicas {
		if !s.replicas[next%int64(len(s.replicas))].IsAlive() {
			next++
		}
	}
	target, err := url.Parse(s.replicas[next%int64(len(s.replicas))].url)
	if err != nil {
		panic(err)
	}
	r.SetURL(target)
	r.Out.Host = r.In.Host // the guard against foreign pages compares it with the page's origin
}

// kill ends the server that executes a task, which need not be the one that got the call, without a chance to finish anything.
func (s *consoleServers) kill(t *testing.T) {
	dbtest.WaitUntil(t, "a server executes a task", func() bool {
		for _, replica := range s.replicas {
			if _, metrics := replica.doRequest(t, "GET", "/metrics", "", nil); regexp.MustCompile(`(?m)^stoa_runs_inflight [1-9]`).MatchString(metrics) {
				_ = replica.SignalAndWait(syscall.SIGKILL)
				return true
			}
		}
		return false
	})
	if s.restart != nil {
		s.restart()
	}
}

// TestConsoleInBrowser uses the console in a real browser as a caller, an approver, a user of another app, on a phone, as
// a developer and as the operator; a server dies meanwhile, on each database, and a token is revoked. Nothing is written to
// the browser's console, no policy is violated, no other host is asked, and no page has a serious finding about accessibility.
// The pictures are in the folder of STOA_TEST_SCREENSHOTS if that is set.
func TestConsoleInBrowser(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		p := startConsoleServers(t, dir, database)
		for name, config := range map[string]string{
			"acme": consoleApp, "globex": consoleApp, "initech": consoleBuildApp, "umbrella": consoleBrokenApp, "probe": consoleProbeConfig(t, scriptProbe),
		} {
			p.createApp(t, name, config)
		}
		// The answer of this app's model does not end before a server has died.
		model := newSteppedModel(t)
		p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "piper", "grants": []string{"private_network"}, "config": fmt.Sprintf(
			"llms: {m: {provider: openai, model: m, base_url: %q, api_key: k}}\nagents: {assistant: {llm: m}}\nstorage: {checkpoint: {enabled: true}}\n", model.url)})
		kill := func() {
			p.kill(t)
			for _, step := range model.steps {
				close(step)
			}
		}
		p.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/probe", testSecret, map[string]any{"display_name": scriptProbe})
		p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/initech/budgets", testSecret, map[string]any{"name": "monthly", "unit": "tokens", "amount": 1000, "window": "month", "hard": true})
		p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/prices", testSecret, map[string]any{
			"version": "2026-01", "currency": "USD", "effective_from": "2026-01-01T00:00:00Z",
			"items": []any{map[string]any{"kind": "charge", "meter": "output_tokens", "per": 1000, "amount_decimal": "1.5"}},
		})
		admin, developer := map[string]any{"roles": []string{"admin"}}, map[string]any{"roles": []string{"developer"}}
		foreign := p.createToken(t, "globex", "eve", admin)
		for _, tt := range []struct {
			script string
			// database begins with the one that the journey is on, if PostgreSQL is there: the pages are the same on both. "" is both.
			database string
			args     []string
			want     map[string]any
		}{
			{"console.mjs", "sqlite:", []string{
				p.createToken(t, "acme", "ana", nil), p.createToken(t, "acme", "bob", map[string]any{"roles": []string{"operator"}}), foreign, scriptProbe,
			}, consoleSeen},
			{"console-build.mjs", "sqlite:", []string{p.createToken(t, "initech", "dana", developer), scriptProbe}, consoleBuildSeen},
			{"console-operator.mjs", "postgres", []string{testSecret, p.createToken(t, "umbrella", "uma", developer), scriptProbe}, consoleOperatorSeen},
			// It comes last: one of the servers dies.
			{"console-trust.mjs", "", []string{
				testSecret, p.createToken(t, "piper", "ana", nil), foreign, scriptProbe, p.createToken(t, "probe", scriptProbe, admin),
			}, consoleTrustSeen},
		} {
			if !strings.HasPrefix(database, tt.database) && os.Getenv("STOA_TEST_POSTGRES") != "" {
				continue
			}
			t.Run(tt.script, func(t *testing.T) {
				checkJourney(t, tt.want, kill, tt.script, append([]string{folder, chromium, p.url}, tt.args...)...)
			})
		}
	})
}

// TestConsoleCancelsCall ends a call of a tool that hangs, in the playground and on the page of its task: the agent goes on.
func TestConsoleCancelsCall(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	done := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	defer slow.Close()
	defer close(done)
	p := startProcess(t, t.TempDir())
	p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret,
		map[string]any{"name": "acme", "config": fmt.Sprintf(hangingConfig, slow.URL), "grants": []string{"private_network"}})
	goesOn := []any{"It says:", 0.0}
	want := map[string]any{"playground": goesOn, "task": goesOn, "hosts": []any{}, "complaints": []any{}}
	checkJourney(t, want, nil, "console-call.mjs", folder, chromium, p.url, p.createToken(t, "acme", "ana", nil))
}

// TestConsoleRoles opens the console with credentials that allow different things: a page offers what its credential allows.
func TestConsoleRoles(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	p := startProcess(t, t.TempDir())
	p.createApp(t, "acme", consoleApp)
	want := map[string]any{
		"caller":         []any{"acme · ana", []any{"Playground", "Agents", "Tasks", "Documents"}},
		"developer":      []any{"acme · dana", []any{"Playground", "Agents", "Tasks", "Configuration", "Documents", "Triggers", "Usage"}},
		"approver":       []any{"acme · cleo", []any{"Agents", "Tasks", "Inbox", "Triggers"}},
		"anyone":         "default, without a credential",
		"skip":           []any{"Skip to content", "MAIN", ""},
		"callerWaits":    []any{true, 0.0},
		"developerWaits": []any{true, 0.0},
		"cancels":        []any{0.0, 1.0},
		"callerAgents":   []any{1.0, 0.0},
		"approverAgents": []any{0.0, 1.0},
		"anyoneAgents":   []any{1.0, 0.0, "Agents · Stoa"},
		"focus":          []any{"Message", "Message"},
		"wider":          0.0,
		"copied":         true,
		"listed":         "pay",
		"times":          []any{true, "+0 ms", true},
		"reloaded":       "hello",
		"hosts":          []any{}, "complaints": []any{},
	}
	args := []string{folder, chromium, p.url}
	for _, user := range [][2]string{{"ana", "caller"}, {"cleo", "approver"}, {"dana", "developer"}} {
		args = append(args, p.createToken(t, "acme", user[0], map[string]any{"roles": []string{user[1]}}))
	}
	checkJourney(t, want, nil, "console-roles.mjs", args...)
}

// consoleLargeSteps is how many steps the page of a large task shows: 80 calls of the model with 126 calls of a tool each, the states submitted,
// working and failed, and the reason of the failure.
const consoleLargeSteps = 80*127 + 4

// TestConsoleLargeTask opens the page of a task with more than 10,000 events in a real browser. The median of each interaction's
// time to the next paint, as the browser reports it, is at most 100 ms.
func TestConsoleLargeTask(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	var calls []any
	for i := range 126 {
		calls = append(calls, map[string]any{"call": map[string]any{"tool": "calc", "arguments": map[string]any{"expression": fmt.Sprintf("%d + 1", i)}}})
	}
	config, err := json.Marshal(map[string]any{
		"llms":   map[string]any{"many": map[string]any{"provider": "scripted", "script": []any{map[string]any{"then": calls}}}},
		"tools":  map[string]any{"calc": map[string]any{"type": "function", "handler": "calculator"}},
		"agents": map[string]any{"many": map[string]any{"llm": "many", "tools": []any{"calc"}, "reasoning": map[string]any{"max_iterations": 80}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, t.TempDir())
	p.createApp(t, "acme", string(config))
	token := p.createToken(t, "acme", "ana", map[string]any{"roles": []string{"operator"}})
	var task taskAnswer
	params := newTextMessage("go")
	params["configuration"] = map[string]any{"blocking": false}
	p.requireStatus(t, http.StatusOK, &task, "POST", "/agents/many", token, newRPCCall("message:send", params))
	dbtest.WaitWithin(t, 2*time.Minute, "the task has ended", func() bool {
		var now struct{ Status struct{ State string } }
		p.requireStatus(t, http.StatusOK, &now, "GET", "/tasks/"+task.Result.TaskID+"?history_length=0", token, nil)
		return now.Status.State == "failed"
	})
	want := map[string]any{
		"few": true, "first": true, "last": "failed", "fewAtTheEnd": true, "found": "80 of 10,164 steps", "onlyFound": true, "slow": []any{},
		"hosts": []any{}, "complaints": []any{},
	}
	checkMeasurement(t, want, "console-large.mjs", folder, chromium, p.url, token, task.Result.TaskID, strconv.Itoa(consoleLargeSteps))
}

// TestConsoleFirstPage loads the console's first page in a real browser whose cache is empty: it is there within a second, has at
// most 260 kB, and Lighthouse gives it at least 95 of 100 for performance, accessibility and best practices. The picture of a
// first conversation, tour.png in the folder of STOA_TEST_SCREENSHOTS, is docs/console.png.
func TestConsoleFirstPage(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	config, err := filepath.Abs("../../examples/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"bytes": true, "cold": true, "below95": []any{}, "answers": []any{"Hello! I am a scripted model: ask me for the time, or a sum such as 6 * 7.", "That makes 42."}, "hosts": []any{}, "complaints": []any{},
	}
	checkMeasurement(t, want, "console-first.mjs", folder, chromium, startProcess(t, t.TempDir(), "--config", config).url)
}

// requireBrowser returns the folder whose node_modules drive a browser, and the browser: Chromium without its own windows,
// which takes a third less of the processors.
func requireBrowser(t *testing.T) (folder, chromium string) {
	t.Helper()
	folder = os.Getenv("STOA_TEST_BROWSER")
	if folder == "" {
		dbtest.SkipMissing(t, "STOA_TEST_BROWSER (the folder that .ci/browser prints) is not set: nothing is tested in a real browser")
	}
	chromium, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Fatal(err)
	}
	return folder, chromium
}

// TestConsoleSignInAtProvider signs in to the console at a real OpenID provider, by an authorization code with PKCE, and
// waits until the token is renewed. The only other host that the pages ask is the provider.
func TestConsoleSignInAtProvider(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	provider := startOpenIDProvider(t)
	dir := t.TempDir()
	config := fmt.Sprintf("llms: {default: {provider: scripted}}\nagents: {assistant: {}}\n"+
		"server: {auth: {enabled: true, issuer: %q, jwks_url: %q, audience: \"https://stoa.test/api\", client_id: console}}\n", provider, provider+"/jwks")
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", "stoa.yaml")
	want := map[string]any{
		"asked": []any{"code", "S256", "console", "https://stoa.test/api", true}, "address": "?status=completed", "kept": []any{0.0, ""},
		"renewed": 0.0, "stolen": "", "hosts": []any{strings.TrimPrefix(provider, "http://")}, "complaints": []any{},
	}
	checkJourney(t, want, nil, "console-provider.mjs", folder, chromium, p.url, provider)
}

// TestConsoleListener checks that the console is served on the listener of --console-addr alone, with the API that its pages
// call, also from the pages' own origin.
func TestConsoleListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(browserApp+"observability: {metrics: {enabled: true}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", "stoa.yaml", "--console-addr", "127.0.0.1:0")
	_, rest, found := strings.Cut(p.Output(), "The console is at ")
	own, _, _ := strings.Cut(rest, "/console/")
	if !found || own == p.url {
		t.Fatalf("the console is announced at %q", own)
	}
	hello, err := json.Marshal(helloCall)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, method, url, origin, body string
		want                            int
	}{
		{"the page on its listener", "GET", own + "/console/", "", "", http.StatusOK},
		{"the page on the main listener", "GET", p.url + "/console/", "", "", http.StatusNotFound},
		{"an asset on the main listener", "GET", p.url + "/console/icon.svg", "", "", http.StatusNotFound},
		{"the API on its listener", "GET", own + "/health", "", "", http.StatusOK},
		{"the API on the main listener", "GET", p.url + "/health", "", "", http.StatusOK},
		{"a call of its pages", "POST", own + "/agents/assistant", own, string(hello), http.StatusOK},
		{"a call of a foreign page", "POST", own + "/agents/assistant", "http://elsewhere.example", string(hello), http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if tt.origin != "" {
			req.Header.Set("Origin", tt.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, resp.StatusCode, tt.want)
		}
	}
}

// browserTurn lets journeys, which wait more than they compute, use a browser at the same time, and a journey that measures how fast
// pages are use one alone.
var browserTurn sync.RWMutex

// checkMeasurement is checkJourney for a script that measures: no other journey takes place meanwhile.
func checkMeasurement(t *testing.T, want map[string]any, script string, args ...string) {
	t.Helper()
	browserTurn.Lock()
	defer browserTurn.Unlock()
	runJourney(t, want, nil, script, args...)
}

// checkJourney runs a script in a browser, calls kill where it asks for that by the line "kill", and compares its last line
// with want.
func checkJourney(t *testing.T, want map[string]any, kill func(), script string, args ...string) {
	t.Helper()
	browserTurn.RLock()
	defer browserTurn.RUnlock()
	runJourney(t, want, kill, script, args...)
}

func runJourney(t *testing.T, want map[string]any, kill func(), script string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join("testdata/browser", script)}, args...)...)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if lines.Text() == "kill" {
			kill()
			_, _ = io.WriteString(in, "\n")
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the pages showed (-want +got):\n%s", diff)
	}
}

// copiedWell is what is right of a copied program: it names the token's variable, has no token, and prints the answer.
var copiedWell = []any{true, false, true, true}

// consoleSeen, consoleTrustSeen, consoleBuildSeen and consoleOperatorSeen are what the pages of a journey show.
var (
	consoleSeen = map[string]any{
		"open": "You said: hello", "kept": []any{0.0, ""}, "streamed": "one", "whole": "one two", "callOfUser": []any{"{\n  \"expression\": \"40 + 2\"\n}"},
		"attack": true, "attackInResult": true, "copied": map[string]any{"curl": copiedWell, "javascript": copiedWell, "python": copiedWell}, "conversations": 2.0, "foundByText": []any{"THE SUM IS", 1.0}, "restored": []any{true, true}, "decided": "Paid 23.", "inbox": []any{2.0, 0.0}, "completed": "7 tasks",
		"timeline": []any{
			"submitted", "working", "checkpoint the start of a run, step 0", "model scripted: 4 in, 7 out · TIME · 0.0105 USD", "Let me see.", `tool calc TIME { "expression": "40 + 2" } Result 42`,
			"model scripted: 8 in, 4 out · TIME · 0.006 USD", "The sum is 42.", "completed",
		},
		"failedTimeline": []any{
			"submitted", "working", "checkpoint the start of a run, step 0 Restore from here", "guardrail rail: rule injection of the input, warn, medium severity",
			"model provider scripted answered 400: the request was refused as invalid", "failed",
		},
		"parts": []any{true, true, true}, "resumed": "one two", "palette": 0.0, "foreign": []any{true, true}, "wide": []any{390.0, 390.0}, "refusals": []any{"404", "401"}, "forgotten": []any{0.0, false}, "hosts": []any{}, "complaints": []any{},
	}
	consoleTrustSeen = map[string]any{
		"afterDeath": map[string]any{"answer": []any{"one two"}, "task": []any{
			"submitted", "working", "attempt 2 The process that executed the task stopped.", "checkpoint the start of a run, step 0", "model m: 11 in, 2 out · estimated · TIME", "one two", "completed",
		}, "alerts": 0.0},
		"hidden": []any{false, false}, "typed": "a long thought", "typedByAnother": "", "strangerAfter": false, "leaks": []any{}, "links": 0.0,
		"graph": []any{false, true, 6.0, []any{"crew talker step 1", "crew failing step 2", "failing failing model", "talker pay tool", "talker talker model"}, "/console/agents/crew"},
		"shownAsText": []any{
			"description of an agent", "name of an agent", "message", "answer", "prompt of an approval", "arguments of a call", "list of tasks",
			"document of Markdown", "name of a user",
		},
		"hosts": []any{}, "complaints": []any{},
	}
	consoleBuildSeen = map[string]any{
		"editorInFirstLoad": false, "editorLoaded": true, "original": true, "marks": 2.0,
		"problems": []any{
			`error Line 22: agents.helper has no model: set llm here or defaults.llm, or name one of llms "default"`,
			"error Line 23: agents.helper.lmm is not a known key Did you mean llm?",
		},
		"description": "`llm` is the agent's model. Without it, it is `defaults.llm`.", "changed": []any{"helper:", "llm: demo"},
		"conflict": []any{"# theirs", "# mine"}, "restored": true, "warned": "document_stores.shelf: the store leaves the configuration: its 1 document is deleted", "secretShown": false,
		"studio":  []any{true, "error Line 3: agents.other.llm names none of llms: there is no \"nosuch\"", 1.0},
		"uploads": []any{"created", "created", "created", "Try again"}, "found": []any{true, true, true, true},
		"schedule": []any{true, true, true}, "delivery": []any{true, true}, "starts": []any{true, true},
		"budget": []any{"monthly 4 tokens of 1,000 tokens a month then rejects"}, "csv": "usage-by-model.csv", "hosts": []any{}, "complaints": []any{},
	}
	consoleOperatorSeen = map[string]any{
		"screens": []any{"Overview", "Apps", "Queue", "Money", "Audit", "System"}, "trouble": []any{"umbrella", "2"},
		"completed": 1.0, "explained": true, "wrong": `error Line 9: agents.other.llm names none of llms: there is no "nosuch"`, "key": []any{true, 200.0}, "keyShownAgain": false,
		"token": 200.0, "revoked": 401.0, "named": true, "deleteWithoutName": true, "audit": []any{"app.keys.create", "app.keys.delete", "app.keys.create"},
		"exported": "audit.jsonl", "forgotten": false, "tenant": false, "traffic": []any{true, true, true}, "minutes": []any{true, 60.0, true}, "drawn": "Calls per minute, 60 minutes", "saved": "apps-60-minutes.csv", "processes": []any{true, true, true}, "hosts": []any{}, "complaints": []any{},
		"trialKept": false, "trialMay": []any{200.0, 403.0}, "kept": []any{"9", 5.0}, "merged": []any{"9", "500"},
		"settings": map[string]any{
			"limits": map[string]any{"weight": 3.0, "max_concurrent_tasks": 7.0, "queue_depth": 10000.0, "rate": []any{map[string]any{"per": "app", "type": "count", "window": "minute", "limit": 20.0}}},
			"grants": []any{map[string]any{"filesystem": []any{"/srv/hooli"}}, "private_network"},
			"labels": map[string]any{"tier": "gold", "team": "red"},
		},
		"credit": true, "noBudgets": true, "labels": map[string]any{"tier": "gold"}, "runs": true, "invoice": "invoice-2.csv", "printed": []any{false, false, true},
	}
)
