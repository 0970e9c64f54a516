package runtime_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
)

// TestProblems checks that all problems that only the build finds are reported at once, each with its path, and that
// what depends on an invalid part is not reported again.
func TestProblems(t *testing.T) {
	t.Parallel()
	src := `llms:
  default: {provider: scripted, script: [{then: [{say: "{{x}}"}]}, {then: []}]}
  fine: {provider: scripted}
tools:
  files: {type: function, handler: read_file, working_directory: /nonexistent}
  jail: {type: command, working_directory: /}
  web: {url: "http://a:b@x", headers: {Host: x}}
  own: {url: http://x, headers: {Host: x}}
  off: {type: command, working_directory: /nonexistent, enabled: false}
agents:
  a: {tools: [files]}
  b: {type: sequential, sub_agents: [a, c]}
  c: {llm: fine, guardrails: g}
  d: {type: remote, agent_card_file: /nonexistent}
guardrails:
  g: {output: {content: {blocked_keywords: ["` + strings.Repeat("a", 21_000) + `"]}}}
`
	cfg := mustParse(t, src, config.Options{})
	_, err := runtime.Build(cfg, runtime.Tenant{ID: "default", DefaultApp: true}, runtime.Dependencies{Host: runtime.Host{PublicEgress: egress.New(egress.Options{})}, Log: slog.New(slog.DiscardHandler)})
	var invalid *document.Error
	if !errors.As(err, &invalid) {
		t.Fatalf("%T %v", err, err)
	}
	want := `2:50: llms.default.script[0].then[0]: {{x}} is not a placeholder; this rule has {{text}}, {{result}}
2:69: llms.default.script[1].then: is empty; say at least what to answer
5:66: tools.files.working_directory: /nonexistent is no folder
6:3: tools.jail: programs run only in a sandbox, and this host has none
7:14: tools.web.url: must hold no user or password: set headers instead
8:40: tools.own.headers.Host: belongs to the protocol and cannot be set
14:38: agents.d.agent_card_file: cannot be read: open /nonexistent: no such file or directory
16:26: guardrails.g.output.content.blocked_keywords: are too large: they compile to 21004 instructions, at most 20000 are run`
	if diff := cmp.Diff(want, document.AddPositions(err, "", []byte(src)).Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
