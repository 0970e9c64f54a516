package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/openai"
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
        then: [{say: "It is {{result}} degrees.", usage: {input_tokens: 20, output_tokens: 6}}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
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
  assistant: {llm: demo, tools: [calculator]}
  clerk: {llm: demo, visibility: internal}
  hidden: {llm: demo, visibility: private}
`

func routes(*surfacetest.House) []surface.Route { return openai.Routes(openai.Options{}) }

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.Page(t, "../../../docs/api/openai.md", routes)
}
