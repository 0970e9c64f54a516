package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/scripted"
)

// funcAgent is an agent whose turn is a function.
type funcAgent func(ctx context.Context, inv agent.Invocation, yield func(agentsvc.Event, error) bool)

func (a funcAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) { a(ctx, inv, yield) }
}

func newCompletedEvent(text string) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &agentsvc.Message{
		ID: "m-" + agentsvc.MessageID(text), Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)},
	}}}
}

// TestSideBySide checks that the members of a parallel agent run concurrently, up to the bound, and that their answers
// are in the order of the members.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, width = 20, 8
		var running, peak atomic.Int64
		var members []agent.Member
		var want []string
		for i := range n {
			name := fmt.Sprint("m", i)
			want = append(want, name+":\n"+name)
			members = append(members, newMember(name, funcAgent(func(_ context.Context, _ agent.Invocation, yield func(agentsvc.Event, error) bool) {
				peak.Store(max(peak.Load(), running.Add(1)))
				time.Sleep(time.Duration(n-i) * time.Second) // the first takes longest
				running.Add(-1)
				yield(newCompletedEvent(name), nil)
			})))
		}
		start := time.Now()
		got := collectFacts(t, agent.NewParallel(members, agent.GroupOptions{}), newInvocation("go"), 0)
		if final := got[n].Status.Message.Text(); final != strings.Join(want, "\n\n") {
			t.Errorf("answered %q", final)
		}
		if peak.Load() != width {
			t.Errorf("%d at the same time, want %d", peak.Load(), width)
		}
		if took := time.Since(start); took > 40*time.Second { // sequentially: 210 s
			t.Errorf("took %v", took)
		}
	})
}

// busyAgent is a member of groups that works for a second of the clock of package synctest, and counts how often it ran
// and how many of its runs were at work at the same time.
type busyAgent struct {
	mu                 sync.Mutex
	running, peak, ran int
}

func (b *busyAgent) Run(context.Context, agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		b.add(1)
		<-time.After(time.Second)
		b.add(-1)
		yield(newCompletedEvent("done"), nil)
	}
}

// add counts n runs more at work.
func (b *busyAgent) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.ran = b.running+n, b.ran+max(n, 0)
	b.peak = max(b.peak, b.running)
}

// newGroupOf returns a parallel group of width members that are all the same agent.
func newGroupOf(width int, member agent.Agent) agent.Agent {
	var members []agent.Member
	for i := range width {
		members = append(members, newMember(fmt.Sprint("m", i), member))
	}
	return agent.NewParallel(members, agent.GroupOptions{})
}

// TestNestedSideBySide checks that the sub-agents of a turn share one bound at all levels of nesting, that they use it up
// and that all of them run.
func TestNestedSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const width, levels, most = 5, 4, 8
		var leaf busyAgent
		nested, leaves := agent.Agent(&leaf), 1
		for range levels {
			nested, leaves = newGroupOf(width, nested), leaves*width
		}
		collectFacts(t, nested, newInvocation("go"), 0)
		if leaf.peak != most || leaf.ran != leaves {
			t.Errorf("%d of %d ran, %d at the same time, want %d", leaf.ran, leaves, leaf.peak, most)
		}
	})
}

// TestSlotsOfEndedSiblings checks that agents which only wait for nested ones use no slot, also after their siblings have
// ended.
func TestSlotsOfEndedSiblings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const levels, width, most = 6, 32, 8
		var slow busyAgent
		quick := funcAgent(func(_ context.Context, _ agent.Invocation, yield func(agentsvc.Event, error) bool) {
			yield(newCompletedEvent("done"), nil)
		})
		nested := newGroupOf(width, &slow)
		for range levels {
			nested = agent.NewParallel([]agent.Member{newMember("quick", quick), newMember("nested", nested)}, agent.GroupOptions{})
		}
		collectFacts(t, nested, newInvocation("go"), 0)
		if slow.peak != most {
			t.Errorf("%d at the same time, want %d", slow.peak, most)
		}
	})
}

// TestOneYieldAtATime checks that events of concurrent members are yielded one by one.
func TestOneYieldAtATime(t *testing.T) {
	t.Parallel()
	var members []agent.Member
	for i := range 8 {
		members = append(members, newMember(fmt.Sprint("m", i), funcAgent(func(_ context.Context, _ agent.Invocation, yield func(agentsvc.Event, error) bool) {
			for range 50 {
				if !yield(agentsvc.Event{Usage: &agentsvc.Usage{OutputTokens: 1}}, nil) {
					return
				}
			}
			yield(newCompletedEvent("x"), nil)
		})))
	}
	reported := map[string]int64{}
	var inside atomic.Int64
	for ev, err := range agent.NewParallel(members, agent.GroupOptions{}).Run(t.Context(), newInvocation("go")) {
		if err != nil || inside.Add(1) != 1 {
			t.Fatalf("an event inside another one (%v)", err)
		}
		if ev.Usage != nil {
			reported[ev.Frame] += ev.Usage.OutputTokens
		}
		runtime.Gosched()
		inside.Add(-1)
	}
	if len(reported) != 8 || reported["m3"] != 50 {
		t.Errorf("got %v", reported)
	}
}

// TestOneFails checks that the failure or panic of one member ends the others, and the turn with its error.
func TestOneFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, bad := range map[string]funcAgent{
		"error": func(_ context.Context, _ agent.Invocation, yield func(agentsvc.Event, error) bool) {
			yield(agentsvc.Event{}, broken)
		},
		"panic": func(context.Context, agent.Invocation, func(agentsvc.Event, error) bool) { panic("canary") },
		"no end": func(context.Context, agent.Invocation, func(agentsvc.Event, error) bool) {
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := false
			waits := funcAgent(func(ctx context.Context, _ agent.Invocation, yield func(agentsvc.Event, error) bool) {
				<-ctx.Done()
				ended = true
				yield(agentsvc.Event{}, ctx.Err())
			})
			_, err := runToLines(t.Context(), agent.NewParallel([]agent.Member{newMember("a", waits), newMember("b", bad)}, agent.GroupOptions{}), newInvocation("go"))
			if err == nil || !ended || name == "error" && !errors.Is(err, broken) || strings.Contains(err.Error(), "canary") {
				t.Errorf("ended the other: %v (%v)", ended, err)
			}
		})
	}
}

// TestBreakOffParallel checks that the consumer's stop, and the end of the context, end every member.
func TestBreakOffParallel(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"break", "cancel"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var ended sync.WaitGroup
			ended.Add(2)
			hang := funcAgent(func(ctx context.Context, _ agent.Invocation, yield func(agentsvc.Event, error) bool) {
				defer ended.Done()
				yield(agentsvc.Event{Usage: &agentsvc.Usage{}}, nil)
				<-ctx.Done()
				yield(agentsvc.Event{}, ctx.Err())
			})
			a := agent.NewParallel([]agent.Member{newMember("a", hang), newMember("b", hang)}, agent.GroupOptions{})
			var last error
			for _, err := range a.Run(ctx, newInvocation("go")) {
				last = err
				if how == "break" {
					break
				}
				cancel()
			}
			ended.Wait()
			if how == "cancel" && !errors.Is(last, context.Canceled) {
				t.Errorf("ended with %v", last)
			}
		})
	}
}

// TestInterruption checks that a member that waits for a human ends the turn of the group, under its own path, after
// the other members have ended.
func TestInterruption(t *testing.T) {
	t.Parallel()
	asks := func() agent.Agent {
		return agent.NewLLM(newScriptedModel(t, newDefaultRule(scripted.Item{Question: "Which city?"})), agent.Options{})
	}
	talks := func() agent.Agent { a, _ := newTalker(t, "done"); return a }
	refuses := agent.NewLLM(newScriptedModel(t, newDefaultRule(scripted.Item{Refusal: "No."})), agent.Options{})
	for name, c := range map[string]struct {
		agent agent.Agent
		want  []string
	}{
		"sequential": {
			agent.NewSequential([]agent.Member{newMember("a", talks()), newMember("b", asks()), newMember("c", talks())}, agent.GroupOptions{}),
			[]string{"a message done", "b input_required Which city?"},
		},
		"parallel": {
			agent.NewParallel([]agent.Member{newMember("a", asks()), newMember("b", talks())}, agent.GroupOptions{}),
			[]string{"b message done", "a input_required Which city?"},
		},
		"loop": {
			agent.NewLoop([]agent.Member{newMember("a", refuses)}, 3, agent.GroupOptions{}),
			[]string{"a[1] rejected No."},
		},
		"used like a tool": {
			agent.NewLLM(newScriptedModel(t, newDefaultRule(newCallItem("b", "request", "x"))), agent.Options{AgentTools: []agent.Member{newMember("b", asks())}}),
			[]string{`message  b{"request":"x"}`, "result b false input_required: Which city?", "b[1.1] input_required Which city?"},
		},
		"handed over to": {
			agent.NewLLM(newScriptedModel(t, newDefaultRule(newCallItem("transfer_to_b"))), agent.Options{SubAgents: []agent.Member{newMember("b", refuses)}}),
			[]string{"message  transfer_to_b{}", "result transfer_to_b false rejected: No.", "b[1] rejected No."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, formatFramed(collectFacts(t, c.agent, newInvocation("go"), 0))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestChunks checks that chunks of a sub-agent are yielded only if they belong to the turn's answer.
func TestChunks(t *testing.T) {
	t.Parallel()
	says := func(text string) agent.Agent { a, _ := newTalker(t, text); return a }
	one, two := newMember("one", says("first")), newMember("two", says("second"))
	for name, c := range map[string]struct {
		agent agent.Agent
		want  string
	}{
		"last of a sequence":  {agent.NewSequential([]agent.Member{one, two}, agent.GroupOptions{}), "second"},
		"whole":               {agent.NewSequential([]agent.Member{one, two}, agent.GroupOptions{CompleteOnly: true}), ""},
		"in a sequence below": {agent.NewSequential([]agent.Member{one, newMember("s", agent.NewSequential([]agent.Member{one, two}, agent.GroupOptions{}))}, agent.GroupOptions{}), "second"},
		"parallel":            {agent.NewParallel([]agent.Member{one, two}, agent.GroupOptions{}), ""},
		"loop":                {agent.NewLoop([]agent.Member{one, two}, 1, agent.GroupOptions{}), ""},
		"handed over":         {agent.NewLLM(newScriptedModel(t, newDefaultRule(newSayItem("Wait. "), newCallItem("transfer_to_two"))), agent.Options{SubAgents: []agent.Member{two}}), "Wait. second"},
		"used like a tool": {
			agent.NewLLM(newScriptedModel(t, newRule(scripted.When{ToolResult: "one"}, newSayItem("end")), newDefaultRule(newCallItem("one", "request", "x"))), agent.Options{AgentTools: []agent.Member{one}}), "end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shown := ""
			var last agentsvc.Event
			for ev, err := range c.agent.Run(t.Context(), newInvocation("go")) {
				if err != nil {
					t.Fatal(err)
				}
				if last = ev; ev.Chunk != nil {
					shown += ev.Chunk.Text
				}
			}
			if shown != c.want || last.Status == nil || !strings.HasSuffix(last.Status.Message.Text(), shown[max(0, len(shown)-3):]) {
				t.Errorf("shown %q, want %q", shown, c.want)
			}
		})
	}
}

// TestView checks the conversation that each member of a group receives.
func TestView(t *testing.T) {
	t.Parallel()
	first, m1 := newTalker(t, "one")
	second, m2 := newTalker(t, "two")
	inv := newInvocation("go")
	inv.Conversation = append([]agentsvc.Entry{
		newUserEntry("before"),
		{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, ToolCalls: []agentsvc.ToolCall{{ID: "1", Name: "gone"}}}},
		{Result: &agentsvc.ToolResult{Call: "1", Name: "gone", Text: "x"}},
		{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart("then")}}},
	}, inv.Conversation...)
	a := agent.NewLoop([]agent.Member{newMember("a", first), newMember("b", second)}, 2, agent.GroupOptions{})
	collectFacts(t, a, inv, 0)
	view := func(reqs []llm.Request) (all [][]string) {
		for _, req := range reqs {
			var messages []string
			for _, e := range req.Conversation {
				if e.Message == nil {
					messages = append(messages, "a tool's result")
					continue
				}
				messages = append(messages, string(e.Message.Role)+" "+e.Message.Text())
			}
			all = append(all, messages)
		}
		return all
	}
	base := []string{"user before", "agent then", "user go"}
	if diff := cmp.Diff([][]string{base, slices.Concat(base, []string{"user a:\none", "user b:\ntwo"})}, view(m1.reqs)); diff != "" {
		t.Errorf("the first member:\n%s", diff)
	}
	if diff := cmp.Diff([][]string{
		slices.Concat(base, []string{"user a:\none"}), slices.Concat(base, []string{"user a:\none", "user b:\ntwo", "user a:\none"}),
	}, view(m2.reqs)); diff != "" {
		t.Errorf("the second member:\n%s", diff)
	}
}

// TestLoopEnds checks when a loop ends, and with which answer.
func TestLoopEnds(t *testing.T) {
	t.Parallel()
	ends := agent.Reasoning{Exit: true, Escalate: true}
	writer := func() agent.Member { a, _ := newTalker(t, "draft"); return newMember("writer", a) }
	critic := func(items ...scripted.Item) agent.Member {
		return newMember("critic", agent.NewLLM(newScriptedModel(t, newDefaultRule(items...)), agent.Options{Reasoning: ends}))
	}
	group := func(members ...agent.Member) agent.Member {
		return newMember("group", agent.NewSequential(members, agent.GroupOptions{}))
	}
	for name, c := range map[string]struct {
		members []agent.Member
		rounds  int
		answer  string
		steps   int // number of frames
	}{
		"rounds":                {[]agent.Member{writer(), critic(newSayItem("more"))}, 3, "more", 6},
		"a hundred rounds":      {[]agent.Member{writer()}, 0, "draft", 100},
		"escalated":             {[]agent.Member{writer(), critic(newCallItem("escalate", "reason", "fine"))}, 3, "draft", 2},
		"escalated at once":     {[]agent.Member{critic(newCallItem("escalate", "reason", "fine")), writer()}, 3, "fine", 1},
		"exit":                  {[]agent.Member{writer(), critic(newCallItem("exit", "answer", "final"))}, 3, "final", 2},
		"exit goes by its text": {[]agent.Member{writer(), critic(newSayItem("final"), newCallItem("exit"))}, 3, "final", 2},
		"escalated on the way": {[]agent.Member{newMember("critic", agent.NewLLM(
			newScriptedModel(t, newRule(scripted.When{ToolResult: "escalate"}, newSayItem("Well.")), newDefaultRule(newCallItem("escalate"))),
			agent.Options{Reasoning: agent.Reasoning{Escalate: true, Until: []agent.Condition{agent.NoToolCalls}}}))}, 3, "Well.", 1},
		"escalated from a group":        {[]agent.Member{group(writer(), critic(newCallItem("escalate", "reason", "fine"))), critic(newSayItem("x"))}, 3, "draft", 1},
		"exit ends the group's loop":    {[]agent.Member{group(critic(newCallItem("exit", "answer", "y"))), critic(newSayItem("more"))}, 2, "more", 4},
		"escalated from a parallel one": {[]agent.Member{newMember("p", agent.NewParallel([]agent.Member{writer(), critic(newCallItem("escalate", "reason", "fine"))}, agent.GroupOptions{}))}, 3, "writer:\ndraft\n\ncritic:\nfine", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := collectFacts(t, agent.NewLoop(c.members, c.rounds, agent.GroupOptions{}), newInvocation("go"), 0)
			steps := map[string]bool{}
			for _, ev := range got {
				if ev.Frame != "" {
					top, _, _ := strings.Cut(ev.Frame, "/")
					steps[top] = true
				}
			}
			last := got[len(got)-1].Status
			if last == nil || last.State != agentsvc.Completed || last.Message.Text() != c.answer || len(steps) != c.steps {
				t.Errorf("%d steps, last %s; want %d and %q", len(steps), formatEvent(got[len(got)-1]), c.steps, c.answer)
			}
		})
	}
}
