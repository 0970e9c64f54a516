package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/tool"
)

func TestMain(m *testing.M) {
	// The A2A server that the tests call leaves goroutines behind for a task that waits for a credential.
	const server = "github.com/a2aproject/a2a-go/v2/"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(server+"internal/taskexec.runProducerConsumer"),
		goleak.IgnoreAnyFunction(server+"internal/taskexec.(*executionHandler).processEvents"),
		goleak.IgnoreAnyFunction(server+"a2asrv/eventqueue.newInMemoryEventBroker.func1"))
}

// model is the scripted provider, which records its requests.
type model struct {
	llm.Provider
	mu   sync.Mutex
	reqs []llm.Request
}

func (m *model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	m.mu.Lock()
	req.Conversation = slices.Clone(req.Conversation)
	m.reqs = append(m.reqs, req)
	m.mu.Unlock()
	return m.Provider.Stream(ctx, req)
}

func newScriptedModel(t *testing.T, rules ...scripted.Rule) *model {
	t.Helper()
	p, err := scripted.New(scripted.Options{Script: rules})
	if err != nil {
		t.Fatal(err)
	}
	return &model{Provider: p}
}

func newRule(w scripted.When, items ...scripted.Item) scripted.Rule {
	return scripted.Rule{When: w, Then: items}
}

func newCallItems(names ...string) (items []scripted.Item) {
	for i, name := range names {
		items = append(items, scripted.Item{Call: &scripted.Call{Tool: name, Arguments: map[string]any{"n": i}}})
	}
	return items
}

// funcTool is a tool whose call is a function.
type funcTool struct {
	name       string
	call       func(ctx context.Context, in tool.Call) (string, error)
	idempotent bool
}

func (f funcTool) Spec() agentsvc.ToolSpec { return agentsvc.ToolSpec{Name: f.name} }
func (f funcTool) IsIdempotent() bool      { return f.idempotent }
func (f funcTool) Call(ctx context.Context, in tool.Call) (string, error) {
	return f.call(ctx, in)
}

func newToolSet(t *testing.T, fns ...funcTool) *tool.Set {
	t.Helper()
	var all []tool.Tool
	for _, f := range fns {
		all = append(all, f)
	}
	set, err := tool.NewSet(all, tool.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newUserEntry(text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{ID: "m1", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

func newInvocation(text string) agent.Invocation {
	return agent.Invocation{Task: "t1", Turn: 2, Conversation: []agentsvc.Entry{newUserEntry(text)}}
}

// runToLines runs a turn to its end and returns one line for each event; chunks of a message are joined.
func runToLines(ctx context.Context, a agent.Agent, inv agent.Invocation) (lines []string, err error) {
	text, at := "", agentsvc.MessageID("")
	for ev, err := range a.Run(ctx, inv) {
		if err != nil {
			return lines, err
		}
		if c := ev.Chunk; c != nil {
			if c.Message != at {
				text, at = "", c.Message
			}
			if c.Offset != len(text) {
				return lines, fmt.Errorf("a chunk at %d after %q", c.Offset, text)
			}
			text += c.Text
			continue
		}
		if ev.Checkpoint != nil {
			continue
		}
		if text != "" {
			lines, text = append(lines, "chunks "+text), ""
		}
		lines = append(lines, formatEvent(ev))
	}
	return lines, nil
}

func formatEvent(ev agentsvc.Event) string {
	messages := func(m *agentsvc.Message) string {
		if m == nil {
			return ""
		}
		s := m.Text()
		for _, c := range m.ToolCalls {
			s += " " + c.Name + string(c.Arguments)
		}
		return s
	}
	switch {
	case ev.Status != nil:
		return string(ev.Status.State) + " " + messages(ev.Status.Message)
	case ev.Message != nil:
		return "message " + messages(ev.Message)
	case ev.Result != nil:
		return fmt.Sprintf("result %s %v %s", ev.Result.Name, ev.Result.Failed, ev.Result.Text)
	case ev.Approval != nil:
		a := ev.Approval
		return fmt.Sprintf("approval %s %s%s %s", a.Kind, a.Call.Name, a.Call.Arguments, a.Prompt)
	case ev.Call != nil:
		return "call " + ev.Call.Name + string(ev.Call.Arguments)
	case ev.Artifact != nil:
		return "artifact " + ev.Artifact.Artifact.Name
	case ev.Usage != nil:
		return "usage"
	}
	return "nothing"
}

func newEchoTool(name string) funcTool {
	return funcTool{name: name, call: func(_ context.Context, in tool.Call) (string, error) { return name + string(in.Arguments), nil }}
}

// TestTurn checks the events of a turn for several behaviours of the model.
func TestTurn(t *testing.T) {
	t.Parallel()
	script := newScriptedModel(t,
		newRule(scripted.When{ToolResult: "weather"}, scripted.Item{Text: "It is {{result}}."}),
		newRule(scripted.When{ToolResult: "nothing"}, scripted.Item{Text: "I cannot."}),
		newRule(scripted.When{Text: "weather"}, scripted.Item{Text: "Let me see."}, newCallItems("weather")[0]),
		newRule(scripted.When{Text: "unknown"}, newCallItems("nothing")...),
		newRule(scripted.When{Text: "ask"}, scripted.Item{Question: "Which city?"}),
		newRule(scripted.When{Text: "refuse"}, scripted.Item{Refusal: "I may not."}),
		newRule(scripted.When{Text: "file"}, scripted.Item{Artifact: &scripted.Artifact{Name: "a.txt", Text: "x"}}, scripted.Item{Text: "There."}),
		newRule(scripted.When{Text: "fail"}, scripted.Item{Text: "Well "}, scripted.Item{Failure: &scripted.Failure{Status: 500, Message: "no"}}),
		newRule(scripted.When{Text: "silent"}, scripted.Item{Pause: time.Nanosecond}),
		newRule(scripted.When{}, scripted.Item{Text: "You said: {{text}}"}),
	)
	set := newToolSet(t, newEchoTool("weather"))
	for _, c := range []struct {
		text  string
		whole bool
		want  []string
		err   string
	}{
		{text: "hello there", want: []string{"chunks You said: hello there", "usage", "completed You said: hello there"}},
		{text: "hello there", whole: true, want: []string{"usage", "completed You said: hello there"}},
		{text: "weather", want: []string{
			"chunks Let me see.", "usage", `message Let me see. weather{"n":0}`, `result weather false weather{"n":0}`,
			`chunks It is weather{"n":0}.`, "usage", `completed It is weather{"n":0}.`,
		}},
		{text: "unknown", want: []string{
			"usage", `message  nothing{"n":0}`, `result nothing true there is no tool "nothing"; the tools are weather`,
			"chunks I cannot.", "usage", "completed I cannot.",
		}},
		{text: "ask", want: []string{"chunks Which city?", "usage", "input_required Which city?"}},
		{text: "refuse", want: []string{"chunks I may not.", "usage", "rejected I may not."}},
		{text: "file", want: []string{"artifact a.txt", "chunks There.", "usage", "completed There."}},
		{text: "fail", err: "answered 500"},
		{text: "silent", want: []string{"usage", "completed "}},
	} {
		t.Run(fmt.Sprintf("%s %v", c.text, c.whole), func(t *testing.T) {
			t.Parallel()
			a := agent.NewLLM(script, agent.Options{Instruction: "be brief", Tools: set, CompleteOnly: c.whole})
			got, err := runToLines(t.Context(), a, newInvocation(c.text))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

// TestNoTools checks that a model that calls a tool without having any gets an error as the result.
func TestNoTools(t *testing.T) {
	t.Parallel()
	m := newScriptedModel(t, newRule(scripted.When{ToolResult: "x"}, scripted.Item{Text: "Ah."}), newRule(scripted.When{}, newCallItems("x")...))
	got, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{}), newInvocation("hi"))
	if err != nil || got[len(got)-1] != "completed Ah." || !strings.Contains(got[2], "no tools are offered") {
		t.Errorf("%q (%v)", got, err)
	}
}

// TestRequest checks the requests of each step of a turn and the steps' identifiers.
func TestRequest(t *testing.T) {
	t.Parallel()
	m := newScriptedModel(t, newRule(scripted.When{ToolResult: "b"}, scripted.Item{Text: "Done."}), newRule(scripted.When{}, newCallItems("a", "b")...))
	a := agent.NewLLM(m, agent.Options{Instruction: "be brief", Tools: newToolSet(t, newEchoTool("a"), newEchoTool("b"))})
	inv := newInvocation("go")
	inv.Conversation = append([]agentsvc.Entry{newUserEntry("earlier")}, inv.Conversation...)
	if _, err := runToLines(t.Context(), a, inv); err != nil {
		t.Fatal(err)
	}
	if len(m.reqs) != 2 || m.reqs[0].Step != "t1/2/0" || m.reqs[1].Step != "t1/2/1" {
		t.Fatalf("steps %v", m.reqs)
	}
	for _, req := range m.reqs {
		if req.System != "be brief" || len(req.Tools) != 2 {
			t.Errorf("step %s: system %q, %d tools", req.Step, req.System, len(req.Tools))
		}
	}
	conversation := m.reqs[1].Conversation
	if len(conversation) != 5 || conversation[2].Message == nil || conversation[3].Result.Name != "a" || conversation[4].Result.Name != "b" {
		t.Errorf("the second step's conversation: %+v", conversation)
	}
	if diff := cmp.Diff(m.reqs[0].Conversation, conversation[:2]); diff != "" {
		t.Error(diff)
	}
}

// TestParallel checks that the calls of one answer run concurrently, are yielded as they end, and are in the
// conversation in order.
func TestParallel(t *testing.T) {
	t.Parallel()
	const n = 50
	var all sync.WaitGroup
	all.Add(n)
	last := make(chan struct{})
	var fns []funcTool
	var names []string
	for i := range n {
		name := fmt.Sprint("tool", i)
		names = append(names, name)
		fns = append(fns, funcTool{name: name, call: func(context.Context, tool.Call) (string, error) {
			all.Done()
			all.Wait() // no call returns before all have begun
			if i == 0 {
				<-last
			}
			return name, nil
		}})
	}
	m := newScriptedModel(t, newRule(scripted.When{ToolResult: names[n-1]}, scripted.Item{Text: "Done."}), newRule(scripted.When{}, newCallItems(names...)...))
	reported := 0
	for ev, err := range agent.NewLLM(m, agent.Options{Tools: newToolSet(t, fns...)}).Run(t.Context(), newInvocation("go")) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Result != nil {
			if reported++; reported == n-1 {
				close(last) // the first call's result is yielded last
			}
			if reported == n && ev.Result.Name != names[0] {
				t.Errorf("last event: %s, want %s", ev.Result.Name, names[0])
			}
		}
	}
	var order []string
	for _, e := range m.reqs[1].Conversation {
		if e.Result != nil {
			order = append(order, e.Result.Name)
		}
	}
	if diff := cmp.Diff(names, order); diff != "" {
		t.Errorf("results in the conversation:\n%s", diff)
	}
}

// TestBounds checks a model that never ends, and one that makes too many calls at once.
func TestBounds(t *testing.T) {
	t.Parallel()
	ran := 0
	count := funcTool{name: "again", call: func(context.Context, tool.Call) (string, error) { ran++; return "x", nil }}
	m := newScriptedModel(t, newRule(scripted.When{}, newCallItems("again")...))
	a := agent.NewLLM(m, agent.Options{Tools: newToolSet(t, count)})
	if _, err := runToLines(t.Context(), a, newInvocation("go")); !errors.Is(err, agent.ErrTooManySteps) {
		t.Errorf("without end: %v", err)
	}
	if len(m.reqs) != 100 || ran != 100 {
		t.Errorf("%d model calls and %d tool calls, want 100 each", len(m.reqs), ran)
	}
	m.reqs = nil
	inv := newInvocation("go")
	inv.Steps = 98
	if _, err := runToLines(t.Context(), a, inv); !errors.Is(err, agent.ErrTooManySteps) || len(m.reqs) != 2 {
		t.Errorf("with 98 model calls on record: %v after %d more", err, len(m.reqs))
	}
	ran = 0
	m = newScriptedModel(t, newRule(scripted.When{}, newCallItems(slices.Repeat([]string{"again"}, 129)...)...))
	_, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newToolSet(t, count)}), newInvocation("go"))
	if !errors.Is(err, agentsvc.CodeInvalid) || ran != 0 {
		t.Errorf("129 calls at once: %v, %d ran", err, ran)
	}
}

// TestBreakOff checks that the turn ends wherever the consumer stops, with all running calls.
func TestBreakOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at      string
		model   int // model calls that were made
		started int // tools that were started
	}{{"chunk", 1, 0}, {"usage", 1, 0}, {"message", 1, 0}, {"result", 1, 3}, {"status", 2, 3}} {
		t.Run(c.at, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			started, cancelled := 0, 0
			begun := make(chan struct{}, 3)
			note := func(n *int) { mu.Lock(); *n++; mu.Unlock() }
			slow := func(ctx context.Context, _ tool.Call) (string, error) {
				note(&started)
				begun <- struct{}{}
				if c.at == "status" {
					return "x", nil
				}
				<-ctx.Done()
				note(&cancelled)
				return "", ctx.Err()
			}
			quick := func(context.Context, tool.Call) (string, error) {
				note(&started)
				if c.at == "result" {
					<-begun
					<-begun
				}
				return "x", nil
			}
			m := newScriptedModel(t,
				newRule(scripted.When{ToolResult: "quick"}, scripted.Item{Text: "Done."}),
				newRule(scripted.When{}, append([]scripted.Item{{Text: "Let me see. "}}, newCallItems("slow1", "slow2", "quick")...)...))
			set := newToolSet(t, funcTool{name: "slow1", call: slow}, funcTool{name: "slow2", call: slow}, funcTool{name: "quick", call: quick})
			for ev, err := range agent.NewLLM(m, agent.Options{Tools: set}).Run(t.Context(), newInvocation("go")) {
				if err != nil {
					t.Fatal(err)
				}
				at := map[string]bool{"chunk": ev.Chunk != nil, "usage": ev.Usage != nil, "message": ev.Message != nil, "result": ev.Result != nil, "status": ev.Status != nil}
				if at[c.at] {
					break
				}
			}
			for range 1000 { // a tool whose context has ended ends by itself
				mu.Lock()
				over := c.at != "result" || cancelled == 2
				mu.Unlock()
				if over {
					break
				}
				time.Sleep(time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(m.reqs) != c.model || started != c.started || c.at == "result" && cancelled != 2 {
				t.Errorf("%d model calls, %d tools started, %d cancelled", len(m.reqs), started, cancelled)
			}
		})
	}
}

// TestCancelled checks that the end of the context ends a turn during a model call and during tool calls, and that the
// result of a tool that failed because of it is not yielded.
func TestCancelled(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"model", "tool"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			hang := funcTool{name: "hang", call: func(ctx context.Context, _ tool.Call) (string, error) {
				cancel()
				<-ctx.Done()
				return "", ctx.Err()
			}}
			m := newScriptedModel(t, newRule(scripted.When{Text: "model"}, scripted.Item{Text: "One ", Pause: 10 * time.Minute}), newRule(scripted.When{}, newCallItems("hang")...))
			var last error
			for ev, err := range agent.NewLLM(m, agent.Options{Tools: newToolSet(t, hang)}).Run(ctx, newInvocation(in)) {
				if ev.Chunk != nil {
					cancel()
				}
				if ev.Result != nil || ev.Status != nil {
					t.Errorf("got %s", formatEvent(ev))
				}
				last = err
			}
			if !errors.Is(last, context.Canceled) {
				t.Errorf("ended with %v", last)
			}
		})
	}
}

// stopToolsModel reports StopTools without a tool call.
type stopToolsModel struct{}

func (stopToolsModel) Stream(context.Context, llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		_ = yield(llm.Chunk{Text: "Well."}, nil) && yield(llm.Chunk{Stop: llm.StopTools}, nil)
	}
}

// TestWaitsForNothing checks that such an answer ends the turn.
func TestWaitsForNothing(t *testing.T) {
	t.Parallel()
	got, err := runToLines(t.Context(), agent.NewLLM(stopToolsModel{}, agent.Options{}), newInvocation("go"))
	if diff := cmp.Diff([]string{"chunks Well.", "completed Well."}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}
