package mcp_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const script = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^weather (?P<city>\\w+)"}
        then: [{say: "Let me see."}, {call: {tool: calculator, arguments: {expression: "20 + 1"}}}]
      - when: {tool_result: calculator}
        then: [{say: "It is {{result}} degrees."}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {text: "^report$"}
        then: [{artifact: {name: out.txt, media_type: text/plain, text: "hello"}}, {say: "Here it is."}]
      - when: {text: "^refuse$"}
        then: [{refuse: "I may not do that."}]
      - when: {text: "^break$"}
        then: [{fail: {status: 400, message: "upstream said no"}}]
      - when: {text: "^never$"}
        then: [{say: "wait ", pause: 1h}, {say: "for it"}]
      - then: [{say: "You said: {{text}}"}]
tools:
  calculator: {type: function, handler: calculator}
agents:
  assistant: {llm: demo, tools: [calculator], description: Answers questions.}
  clerk: {llm: demo, visibility: internal}
  hidden: {llm: demo, visibility: private}
`

func routes(*surfacetest.House) []surface.Route {
	return mcp.Routes(mcp.Options{BlockFor: 5 * time.Second})
}

// newHouse is a house with the script as the default app, and as the apps acme and globex.
func newHouse(t *testing.T) *surfacetest.House {
	t.Helper()
	h := surfacetest.New(t, surfacetest.Options{Default: script}, routes)
	h.App(t, "acme", script)
	h.App(t, "globex", script)
	return h
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.Page(t, "../../../docs/api/mcp.md", routes)
}
