package surfacetest

import (
	"cmp"
	"net/http"
	"testing"

	"stoa/agentsvc/surface"
)

// Script is an app whose agents show every behaviour that a client can see: answering, tool calls, approvals,
// questions, files, refusals, failures, and a task that does not end. Its agents are public (assistant), internal
// (clerk) and private (hidden).
const Script = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^weather (?P<city>\\w+)"}
        then: [{say: "Let me see."}, {call: {tool: calculator, arguments: {expression: "20 + 1"}}}]
      - when: {tool_result: calculator}
        then: [{say: "It is {{result}} degrees.", usage: {input_tokens: 20, output_tokens: 6}}]
      - when: {text: "^sum$"}
        then: [{call: {tool: adder, arguments: {expression: "1 + 1"}}}]
      - when: {tool_result: adder}
        then: [{say: "It is {{result}}."}]
      - when: {text: "^file$"}
        then: [{artifact: {name: out.txt, media_type: text/plain, text: "hello"}}, {say: "Here it is."}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {text: "^refuse$"}
        then: [{refuse: "I may not do that."}]
      - when: {text: "^break$"}
        then: [{fail: {status: 400, message: "upstream said no"}}]
      - when: {text: "^never$"}
        then: [{say: "wait ", pause: 10m}, {say: "for it"}]
      - then: [{say: "You said: {{text}}"}]
tools:
  calculator: {type: function, handler: calculator}
  adder: {type: function, handler: calculator, require_approval: true, approval_prompt: "May I calculate?"}
agents:
  assistant: {llm: demo, tools: [calculator, adder], description: Answers questions., input_modes: ["text/plain", "application/json"]}
  clerk: {llm: demo, visibility: internal, description: Works inside.}
  hidden: {llm: demo, visibility: private}
`

// NewScripted is [New] with the apps acme and globex, both with the configuration [Script], which is also that of
// the default app unless o.Default is set. Two equal apps let tests show that one tenant cannot reach the other.
func NewScripted(t testing.TB, o Options, routes func(h *Fixture) []surface.Route) *Fixture {
	t.Helper()
	o.Default = cmp.Or(o.Default, Script)
	h := New(t, o, routes)
	h.CreateApp(t, "acme", Script)
	h.CreateApp(t, "globex", Script)
	return h
}

// BearerTransport is an [http.RoundTripper] for client libraries; it adds a bearer token to every request, "" =
// none.
type BearerTransport string

// RoundTrip sends r with the token. r itself is not changed.
func (b BearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}
