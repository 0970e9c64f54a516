package runtime_test

import (
	"log/slog"
	"slices"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReply checks that an answer is a message of its own if the task has nothing else, and that the database records
// that.
func TestReply(t *testing.T) {
	t.Parallel()
	const src = `
llms:
  plain: {provider: scripted}
  terse:
    provider: scripted
    script:
      - when: {text: "^sum$"}
        then: [{call: {tool: calc, arguments: {expression: "1 + 1"}}}]
      - when: {tool_result: calc}
        reply: message
        then: [{say: "It is {{result}}."}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {text: "^task$"}
        then: [{say: "done it"}]
      - reply: message
        then: [{say: "You said: {{text}}"}]
  lame:
    provider: openai
    model: gpt-4o
    api_key: none
    fallbacks: [terse]
tools: {calc: {type: function, handler: calculator}}
guardrails: {house: {input: {length: {enabled: true, max_length: 100}}}}
agents:
  helper: {llm: terse, tools: [calc]}
  guarded: {llm: terse, guardrails: house}
  member: {llm: terse}
  team: {type: sequential, sub_agents: [member]}
  falling: {llm: lame}
  plain: {llm: plain}
`
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		a := newAppWith(t, d, mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
		for agent, want := range map[string]bool{"helper": true, "guarded": true, "falling": true, "team": false, "plain": false} {
			if c, _ := a.Card(agent); c.StandaloneReplies != want {
				t.Errorf("that %s answers with messages says its card: %v", agent, c.StandaloneReplies)
			}
		}
		for _, c := range []struct {
			agent, text, says string
			alone             bool
			lines             []string
		}{
			{"helper", "hello", "You said: hello", true, []string{"submitted", "working", "completed"}},
			{"guarded", "hello", "You said: hello", true, nil},
			{"helper", "task", "done it", false, []string{"submitted", "working", "chunk done it", "completed"}},
			{"helper", "sum", "It is 2.", false, []string{"submitted", "working", "result 2", "chunk It is 2.", "completed"}},
			{"team", "hello", "You said: hello", false, nil},
		} {
			outcome, lines := runTurn(t, a, newSubmissionFor(c.agent, c.text))
			stored, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{Agents: []string{c.agent}, Owner: &ana}, outcome.ID, store.TaskParts{})
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range []agentsvc.Status{outcome.Status, stored.Status} {
				if st.State != agentsvc.Completed || st.Message.Text() != c.says || (st.StandaloneReply() != nil) != c.alone {
					t.Errorf("%s, %s: %s %+v", c.agent, c.text, st.State, st.Message)
				}
			}
			if c.lines != nil && !slices.Equal(lines, c.lines) {
				t.Errorf("%s, %s: %q", c.agent, c.text, lines)
			}
		}
		requested, _ := runTurn(t, a, newSubmission("ask"))
		answer := newSubmission("Rome")
		answer.Message.Task = requested.ID
		if outcome, _ := runTurn(t, a, answer); outcome.Status.State != agentsvc.Completed || outcome.Status.StandaloneReply() != nil {
			t.Errorf("who answers a task gets %+v", outcome.Status)
		}
	})
}
