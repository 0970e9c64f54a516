package surfacetest

import (
	"cmp"
	"net/http"
	"testing"
	"time"

	"stoa/agentsvc/surface"
)

// Script is an app whose agents do whatever a client may want to see: talk, call tools, ask back, make files, refuse, break, never
// end. One agent is for everybody, one for those with a credential, one for nobody.
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

// NewScripted is [New] with [Script] as the apps acme and globex, and as the default app where o has no other.
func NewScripted(t testing.TB, o Options, routes func(h *Fixture) []surface.Route) *Fixture {
	t.Helper()
	o.Default = cmp.Or(o.Default, Script)
	h := New(t, o, routes)
	h.CreateApp(t, "acme", Script)
	h.CreateApp(t, "globex", Script)
	return h
}

// BearerTransport is a client's transport that shows a token with every request, "" = none.
type BearerTransport string

// RoundTrip sends a request with the token.
func (b BearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// WaitUntil waits for up to ten seconds until something holds.
func WaitUntil(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to hold that " + what)
		}
	}
}
