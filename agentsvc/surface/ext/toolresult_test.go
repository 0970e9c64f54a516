package ext_test

import (
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

const summingConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^sum$"}
        then: [{call: {tool: calc, arguments: {expression: "40 + 2"}}}]
      - then: [{say: "done"}]
tools: {calc: {type: function, handler: calculator}}
agents: {assistant: {llm: demo, tools: [calc]}}
`

// TestToolResults checks that streams contain what tools answered if they ask for it and the caller may read every
// user's tasks.
func TestToolResults(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, func(*surfacetest.Fixture) []surface.Route { return ext.Routes(ext.Options{}) })
	h.CreateApp(t, "acme", summingConfig)
	user, operator := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "acme", authz.TokenSpec{Subject: "op", Roles: []string{"operator"}})
	for _, tt := range []struct {
		name, token, asks string
		want              bool
	}{
		{"not asked for", operator, `false`, false},
		{"a user", user, `true`, false},
		{"an operator", operator, `true`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			check := func(method, params string) (answer string) {
				resp, answer := h.Do(t, http.MethodPost, "/agents/assistant", tt.token, newRPCBody(method, params))
				got := strings.Contains(answer, `"type":"task.tool_result"`) && strings.Contains(answer, `"tool":"calc","text":"42","failed":false`)
				if resp.StatusCode != http.StatusOK || !strings.Contains(answer, `"completed"`) || got != tt.want {
					t.Errorf("%s: %d, want the result: %v: %s", method, resp.StatusCode, tt.want, answer)
				}
				return answer
			}
			answer := check("message:stream", newMessageParams("sum", `, "configuration": {"tool_results": `+tt.asks+`}`))
			_, id, _ := strings.Cut(answer, `"task_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			check("tasks/subscribe", `{"id": "`+id+`", "after": 0, "tool_results": `+tt.asks+`}`)
		})
	}
}
