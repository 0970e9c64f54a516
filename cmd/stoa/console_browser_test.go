package main

import (
	"encoding/json"
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
agents: {assistant: {llm: demo, tools: [calc, clock, pay], description: "Answers, sums and pays"}}
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

// TestConsoleInBrowser uses the console in a real browser as a caller, as an approver, on a phone and as a user of
// another app. Nothing is written to the browser's console, no policy is violated, and no other host is asked. The
// pictures are in the folder of STOA_TEST_SCREENSHOTS if that is set.
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
	p := startProcess(t, dir, "--config", "stoa.yaml")
	p.createApp(t, "acme", consoleApp)
	p.createApp(t, "globex", consoleApp)
	cmd := exec.CommandContext(t.Context(), "node", "testdata/browser/console.mjs", folder, chromium, p.url, shots,
		p.createToken(t, "acme", "ana", nil), p.createToken(t, "acme", "bob", map[string]any{"roles": []string{"operator"}}),
		p.createToken(t, "globex", "eve", map[string]any{"roles": []string{"admin"}}), scriptProbe)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	refused, _ := got["foreign"].(string)
	if !strings.Contains(refused, "It does not exist, or belongs to somebody else.") || !strings.Contains(refused, "request") {
		t.Errorf("a foreign task shows %q", refused)
	}
	delete(got, "foreign")
	want := map[string]any{
		"open": "You said: hello", "kept": []any{0.0, ""}, "streamed": "one", "whole": "one two", "callOfUser": []any{"{\n  \"expression\": \"40 + 2\"\n}"},
		"attack": true, "attackInResult": true, "curl": []any{true, false, true}, "conversations": 2.0, "decided": "Paid 23.", "completed": "4 tasks",
		"timeline": []any{
			"submitted", "working", "Let me see.", `tool calc { "expression": "40 + 2" } Result 42`, "The sum is 42.", "completed",
		},
		"wide": []any{390.0, 390.0}, "refusals": []any{"404", "401"}, "forgotten": []any{0.0, false}, "hosts": []any{}, "complaints": []any{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pages showed (-want +got):\n%s", diff)
	}
}
