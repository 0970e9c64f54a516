package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
      - then: [{say: "You said: {{text}}"}]
tools:
  calc: {type: function, handler: calculator}
  # Its result repeats a time zone that it does not know.
  clock: {type: function, handler: current_time}
  pay: {type: function, handler: calculator, require_approval: true, approval_prompt: "Pay it?"}
agents: {assistant: {llm: demo, tools: [calc, clock, pay], description: "Answers, sums and pays", input_modes: [text/plain, application/json]}}
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

// consoleBrokenApp is an app whose runs fail for good.
const consoleBrokenApp = `
llms: {broken: {provider: scripted, script: [{then: [{fail: {status: 400, message: "no such model"}}]}]}}
agents: {broken: {llm: broken}}
`

// scriptProbe is a text that would run if a page read it as HTML.
const scriptProbe = `<img src=x onerror=globalThis.pwned++><script>globalThis.pwned++</script>`

// TestConsoleInBrowser uses the console in a real browser as a caller, an approver, a user of another app, on a phone, as
// a developer and as the operator. Nothing is written to the browser's console, no policy is violated, no other host is
// asked, and no page has a serious finding about accessibility. The pictures are in the folder of STOA_TEST_SCREENSHOTS if
// that is set.
func TestConsoleInBrowser(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("STOA_TEST_BROWSER")
	if folder == "" {
		t.Skip("ATTENTION: without STOA_TEST_BROWSER (the folder that .ci/browser prints) the console is not tested in a real browser")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	shots := os.Getenv("STOA_TEST_SCREENSHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(browserApp), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", "stoa.yaml", "--studio")
	for name, config := range map[string]string{"acme": consoleApp, "globex": consoleApp, "initech": consoleBuildApp, "umbrella": consoleBrokenApp} {
		p.createApp(t, name, config)
	}
	p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/initech/budgets", testSecret, map[string]any{"name": "monthly", "unit": "tokens", "amount": 1000, "window": "month", "hard": true})
	p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/prices", testSecret, map[string]any{
		"version": "2026-01", "currency": "USD", "effective_from": "2026-01-01T00:00:00Z",
		"items": []any{map[string]any{"kind": "charge", "meter": "output_tokens", "per": 1000, "amount_decimal": "1.5"}},
	})
	developer := map[string]any{"roles": []string{"developer"}}
	for _, tt := range []struct {
		script string
		args   []string
		want   map[string]any
	}{
		{"console.mjs", []string{
			p.createToken(t, "acme", "ana", nil), p.createToken(t, "acme", "bob", map[string]any{"roles": []string{"operator"}}),
			p.createToken(t, "globex", "eve", map[string]any{"roles": []string{"admin"}}), scriptProbe,
		}, consoleSeen},
		{"console-build.mjs", []string{p.createToken(t, "initech", "dana", developer), scriptProbe}, consoleBuildSeen},
		{"console-operator.mjs", []string{testSecret, p.createToken(t, "umbrella", "uma", developer), scriptProbe}, consoleOperatorSeen},
	} {
		t.Run(tt.script, func(t *testing.T) {
			checkJourney(t, tt.want, tt.script, append([]string{folder, chromium, p.url, shots}, tt.args...)...)
		})
	}
}

// TestConsoleSignInAtProvider signs in to the console at a real OpenID provider, by an authorization code with PKCE, and
// waits until the token is renewed. The only other host that the pages ask is the provider.
func TestConsoleSignInAtProvider(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("STOA_TEST_BROWSER")
	if folder == "" {
		t.Skip("ATTENTION: without STOA_TEST_BROWSER (the folder that .ci/browser prints) signing in to the console at a provider is not tested")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
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
	checkJourney(t, want, "console-provider.mjs", folder, chromium, p.url, t.TempDir(), provider)
}

// TestConsoleListener checks that the console is served on the listener of --console-addr alone, with the API that its pages
// call, also from the pages' own origin.
func TestConsoleListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(browserApp), 0o600); err != nil {
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

// checkJourney runs a script in a browser and compares its last line with want.
func checkJourney(t *testing.T, want map[string]any, script string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join("testdata/browser", script)}, args...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pages showed (-want +got):\n%s", diff)
	}
}

// consoleSeen, consoleBuildSeen and consoleOperatorSeen are what the pages of a journey show.
var (
	consoleSeen = map[string]any{
		"open": "You said: hello", "kept": []any{0.0, ""}, "streamed": "one", "whole": "one two", "callOfUser": []any{"{\n  \"expression\": \"40 + 2\"\n}"},
		"attack": true, "attackInResult": true, "curl": []any{true, false, true}, "conversations": 2.0, "decided": "Paid 23.", "completed": "4 tasks",
		"timeline": []any{
			"submitted", "working", "Let me see.", `tool calc { "expression": "40 + 2" } Result 42`, "The sum is 42.", "completed",
		},
		"parts": []any{true, true, true}, "resumed": "one two", "palette": 0.0, "foreign": []any{true, true}, "wide": []any{390.0, 390.0}, "refusals": []any{"404", "401"}, "forgotten": []any{0.0, false}, "hosts": []any{}, "complaints": []any{},
	}
	consoleBuildSeen = map[string]any{
		"editorInFirstLoad": false, "editorLoaded": true, "original": true, "marks": 2.0,
		"problems": []any{
			`error Line 22: agents.helper has no model: set llm here or defaults.llm, or name one of llms "default"`,
			"error Line 23: agents.helper.lmm is not a known key Did you mean llm?",
		},
		"description": "`llm` is the agent's model. Without it, it is `defaults.llm`.", "changed": []any{"helper:", "llm: demo"},
		"conflict": []any{"# theirs", "# mine"}, "restored": true, "secretShown": false,
		"studio":  []any{true, "error Line 3: agents.other.llm names none of llms: there is no \"nosuch\""},
		"uploads": []any{"created", "created", "created", "Try again"}, "found": []any{true, true, true, true},
		"schedule": []any{true, true, true}, "delivery": []any{true, true},
		"budget": []any{"monthly 4 tokens of 1,000 tokens a month then rejects"}, "csv": "usage-by-model.csv", "hosts": []any{}, "complaints": []any{},
	}
	consoleOperatorSeen = map[string]any{
		"screens": []any{"Overview", "Apps", "Queue", "Money", "Audit", "System"}, "trouble": []any{"umbrella", "2"},
		"wrong": `error Line 9: agents.other.llm names none of llms: there is no "nosuch"`, "key": []any{true, 200.0}, "keyShownAgain": false,
		"token": 200.0, "revoked": 401.0, "named": true, "deleteWithoutName": true, "audit": []any{"app.keys.delete", "app.keys.create"},
		"exported": "audit.jsonl", "forgotten": false, "tenant": false, "hosts": []any{}, "complaints": []any{},
	}
)
