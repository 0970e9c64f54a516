package runner_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

func newSayingAgent(t *testing.T, items ...scripted.Item) (agent.Agent, *model) {
	m := newScriptedModel(t, scripted.Rule{Then: items})
	return agent.NewLLM(m, agent.Options{}), m
}

func newMember(name string, a agent.Agent) agent.Member { return agent.Member{Name: name, Agent: a} }

// formatFramed returns one line for each event with its frame, without usage.
func formatFramed(evs []agentsvc.Event) (lines []string) {
	for i, kind := range eventKinds(evs) {
		if evs[i].Usage == nil {
			lines = append(lines, strings.TrimSpace(evs[i].Frame+" "+kind))
		}
	}
	return lines
}

// TestFrames: events of sub-agents are on the log under their frames, their usage is part of the sum, and their
// messages are neither in the session nor in the history.
func TestFrames(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		one, _ := newSayingAgent(t, scripted.Item{Text: "one"})
		two, _ := newSayingAgent(t, scripted.Item{Text: "two"})
		par := agent.NewParallel([]agent.Member{newMember("one", one), newMember("two", two)}, agent.GroupOptions{})
		last, m := newSayingAgent(t, scripted.Item{Text: "last"})
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": agent.NewSequential([]agent.Member{newMember("par", par), newMember("last", last)}, agent.GroupOptions{})})
		got, facts := h.submitAndDrain(t, newSubmission("go"))
		lines := formatFramed(facts)
		slices.Sort(lines[2:4]) // parallel, so in any order
		if diff := cmp.Diff([]string{"submitted", "working", "par/one message", "par/two message", "par message", "last message", "completed"}, lines); diff != "" {
			t.Error(diff)
		}
		if got.Status.Message.Text() != "last" || len(got.History) != 2 {
			t.Errorf("answered %q, history %v", got.Status.Message.Text(), got.History)
		}
		if used := got.Status.Message.Metadata["tokens_used"].(map[string]any); used["output"] != 3.0 {
			t.Errorf("used %v, want three words", used)
		}
		if diff := cmp.Diff([]string{"user: go", "agent: last"}, h.sessionLines(t)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"user: go", "user: par:\none:\none\n\ntwo:\ntwo"}, formatEntries(m.reqs[0].Conversation)); diff != "" {
			t.Error(diff)
		}
		stored, err := h.Reader.Get(t.Context(), anaVisibility, got.ID, store.TaskParts{History: true})
		if err != nil || len(stored.History) != 2 {
			t.Errorf("kept history %v (%v)", stored.History, err)
		}
		if diff := cmp.Diff([]string{"1/last/0"}, m.requestSteps()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTransferred: after a transfer of control the session has every call with its result, and its next turn begins
// with the first agent, which sees what the other one answered.
func TestTransferred(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		asks, _ := newSayingAgent(t, scripted.Item{Question: "Which one?"})
		answers, _ := newSayingAgent(t, scripted.Item{Text: "It is blue."})
		root := newScriptedModel(t,
			scripted.Rule{When: scripted.When{Text: "colour"}, Then: []scripted.Item{{Call: &scripted.Call{Tool: "transfer_to_tells"}}}},
			scripted.Rule{When: scripted.When{Text: "^which$"}, Then: []scripted.Item{{Call: &scripted.Call{Tool: "transfer_to_asks"}}}},
			scripted.Rule{Then: []scripted.Item{{Text: "You said: {{text}}"}}},
		)
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": agent.NewLLM(root, agent.Options{SubAgents: []agent.Member{newMember("asks", asks), newMember("tells", answers)}})})
		first, facts := h.submitAndDrain(t, newSubmission("what colour?"))
		if first.Status.Message.Text() != "It is blue." || first.Status.State != agentsvc.Completed {
			t.Errorf("%s: %q", first.Status.State, first.Status.Message.Text())
		}
		if diff := cmp.Diff([]string{"submitted", "working", "message", "tells[1] message", "result", "completed"}, formatFramed(facts)); diff != "" {
			t.Error(diff)
		}
		conversation := []string{"user: what colour?", "agent calls: ", "result: tells has taken over and answered.", "agent: It is blue."}
		if diff := cmp.Diff(conversation, h.sessionLines(t)); diff != "" {
			t.Error(diff)
		}
		second, _ := h.submitAndDrain(t, newSubmission("which"))
		if second.Status.State != agentsvc.InputRequired || second.Status.Message.Text() != "Which one?" {
			t.Fatalf("%s: %q", second.Status.State, second.Status.Message.Text())
		}
		answer := newSubmission("the red one")
		answer.Message.Task = second.ID
		third, _ := h.submitAndDrain(t, answer)
		if third.Status.Message.Text() != "You said: the red one" {
			t.Errorf("%s: %q", third.Status.State, third.Status.Message.Text())
		}
		conversation = append(conversation, "user: which", "agent calls: ", "result: input_required: Which one?", "agent: Which one?", "user: the red one")
		root.mu.Lock()
		requested := formatEntries(root.reqs[len(root.reqs)-1].Conversation)
		root.mu.Unlock()
		if diff := cmp.Diff(conversation, requested); diff != "" {
			t.Errorf("the first agent goes on from\n%s", diff)
		}
	})
}

// TestStoppedInSubAgentCall: a process stops in the middle of a sub-agent's tool call. Another one continues there:
// sub-agents that have ended do not run again, nor is the model that made the call asked again.
func TestStoppedInSubAgentCall(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		var looked atomic.Int64
		began := make(chan struct{}, 1)
		chain := func(call func(ctx context.Context) (string, error)) (a agent.Agent, before, looker *model) {
			first, before := newSayingAgent(t, scripted.Item{Text: "look"})
			looker = newScriptedModel(t,
				scripted.Rule{When: scripted.When{ToolResult: "look"}, Then: []scripted.Item{{Text: "I saw: {{result}}"}}},
				scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "look"}}}})
			second := newLookAgent(t, looker, lookTool{idempotent: true, call: call})
			boss := newScriptedModel(t,
				scripted.Rule{When: scripted.When{ToolResult: "chain"}, Then: []scripted.Item{{Text: "{{result}}"}}},
				scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "chain", Arguments: map[string]any{"request": "go"}}}}})
			s := agent.NewSequential([]agent.Member{newMember("first", first), newMember("second", second)}, agent.GroupOptions{})
			return agent.NewLLM(boss, agent.Options{AgentTools: []agent.Member{newMember("chain", s)}}), before, looker
		}
		a, before, looker := chain(func(ctx context.Context) (string, error) {
			looked.Add(1)
			began <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		})
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": a})
		sub := newSubmission("go")
		sub.Awaited = true
		got, err := h.Messages.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		now, stop := context.WithCancel(t.Context())
		stop()
		if err := h.pool.Drain(now); err != nil {
			t.Fatal(err)
		}
		a, beforeThere, lookerThere := chain(func(context.Context) (string, error) {
			looked.Add(1)
			return "a cat", nil
		})
		there := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": a})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, evs, err := there.Reader.Follow(ctx, anaVisibility, got.ID, new(int64))
		if err != nil {
			t.Fatal(err)
		}
		var facts []agentsvc.Event
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Chunk == nil {
				facts = append(facts, ev)
			}
		}
		want := []string{
			"submitted", "working", "message", "chain[1.1]/first message", "chain[1.1]/second message", "attempt", "chain[1.1]/second result",
			"chain[1.1]/second message", "chain[1.1] message", "result", "completed",
		}
		if diff := cmp.Diff(want, formatFramed(facts)); diff != "" {
			t.Error(diff)
		}
		if text := facts[len(facts)-1].Status.Message.Text(); text != "I saw: a cat" || looked.Load() != 2 {
			t.Errorf("looked %d times and answered %q", looked.Load(), text)
		}
		calls := []int{len(before.requestSteps()), len(looker.requestSteps()), len(beforeThere.requestSteps()), len(lookerThere.requestSteps())}
		if diff := cmp.Diff([]int{1, 1, 0, 1}, calls); diff != "" {
			t.Errorf("model calls here and there:\n%s", diff)
		}
	})
}
