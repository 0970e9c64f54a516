package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/tool"
)

// schemaTool is a tool with parameters that returns its arguments.
type schemaTool struct {
	name, parameters string
	respond          func(arguments string) (string, error)
}

func (s schemaTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{Name: s.name, Parameters: json.RawMessage(s.parameters)}
}
func (schemaTool) IsIdempotent() bool { return true }
func (s schemaTool) Call(_ context.Context, in tool.Call) (string, error) {
	if s.respond != nil {
		return s.respond(string(in.Arguments))
	}
	return string(in.Arguments), nil
}

// TestRunner checks that tools run in order, each with the result of the one before.
func TestRunner(t *testing.T) {
	t.Parallel()
	text := schemaTool{name: "text", parameters: `{"type":"object","properties":{"text":{"type":"string"}}}`}
	sum := schemaTool{name: "sum", parameters: `{"type":"object","properties":{"unit":{},"expression":{"type":"string"}},"required":["expression"]}`}
	open := schemaTool{name: "open", parameters: `{"type":"object"}`}
	word := schemaTool{name: "word", parameters: `{"type":"object"}`, respond: func(string) (string, error) { return "hello", nil }}
	fails := schemaTool{name: "fails", parameters: `{"type":"object"}`, respond: func(string) (string, error) { return "", context.DeadlineExceeded }}
	data := agentsvc.Part{Data: &agentsvc.Data{Value: map[string]any{"expression": "6*7"}}}
	for name, c := range map[string]struct {
		tools []tool.Tool
		parts []agentsvc.Part
		want  []string
		err   string
	}{
		"the argument it needs":    {tools: []tool.Tool{sum}, parts: []agentsvc.Part{agentsvc.TextPart("6*7")}, want: []string{`message  sum{"expression":"6*7"}`, `result sum false {"expression":"6*7"}`, `completed {"expression":"6*7"}`}},
		"the argument it has":      {tools: []tool.Tool{text}, parts: []agentsvc.Part{agentsvc.TextPart("x")}, want: []string{`message  text{"text":"x"}`, `result text false {"text":"x"}`, `completed {"text":"x"}`}},
		"no such argument":         {tools: []tool.Tool{open}, parts: []agentsvc.Part{agentsvc.TextPart("x")}, want: []string{`message  open{"input":"x"}`, `result open false {"input":"x"}`, `completed {"input":"x"}`}},
		"data":                     {tools: []tool.Tool{sum}, parts: []agentsvc.Part{agentsvc.TextPart("please"), data}, want: []string{`message  sum{"expression":"6*7"}`, `result sum false {"expression":"6*7"}`, `completed {"expression":"6*7"}`}},
		"text that is an object":   {tools: []tool.Tool{open}, parts: []agentsvc.Part{agentsvc.TextPart(`{"a":1}`)}, want: []string{`message  open{"a":1}`, `result open false {"a":1}`, `completed {"a":1}`}},
		"one after the other":      {tools: []tool.Tool{word, sum, open}, parts: []agentsvc.Part{agentsvc.TextPart("x")}, want: []string{`message  word{"input":"x"}`, "result word false hello", `message  sum{"expression":"hello"}`, `result sum false {"expression":"hello"}`, `message  open{"expression":"hello"}`, `result open false {"expression":"hello"}`, `completed {"expression":"hello"}`}},
		"one that fails":           {tools: []tool.Tool{fails, open}, parts: []agentsvc.Part{agentsvc.TextPart("x")}, want: []string{`message  fails{"input":"x"}`, "result fails true fails: context deadline exceeded"}, err: "fails: context deadline exceeded"},
		"arguments it cannot have": {tools: []tool.Tool{sum}, parts: []agentsvc.Part{agentsvc.TextPart(`{"a":1}`)}, want: []string{`message  sum{"a":1}`, "result sum true the arguments of sum do not fit its schema: at /: missing property 'expression'"}, err: "the arguments of sum do not fit its schema: at /: missing property 'expression'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := tool.NewSet(c.tools, tool.Options{})
			if err != nil {
				t.Fatal(err)
			}
			inv := newInvocation("x")
			inv.Conversation[0].Message.Parts = c.parts
			var got []agentsvc.Event
			for ev, e := range agent.NewToolRunner(agent.NewPipeline(), set, false).Run(t.Context(), inv) {
				if err = e; e == nil && ev.Chunk == nil {
					got = append(got, ev)
				}
			}
			if diff := cmp.Diff(c.want, formatFramed(got)); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
	t.Run("after another agent", func(t *testing.T) {
		t.Parallel()
		set, err := tool.NewSet([]tool.Tool{sum}, tool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		says, _ := newTalker(t, "1+1")
		a := agent.NewSequential([]agent.Member{newMember("a", says), newMember("r", agent.NewToolRunner(agent.NewPipeline(), set, false))}, agent.GroupOptions{})
		got := collectFacts(t, a, newInvocation("x"), 0)
		if last := formatEvent(got[len(got)-1]); last != `completed {"expression":"1+1"}` {
			t.Error(last)
		}
	})
}
