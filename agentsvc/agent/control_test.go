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

// TestTransferBetweenPeers lets two agents hand control to each other: back to the first one, which answers, and without
// end, which a bound ends with a clear error.
func TestTransferBetweenPeers(t *testing.T) {
	t.Parallel()
	transfer := func(to, note string) scripted.Rule {
		return newDefaultRule(newCallItem("transfer_to_"+to, "note", note))
	}
	back := newRule(scripted.When{Text: "^note:\nback$"}, newSayItem("mine after all"))
	for name, c := range map[string]struct {
		a, b []scripted.Rule
		max  int
		want []string
		err  error
	}{
		"there and back": {
			a: []scripted.Rule{back, transfer("b", "over")}, b: []scripted.Rule{transfer("a", "back")},
			want: []string{
				`message  transfer_to_b{"note":"over"}`, `b[1] message  transfer_to_a{"note":"back"}`, "b[1]/a[1] message mine after all",
				"b[1] result transfer_to_a false a has taken over and answered.", "b[1] message mine after all",
				"result transfer_to_b false b has taken over and answered.", "completed mine after all",
			},
		},
		"without end": {
			a: []scripted.Rule{transfer("b", "over")}, b: []scripted.Rule{transfer("a", "back")}, max: 3,
			want: []string{
				`message  transfer_to_b{"note":"over"}`, `b[1] message  transfer_to_a{"note":"back"}`, `b[1]/a[1] message  transfer_to_b{"note":"over"}`,
				`b[1]/a[1]/b[1] message  transfer_to_a{"note":"back"}`,
			},
			err: &agent.TooManyTransfersError{Max: 3},
		},
		"without end, by default": {a: []scripted.Rule{transfer("b", "over")}, b: []scripted.Rule{transfer("a", "back")}, err: &agent.TooManyTransfersError{Max: 10}},
		"given back without end": {
			a: []scripted.Rule{newDefaultRule(newCallItem("transfer_to_b"))}, b: []scripted.Rule{newDefaultRule(newCallItem("escalate", "reason", "no"))},
			err: &agent.TooManyTransfersError{Max: 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := &agent.Reference{}
			second := agent.NewLLM(newScriptedModel(t, c.b...), agent.Options{SubAgents: []agent.Member{newMember("a", first)}, Reasoning: agent.Reasoning{Escalate: true}})
			first.Target = agent.NewLLM(newScriptedModel(t, c.a...), agent.Options{SubAgents: []agent.Member{newMember("b", second)}, Reasoning: agent.Reasoning{MaxTransfers: c.max}})
			var got []agentsvc.Event
			var err error
			for ev, e := range first.Run(t.Context(), newInvocation("go")) {
				if err = e; e == nil && ev.Chunk == nil {
					got = append(got, ev)
				}
			}
			if diff := cmp.Diff(c.err, err); diff != "" {
				t.Errorf("error -want +got:\n%s", diff)
			}
			if c.want == nil {
				return
			}
			if diff := cmp.Diff(c.want, formatFramed(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestControls checks the tools that steer a turn and the effects of their calls.
func TestControls(t *testing.T) {
	t.Parallel()
	ends := agent.Reasoning{Exit: true, Escalate: true}
	until := func(r agent.Reasoning, conditions ...agent.Condition) agent.Reasoning {
		r.Until = conditions
		return r
	}
	sub := func(name string, r agent.Reasoning, rules ...scripted.Rule) agent.Member {
		return newMember(name, agent.NewLLM(newScriptedModel(t, rules...), agent.Options{Reasoning: r}))
	}
	for name, c := range map[string]struct {
		rules []scripted.Rule
		o     agent.Options
		want  []string
		err   error
	}{
		"exit with an answer": {
			[]scripted.Rule{newDefaultRule(newSayItem("So."), newCallItem("exit", "answer", "42"))}, agent.Options{Reasoning: ends},
			[]string{`message So. exit{"answer":"42"}`, "result exit false The turn ends.", "completed 42"}, nil,
		},
		"exit with the text beside it": {
			[]scripted.Rule{newDefaultRule(newSayItem("So."), newCallItem("exit"))}, agent.Options{Reasoning: ends},
			[]string{"message So. exit{}", "result exit false The turn ends.", "completed So."}, nil,
		},
		"exit that is not to be had": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "exit"}, newSayItem("Oh.")), newDefaultRule(newCallItem("exit"))}, agent.Options{},
			[]string{"message  exit{}", `result exit true there is no tool "exit": no tools are offered`, "completed Oh."}, nil,
		},
		"exit without sense": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "exit"}, newSayItem("Oh.")), newDefaultRule(scripted.Item{Call: &scripted.Call{Tool: "exit", Arguments: map[string]any{"answer": 1}}})},
			agent.Options{Reasoning: ends},
			[]string{`message  exit{"answer":1}`, "result exit true the arguments of exit must be a JSON object whose values are text: json: cannot unmarshal number into Go struct field words.Answer of type string", "completed Oh."}, nil,
		},
		"escalate above which nobody stands": {
			[]scripted.Rule{newDefaultRule(newCallItem("escalate", "reason", "too hard"))}, agent.Options{Reasoning: ends},
			[]string{`message  escalate{"reason":"too hard"}`, "result escalate false Control goes back.", "completed too hard"}, nil,
		},
		"escalate that ends nothing": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "escalate"}, newSayItem("Well.")), newDefaultRule(newCallItem("escalate"))},
			agent.Options{Reasoning: until(ends, agent.NoToolCalls)},
			[]string{"message  escalate{}", "result escalate false Control goes back.", "completed Well."}, nil,
		},
		"handed over": {
			[]scripted.Rule{newDefaultRule(newCallItem("transfer_to_b"))},
			agent.Options{SubAgents: []agent.Member{sub("b", ends, newDefaultRule(newSayItem("mine")))}},
			[]string{"message  transfer_to_b{}", "b[1] message mine", "result transfer_to_b false b has taken over and answered.", "completed mine"}, nil,
		},
		"handed back, and over again": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "transfer_to_b", Text: "no"}, newCallItem("transfer_to_c")), newRule(scripted.When{}, newCallItem("transfer_to_b"))},
			agent.Options{SubAgents: []agent.Member{sub("b", ends, newDefaultRule(newCallItem("escalate", "reason", "no"))), sub("c", ends, newDefaultRule(newSayItem("mine")))}},
			[]string{
				"message  transfer_to_b{}", `b[1] message  escalate{"reason":"no"}`, "b[1] result escalate false Control goes back.", "b[1] message no",
				"result transfer_to_b false b gives control back: no", "message  transfer_to_c{}", "c[2] message mine",
				"result transfer_to_c false c has taken over and answered.", "completed mine",
			}, nil,
		},
		"handed over and back to a sub-agent of its own": {
			[]scripted.Rule{newDefaultRule(newCallItem("transfer_to_b"))},
			agent.Options{SubAgents: []agent.Member{newMember("b", agent.NewLLM(
				newScriptedModel(t, newDefaultRule(newCallItem("transfer_to_c"))), agent.Options{SubAgents: []agent.Member{sub("c", ends, newDefaultRule(newSayItem("deep")))}}))}},
			[]string{
				"message  transfer_to_b{}", "b[1] message  transfer_to_c{}", "b[1]/c[1] message deep", "b[1] result transfer_to_c false c has taken over and answered.",
				"b[1] message deep", "result transfer_to_b false b has taken over and answered.", "completed deep",
			}, nil,
		},
		"a transfer that ends nothing": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "transfer_to_b"}, newSayItem("b said {{result}}")), newDefaultRule(newCallItem("transfer_to_b"))},
			agent.Options{SubAgents: []agent.Member{sub("b", ends, newDefaultRule(newSayItem("mine")))}, Reasoning: until(ends, agent.NoToolCalls)},
			[]string{"message  transfer_to_b{}", "b[1] message mine", "result transfer_to_b false mine", "completed b said mine"}, nil,
		},
		"two transfers at once": {
			[]scripted.Rule{newDefaultRule(newCallItem("transfer_to_b"), newCallItem("transfer_to_c"))},
			agent.Options{SubAgents: []agent.Member{sub("b", ends, newDefaultRule(newSayItem("b"))), sub("c", ends, newDefaultRule(newSayItem("c")))}},
			nil, nil,
		},
		"an agent that is asked nothing": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "b"}, newSayItem("Oh.")), newDefaultRule(newCallItem("b"))},
			agent.Options{AgentTools: []agent.Member{sub("b", ends, newDefaultRule(newSayItem("x")))}},
			[]string{"message  b{}", "result b true the arguments of b lack request: say what the agent is to do", "completed Oh."}, nil,
		},
		"an agent that finds no end": {
			[]scripted.Rule{newRule(scripted.When{ToolResult: "b"}, newSayItem("Oh.")), newDefaultRule(newCallItem("b", "request", "x"))},
			agent.Options{AgentTools: []agent.Member{sub("b", agent.Reasoning{MaxSteps: 1}, newDefaultRule(newCallItem("gone")))}},
			[]string{
				`message  b{"request":"x"}`, "b[1.1] message  gone{}", `b[1.1] result gone true there is no tool "gone": no tools are offered`,
				"result b true " + agent.ErrTooManySteps.Error(), "completed Oh.",
			}, nil,
		},
		"bounded": {
			[]scripted.Rule{newDefaultRule(newSayItem("hm"))}, agent.Options{Reasoning: agent.Reasoning{MaxSteps: 2, Exit: true, Until: []agent.Condition{agent.Escalated}}},
			[]string{"message hm", "message hm"}, agent.ErrTooManySteps,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []agentsvc.Event
			var err error
			for ev, e := range agent.NewLLM(newScriptedModel(t, c.rules...), c.o).Run(t.Context(), newInvocation("go")) {
				if err = e; e == nil && ev.Chunk == nil {
					got = append(got, ev)
				}
			}
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if c.want == nil { // concurrent: in any order
				all := strings.Join(formatFramed(got), "\n")
				if !strings.Contains(all, "result transfer_to_c true control can be handed to one agent at a time, and transfer_to_b comes first") || !strings.HasSuffix(all, "completed b") {
					t.Error(all)
				}
				return
			}
			if diff := cmp.Diff(c.want, formatFramed(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTransferredConversation checks that the agent that takes over gets the messages before the transfer and not the
// calls that led to it, while the session gets every call with its result.
func TestTransferredConversation(t *testing.T) {
	t.Parallel()
	target, m := newTalker(t, "mine")
	look := newEchoTool("look")
	root := newScriptedModel(t, newRule(scripted.When{ToolResult: "look"}, newSayItem("Over to b."), newCallItem("transfer_to_b", "note", "a cat")), newDefaultRule(newSayItem("Hm."), newCallItem("look")))
	a := agent.NewLLM(root, agent.Options{Tools: newToolSet(t, look), SubAgents: []agent.Member{newMember("b", target)}})
	got := collectFacts(t, a, newInvocation("go"), 0)
	conversation := m.reqs[0].Conversation
	if len(conversation) != 2 || conversation[0].Message.Text() != "go" || conversation[1].Message.Text() != "note:\na cat" || conversation[1].Message.Role != agentsvc.RoleUser {
		t.Errorf("the other agent got %+v", conversation)
	}
	open := map[agentsvc.CallID]bool{}
	for _, ev := range got {
		if ev.Frame != "" {
			continue
		}
		if ev.Message != nil {
			for _, c := range ev.Message.ToolCalls {
				open[c.ID] = true
			}
		}
		if ev.Result != nil {
			delete(open, ev.Result.Call)
		}
	}
	if len(open) != 0 {
		t.Errorf("calls without a result: %v", open)
	}
}

// TestOffers checks which tools a model is offered. A tool with the name of a control is hidden.
func TestOffers(t *testing.T) {
	t.Parallel()
	other, _ := newTalker(t, "x")
	m := newScriptedModel(t, newDefaultRule(newSayItem("x")))
	collectFacts(t, agent.NewLLM(m, agent.Options{
		Tools: newToolSet(t, newEchoTool("look"), newEchoTool("exit")), Reasoning: agent.Reasoning{Exit: true, Escalate: true},
		AgentTools: []agent.Member{newMember("helper", other)}, SubAgents: []agent.Member{newMember("b", other)},
	}), newInvocation("go"), 0)
	var names []string
	for _, s := range m.reqs[0].Tools {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"look", "helper", "transfer_to_b", "exit", "escalate"}, names); diff != "" {
		t.Error(diff)
	}
	if s := m.reqs[0].Tools[1]; s.Description != "is helper" || !strings.Contains(string(s.Parameters), `"required":["request"]`) {
		t.Errorf("offered %+v", s)
	}
}

// TestPrompt checks the system prompt of an agent and of agents below others.
func TestPrompt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    agent.Options
		want string
	}{
		"instruction alone": {agent.Options{Instruction: "be brief"}, "above\n\nbe brief"},
		"all of it": {
			agent.Options{Instruction: "be brief", Prompt: agent.Prompt{Global: "all of you", Role: "a clerk", Guidance: "step by step"}},
			"above\n\nall of you\n\na clerk\n\nbe brief\n\nstep by step",
		},
		"replaced": {agent.Options{Instruction: "be brief", Prompt: agent.Prompt{System: "only this", Global: "x"}}, "only this"},
		"nothing":  {agent.Options{}, "above"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newScriptedModel(t, newDefaultRule(newSayItem("x")))
			below := newMember("b", agent.NewLLM(m, c.o))
			for _, a := range []agent.Agent{
				agent.NewSequential([]agent.Member{below}, agent.GroupOptions{GlobalInstruction: "above"}),
				agent.NewLLM(newScriptedModel(t, newDefaultRule(newCallItem("transfer_to_b"))), agent.Options{Prompt: agent.Prompt{Global: "above"}, SubAgents: []agent.Member{below}}),
				agent.NewLLM(newScriptedModel(t, newRule(scripted.When{ToolResult: "b"}, newSayItem("x")), newDefaultRule(newCallItem("b", "request", "x"))), agent.Options{Prompt: agent.Prompt{Global: "above"}, AgentTools: []agent.Member{below}}),
				agent.NewParallel([]agent.Member{newMember("s", agent.NewSequential([]agent.Member{below}, agent.GroupOptions{}))}, agent.GroupOptions{GlobalInstruction: "above"}),
			} {
				m.reqs = nil
				collectFacts(t, a, newInvocation("go"), 0)
				if got := m.reqs[0].System; got != c.want {
					t.Errorf("%T: %q, want %q", a, got, c.want)
				}
			}
		})
	}
}
