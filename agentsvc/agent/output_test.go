package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
)

var citySchema = map[string]any{
	"type": "object", "required": []any{"city"}, "properties": map[string]any{"city": map[string]any{"type": "string"}}, "additionalProperties": false,
}

func newCityOutput(t *testing.T, strict bool) *agent.Output {
	t.Helper()
	o, err := agent.NewOutput("", "place", citySchema, strict)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOutputRequest checks where the format is: in the request if each final answer is a text of the model, so that the
// vendor's own mode is used, else in the system prompt.
func TestOutputRequest(t *testing.T) {
	t.Parallel()
	const rome = `{"city":"Rome"}`
	for name, c := range map[string]struct {
		reasoning agent.Reasoning
		inRequest bool
	}{
		"by text":         {inRequest: true},
		"with escalate":   {agent.Reasoning{Escalate: true}, true},
		"by text or exit": {agent.Reasoning{Exit: true}, false},
		"by exit alone":   {agent.Reasoning{Exit: true, Until: []agent.Condition{agent.Escalated}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newScriptedModel(t, newDefaultRule(newCallItem("exit", "answer", rome)))
			if c.inRequest {
				m = newScriptedModel(t, newDefaultRule(newSayItem(rome)))
			}
			for _, err := range agent.NewLLM(m, agent.Options{Output: newCityOutput(t, true), Instruction: "where", Reasoning: c.reasoning}).Run(t.Context(), newInvocation("go")) {
				if err != nil {
					t.Error(err)
				}
			}
			r := m.reqs[0]
			if !c.inRequest {
				if r.Output != nil || !strings.HasPrefix(r.System, "where\n\nGive your final answer as one JSON value") {
					t.Errorf("format %+v, system %q", r.Output, r.System)
				}
				return
			}
			if r.System != "where" || r.Output == nil || r.Output.FormatName() != "place" || !r.Output.Strict {
				t.Fatalf("format %+v, system %q", r.Output, r.System)
			}
			if diff := cmp.Diff(citySchema, r.Output.Schema); diff != "" {
				t.Errorf("schema -want +got:\n%s", diff)
			}
		})
	}
}

// TestOutput checks answers that fit the schema at once or when requested again.
func TestOutput(t *testing.T) {
	t.Parallel()
	const rome = `{"city":"Rome"}`
	for name, c := range map[string]struct {
		says        []string // the first answer, then the second
		strict      bool
		calls       int
		wantProblem string // the problem in the second request
		err         string
	}{
		"at once":                      {says: []string{rome}, strict: true, calls: 1},
		"among words":                  {says: []string{"Sure: " + rome + " there you go"}, calls: 1},
		"in a block":                   {says: []string{"Sure:\n```json\n" + rome + "\n```\n{done}"}, calls: 1},
		"among words, strictly":        {says: []string{"Sure: " + rome, rome}, strict: true, calls: 2, wantProblem: "Your answer is not valid JSON"},
		"repaired":                     {says: []string{`{"town":"Rome"}`, rome}, calls: 2, wantProblem: "Your answer does not fit the schema: at /: missing property 'city'"},
		"wrong twice":                  {says: []string{"Rome", `{"city":1}`}, calls: 2, err: "the model was asked twice, and its answer does not fit the schema: at /city: got number, want string"},
		"a number no program can read": {says: []string{`{"city":1e999}`, rome}, calls: 2, wantProblem: "the number 1e999 is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := []scripted.Rule{newRule(scripted.When{Text: "^go$"}, newSayItem(c.says[0]))}
			if len(c.says) > 1 {
				rules = append(rules, newDefaultRule(newSayItem(c.says[1])))
			}
			m := newScriptedModel(t, rules...)
			var last agentsvc.Event
			var err error
			for ev, e := range agent.NewLLM(m, agent.Options{Output: newCityOutput(t, c.strict), Instruction: "where"}).Run(t.Context(), newInvocation("go")) {
				if ev.Chunk != nil || ev.Message != nil {
					t.Errorf("shown before it was right: %+v", ev)
				}
				last, err = ev, e
			}
			if len(m.reqs) != c.calls || m.reqs[0].Step == m.reqs[len(m.reqs)-1].Step && c.calls > 1 {
				t.Errorf("%d model calls, want %d with a step each", len(m.reqs), c.calls)
			}
			if r := m.reqs[0]; !strings.HasPrefix(r.SystemText(), "where\n\nGive your final answer as one JSON value, \"place\",") || !strings.Contains(r.SystemText(), `"additionalProperties":false`) || r.System != "where" {
				t.Errorf("asked under %q", r.SystemText())
			}
			if c.wantProblem != "" {
				conversation := m.reqs[1].Conversation
				if got := conversation[len(conversation)-1].Message.Text(); !strings.Contains(got, c.wantProblem) || len(conversation) != 3 {
					t.Errorf("got %q, want %q", got, c.wantProblem)
				}
			}
			if c.err != "" {
				if !errors.Is(err, agentsvc.CodeInvalid) || err.Error() != c.err {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			want := []agentsvc.Part{agentsvc.TextPart(rome), {Data: &agentsvc.Data{MediaType: "application/json", Value: map[string]any{"city": "Rome"}}}}
			if err != nil || last.Status == nil {
				t.Fatalf("ended with %+v (%v)", last, err)
			}
			if diff := cmp.Diff(want, last.Status.Message.Parts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOutputElsewhere checks that an answer given with exit must fit the schema too, and a question need not.
func TestOutputElsewhere(t *testing.T) {
	t.Parallel()
	m := newScriptedModel(t, newRule(scripted.When{ToolResult: "exit"}, newCallItem("exit", "answer", `{"city":"Rome"}`)), newRule(scripted.When{Text: "ask"}, scripted.Item{Question: "Where?"}), newDefaultRule(newCallItem("exit", "answer", "Rome")))
	a := agent.NewLLM(m, agent.Options{Output: newCityOutput(t, true), Reasoning: agent.Reasoning{Exit: true}})
	want := []string{
		`message  exit{"answer":"Rome"}`, "result exit true the answer is not valid JSON: invalid character 'R' looking for beginning of value",
		`message  exit{"answer":"{\"city\":\"Rome\"}"}`, "result exit false The turn ends.", `completed {"city":"Rome"}`,
	}
	if diff := cmp.Diff(want, formatFramed(collectFacts(t, a, newInvocation("go"), 0))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"input_required Where?"}, formatFramed(collectFacts(t, a, newInvocation("ask"), 0))); diff != "" {
		t.Error(diff)
	}
}

// TestNoSchema checks invalid schemas, and one that would read a file.
func TestNoSchema(t *testing.T) {
	t.Parallel()
	for _, schema := range []map[string]any{{"type": "objekt"}, {"$ref": "file:///etc/passwd"}, {"x": func() {}}} {
		if _, err := agent.NewOutput("", "", schema, false); err == nil {
			t.Errorf("%v is taken for a schema", schema)
		}
	}
}
