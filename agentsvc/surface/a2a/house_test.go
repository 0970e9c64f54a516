package a2a_test

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is an app whose agent can do everything that a client may want to see.
const script = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^weather (?P<city>\\w+)"}
        then: [{call: {tool: calculator, arguments: {expression: "20 + 1"}}}]
      - when: {tool_result: calculator}
        then: [{say: "It is {{result}} degrees."}]
      - when: {text: "^sum$"}
        then: [{call: {tool: adder, arguments: {expression: "1 + 1"}}}]
      - when: {tool_result: adder}
        then: [{say: "It is {{result}}."}]
      - when: {text: "^file$"}
        then: [{artifact: {name: out.txt, media_type: text/plain, text: "hello"}}, {say: "Here it is."}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {text: "^never$"}
        then: [{say: "wait ", pause: 1h}, {say: "for it"}]
      - then: [{say: "You said: {{text}}"}]
tools:
  calculator: {type: function, handler: calculator}
  adder: {type: function, handler: calculator, require_approval: true, approval_prompt: "May I calculate?"}
agents:
  assistant: {llm: demo, tools: [calculator, adder], description: Answers questions., input_modes: ["text/plain", "application/json"]}
  clerk: {llm: demo, visibility: internal, description: Works inside.}
`

// newHouse is a house with the script as the default app, and as the apps acme and globex.
func newHouse(t *testing.T) *surfacetest.House {
	t.Helper()
	return houseOf(t, script)
}

// houseOf is newHouse with another default app.
func houseOf(t *testing.T, own string) *surfacetest.House {
	t.Helper()
	h := surfacetest.New(t, surfacetest.Options{Default: own, Surface: surface.Options{KeepAlive: time.Minute}}, routes)
	h.App(t, "acme", script)
	h.App(t, "globex", script)
	return h
}

var callerEve = authz.TokenSpec{Subject: "eve"}

func routes(*surfacetest.House) []surface.Route { return a2a.Routes(a2a.Options{}) }

// bearer sends a token with every request, "" = none.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b == "" {
		return http.DefaultTransport.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func tokenOf(t *testing.T, h *surfacetest.House, app, sub string) string {
	t.Helper()
	return h.Token(t, app, authz.TokenSpec{Subject: sub, Roles: []string{"caller", "approver"}, Scope: "agents:read agents:call tasks:approve"})
}
