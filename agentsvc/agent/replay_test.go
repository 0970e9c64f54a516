package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/tool"
)

func newSayItem(text string) scripted.Item { return scripted.Item{Text: text} }

func newCallItem(tool string, arguments ...string) scripted.Item {
	c := scripted.Call{Tool: tool}
	for i := 0; i+1 < len(arguments); i += 2 {
		if c.Arguments == nil {
			c.Arguments = map[string]any{}
		}
		c.Arguments[arguments[i]] = arguments[i+1]
	}
	return scripted.Item{Call: &c}
}

func newDefaultRule(items ...scripted.Item) scripted.Rule { return scripted.Rule{Then: items} }

func newMember(name string, a agent.Agent) agent.Member {
	return agent.Member{Name: name, Description: "is " + name, Agent: a}
}

// newTalker returns an agent that gives one fixed answer.
func newTalker(t *testing.T, text string) (agent.Agent, *model) {
	m := newScriptedModel(t, newDefaultRule(newSayItem(text)))
	return agent.NewLLM(m, agent.Options{}), m
}

// newResumedInvocation returns turn as it is after an earlier attempt recorded facts.
func newResumedInvocation(text string, facts []agentsvc.Event) agent.Invocation {
	inv := newInvocation(text)
	inv.Frames = map[string][]agentsvc.Entry{}
	for _, ev := range facts {
		if ev.Message == nil && ev.Result == nil {
			continue
		}
		e := agentsvc.Entry{Message: ev.Message, Result: ev.Result}
		if ev.Frame == "" {
			inv.Conversation = append(inv.Conversation, e)
			inv.Steps += agent.CountSteps([]agentsvc.Entry{e})
		} else {
			inv.Frames[ev.Frame] = append(inv.Frames[ev.Frame], e)
		}
	}
	return inv
}

// collectFacts runs a turn until it has yielded n facts, or to its end.
func collectFacts(t *testing.T, a agent.Agent, inv agent.Invocation, n int) (all []agentsvc.Event) {
	t.Helper()
	for ev, err := range a.Run(t.Context(), inv) {
		if err != nil {
			t.Fatalf("after %d facts: %v", len(all), err)
		}
		if ev.Chunk == nil {
			all = append(all, ev)
		}
		if n > 0 && len(all) == n {
			break
		}
	}
	return all
}

// formatFramed is line with the frame before it.
func formatFramed(evs []agentsvc.Event) (lines []string) {
	for _, ev := range evs {
		if ev.Usage != nil || ev.Checkpoint != nil {
			continue
		}
		lines = append(lines, strings.TrimSpace(ev.Frame+" "+formatEvent(ev)))
	}
	return lines
}

// TestReplay stops turns of nested agents after each fact and lets another attempt continue: no answered model is
// called again, no tool runs again, and the end is the same.
func TestReplay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent func(t *testing.T) (agent.Agent, []*model)
		want  []string
	}{
		"sequential": {func(t *testing.T) (agent.Agent, []*model) {
			m1 := newScriptedModel(t, newRule(scripted.When{ToolResult: "look"}, newSayItem("It is {{result}}.")), newDefaultRule(newCallItem("look")))
			m2 := newScriptedModel(t, newDefaultRule(newSayItem("Heard {{text}}")))
			look := newEchoTool("look")
			look.idempotent = true
			return agent.NewSequential([]agent.Member{
				newMember("a", agent.NewLLM(m1, agent.Options{Tools: newToolSet(t, look)})), newMember("b", agent.NewLLM(m2, agent.Options{})),
			}, agent.GroupOptions{}), []*model{m1, m2}
		}, []string{"a message  look{}", "a result look false look{}", "a message It is look{}.", "b message Heard a:\nIt is look{}.", "completed Heard a:\nIt is look{}."}},
		"loop": {func(t *testing.T) (agent.Agent, []*model) {
			m1 := newScriptedModel(t, newRule(scripted.When{Text: "critic"}, newSayItem("second")), newDefaultRule(newSayItem("first")))
			m2 := newScriptedModel(t, newRule(scripted.When{Text: "second"}, newCallItem("escalate", "reason", "good")), newDefaultRule(newSayItem("again")))
			return agent.NewLoop([]agent.Member{
				newMember("writer", agent.NewLLM(m1, agent.Options{})),
				newMember("critic", agent.NewLLM(m2, agent.Options{Reasoning: agent.Reasoning{Escalate: true}})),
			}, 5, agent.GroupOptions{}), []*model{m1, m2}
		}, []string{
			"writer[1] message first", "critic[1] message again", "writer[2] message second",
			`critic[2] message  escalate{"reason":"good"}`, "critic[2] result escalate false Control goes back.", "critic[2] message good", "completed second",
		}},
		"transfer": {func(t *testing.T) (agent.Agent, []*model) {
			m1 := newScriptedModel(t, newDefaultRule(newCallItem("transfer_to_b", "note", "be kind")))
			m2 := newScriptedModel(t, newDefaultRule(newSayItem("From b: {{text}}")))
			b := newMember("b", agent.NewLLM(m2, agent.Options{}))
			return agent.NewLLM(m1, agent.Options{SubAgents: []agent.Member{b}}), []*model{m1, m2}
		}, []string{
			`message  transfer_to_b{"note":"be kind"}`, "b[1] message From b: note:\nbe kind",
			"result transfer_to_b false b has taken over and answered.", "completed From b: note:\nbe kind",
		}},
		"tool, agent and exit at once": {func(t *testing.T) (agent.Agent, []*model) {
			m1 := newScriptedModel(t, newDefaultRule(newCallItem("helper", "request", "x"), newCallItem("look"), newCallItem("exit", "answer", "bye")))
			helper, m2 := newTalker(t, "done")
			look := newEchoTool("look")
			look.idempotent = true
			return agent.NewLLM(m1, agent.Options{
				Tools: newToolSet(t, look), AgentTools: []agent.Member{newMember("helper", helper)}, Reasoning: agent.Reasoning{Exit: true},
			}), []*model{m1, m2}
		}, []string{
			`message  helper{"request":"x"} look{} exit{"answer":"bye"}`, "result look false look{}", "result exit false The turn ends.",
			"helper[1.1] message done", "result helper false done", "completed bye",
		}},
		"deep": {func(t *testing.T) (agent.Agent, []*model) {
			leaf, m := newTalker(t, "leaf")
			a := leaf
			for i := range 3 {
				a = agent.NewSequential([]agent.Member{newMember(fmt.Sprint("s", i), a)}, agent.GroupOptions{})
			}
			return a, []*model{m}
		}, []string{"s2/s1/s0 message leaf", "s2/s1 message leaf", "s2 message leaf", "completed leaf"}},
		"thinking on": {func(t *testing.T) (agent.Agent, []*model) {
			m := newScriptedModel(t, newRule(scripted.When{Text: "^Go on"}, newCallItem("exit", "answer", "42")), newDefaultRule(newSayItem("hm")))
			return agent.NewLLM(m, agent.Options{Reasoning: agent.Reasoning{Exit: true, Until: []agent.Condition{agent.Escalated}}}), []*model{m}
		}, []string{"message hm", `message  exit{"answer":"42"}`, "result exit false The turn ends.", "completed 42"}},
		"thinking on below": {func(t *testing.T) (agent.Agent, []*model) {
			m := newScriptedModel(t, newRule(scripted.When{Text: "^Go on"}, newCallItem("exit", "answer", "42")), newDefaultRule(newSayItem("hm")))
			a := agent.NewLLM(m, agent.Options{Reasoning: agent.Reasoning{Exit: true, Until: []agent.Condition{agent.Escalated}}})
			return agent.NewSequential([]agent.Member{newMember("a", a)}, agent.GroupOptions{}), []*model{m}
		}, []string{"a message hm", `a message  exit{"answer":"42"}`, "a result exit false The turn ends.", "a message 42", "completed 42"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := func(models []*model) (n int) {
				for _, m := range models {
					n += len(m.reqs)
				}
				return n
			}
			a, models := c.agent(t)
			complete := collectFacts(t, a, newInvocation("go"), 0)
			if diff := cmp.Diff(c.want, formatFramed(complete)); diff != "" {
				t.Fatal(diff)
			}
			total := asked(models)
			for n := 1; n < len(complete); n++ {
				if complete[n-1].Usage != nil {
					continue // it is written with the next fact
				}
				a, models := c.agent(t)
				first := collectFacts(t, a, newInvocation("go"), n)
				rest := collectFacts(t, a, newResumedInvocation("go", first), 0)
				if diff := cmp.Diff(c.want, formatFramed(append(first, rest...))); diff != "" {
					t.Errorf("cut off after %d facts:\n%s", n, diff)
				}
				if got := asked(models); got != total {
					t.Errorf("cut off after %d facts: %d model calls, want %d", n, got, total)
				}
			}
		})
	}
}

// TestDecidedBelow checks that a call in a deep frame that needs approval ends the turn under its path, after
// concurrent members have ended, and that the decision resumes that frame without calling an answered model again.
func TestDecidedBelow(t *testing.T) {
	t.Parallel()
	sender := func(t *testing.T, c *callCounter) (agent.Agent, *model) {
		m := newScriptedModel(t, newRule(scripted.When{ToolResult: "send"}, newSayItem("Sent.")), newDefaultRule(scripted.Item{Call: &scripted.Call{Tool: "send", Arguments: map[string]any{"n": 1}}}))
		return agent.NewLLM(m, agent.Options{Tools: newApprovalTools(t, c, tool.ApprovalOptions{})}), m
	}
	for name, c := range map[string]struct {
		agent func(t *testing.T, send agent.Agent) (agent.Agent, *model)
		rest  string
		last  string
	}{
		"used like a tool": {func(t *testing.T, send agent.Agent) (agent.Agent, *model) {
			m := newScriptedModel(t, newRule(scripted.When{ToolResult: "b"}, newSayItem("b: {{result}}")), newDefaultRule(newCallItem("b", "request", "x")))
			return agent.NewLLM(m, agent.Options{AgentTools: []agent.Member{newMember("b", send)}}), m
		}, "b[1.1] input_required", "completed b: Sent."},
		"handed over to": {func(t *testing.T, send agent.Agent) (agent.Agent, *model) {
			m := newScriptedModel(t, newDefaultRule(newCallItem("transfer_to_b")))
			return agent.NewLLM(m, agent.Options{SubAgents: []agent.Member{newMember("b", send)}}), m
		}, "b[1] input_required", "completed Sent."},
		"side by side": {func(t *testing.T, send agent.Agent) (agent.Agent, *model) {
			other, m := newTalker(t, "hello")
			return agent.NewParallel([]agent.Member{newMember("b", send), newMember("c", other)}, agent.GroupOptions{}), m
		}, "b input_required", "completed b:\nSent.\n\nc:\nhello"},
		"in a loop of a sequence": {func(t *testing.T, send agent.Agent) (agent.Agent, *model) {
			other, m := newTalker(t, "hello")
			s := agent.NewSequential([]agent.Member{newMember("c", other), newMember("b", send)}, agent.GroupOptions{})
			return agent.NewLoop([]agent.Member{newMember("s", s)}, 1, agent.GroupOptions{}), m
		}, "s[1]/b input_required", "completed Sent."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var done callCounter
			send, asked := sender(t, &done)
			a, parent := c.agent(t, send)
			first := collectFacts(t, a, newInvocation("go"), 0)
			if lines := formatFramed(first); lines[len(lines)-1] != c.rest || len(done.ran) != 0 {
				t.Fatalf("the turn rests with %q, and ran %v", lines, done.ran)
			}
			inv := newResumedInvocation("go", first)
			inv.CallStates = map[agent.CallKey]agent.CallState{}
			for _, ev := range first {
				if p := ev.Approval; p != nil {
					d := agentsvc.Decision{Call: p.Call.ID, Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(p.Call.Arguments)}
					inv.CallStates[agent.CallKey{Frame: ev.Frame, Call: p.Call.ID}] = agent.CallState{Decision: &d}
				}
			}
			before := len(parent.reqs)
			lines := formatFramed(collectFacts(t, a, inv, 0))
			if lines[len(lines)-1] != c.last || done.ran["send"] != 1 {
				t.Errorf("went on with %q, and ran %v", lines, done.ran)
			}
			if again := len(parent.reqs) - before; len(asked.reqs) != 2 || again > 1 || again == 1 && name != "used like a tool" {
				t.Errorf("%d model calls of the one that sends, %d more above it", len(asked.reqs), again)
			}
		})
	}
}
