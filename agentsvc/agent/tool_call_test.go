package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/tool"
)

// callCounter counts the calls of each tool.
type callCounter struct {
	mu    sync.Mutex
	ran   map[string]int
	steps []string
}

func (c *callCounter) newTool(name string, idempotent bool) funcTool {
	return funcTool{name: name, idempotent: idempotent, call: func(_ context.Context, in tool.Call) (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ran == nil {
			c.ran = map[string]int{}
		}
		c.ran[name]++
		c.steps = append(c.steps, in.Step)
		return name + string(in.Arguments), nil
	}}
}

// numberTool is a tool with a number as its argument, which needs approval.
type numberTool struct{ funcTool }

func (t numberTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{Name: t.name, Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
}

// newApprovalTools returns a set of two tools: free, which runs at once, and send, which needs approval.
func newApprovalTools(t *testing.T, c *callCounter, approval tool.ApprovalOptions) *tool.Set {
	t.Helper()
	approval.Required = true
	all := []tool.Tool{c.newTool("free", false), c.newTool("safe", true), tool.WithSettings(numberTool{c.newTool("send", false)}, tool.Settings{Approval: approval})}
	set, err := tool.NewSet(all, tool.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newAnnouncedInvocation returns a turn in which the model called these tools, each with the arguments {"n":1}.
func newAnnouncedInvocation(names ...string) agent.Invocation {
	inv := newInvocation("go")
	msg := agentsvc.Message{ID: "m2", Role: agentsvc.RoleAgent}
	for _, name := range names {
		msg.ToolCalls = append(msg.ToolCalls, agentsvc.ToolCall{ID: agentsvc.CallID("c-" + name), Name: name, Arguments: json.RawMessage(`{"n":1}`)})
	}
	inv.Conversation = append(inv.Conversation, agentsvc.Entry{Message: &msg})
	inv.Steps = 1
	return inv
}

// TestApproval checks that calls without approval run first, and that the turn then ends until a human decides.
func TestApproval(t *testing.T) {
	t.Parallel()
	c := &callCounter{}
	m := newScriptedModel(t, newRule(scripted.When{}, newCallItems("send", "free", "send")...))
	a := agent.NewLLM(m, agent.Options{Tools: newApprovalTools(t, c, tool.ApprovalOptions{Prompt: "Really send?", Timeout: time.Hour})})
	got, err := runToLines(t.Context(), a, newInvocation("go"))
	want := []string{
		"usage", `message  send{"n":0} free{"n":1} send{"n":2}`, `result free false free{"n":1}`,
		`approval call send{"n":0} Really send?`, `approval call send{"n":2} Really send?`, "input_required ",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string]int{"free": 1}, c.ran); diff != "" || len(m.reqs) != 1 {
		t.Errorf("%d model calls, tools that ran:\n%s", len(m.reqs), diff)
	}
	for ev := range a.Run(t.Context(), newInvocation("go")) {
		if ev.Approval != nil && ev.Approval.Timeout != time.Hour {
			t.Errorf("%+v", ev.Approval)
		}
	}
}

// TestApprovalOfNothing checks that a call that cannot run needs no approval.
func TestApprovalOfNothing(t *testing.T) {
	t.Parallel()
	m := newScriptedModel(t,
		newRule(scripted.When{ToolResult: "send"}, scripted.Item{Text: "I see."}),
		newRule(scripted.When{}, scripted.Item{Call: &scripted.Call{Tool: "send", Arguments: map[string]any{"n": "one"}}}))
	got, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newApprovalTools(t, &callCounter{}, tool.ApprovalOptions{})}), newInvocation("go"))
	if err != nil || got[len(got)-1] != "completed I see." {
		t.Errorf("%q (%v)", got, err)
	}
}

// TestRecover continues where an earlier attempt was stopped after announcing calls. Calls with a result do not run
// again, idempotent ones do, and a human is asked about the others before the model is called.
func TestRecover(t *testing.T) {
	t.Parallel()
	c := &callCounter{}
	m := newScriptedModel(t, newRule(scripted.When{}, scripted.Item{Text: "Done."}))
	a := agent.NewLLM(m, agent.Options{Tools: newToolSet(t, c.newTool("done", true), c.newTool("again", true), c.newTool("once", false))})
	inv := newAnnouncedInvocation("once", "done", "again", "gone")
	inv.Conversation = append(inv.Conversation, agentsvc.Entry{Result: &agentsvc.ToolResult{Call: "c-done", Name: "done", Text: "kept"}})
	got, err := runToLines(t.Context(), a, inv)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got[:2]) // concurrent
	want := []string{
		`result again false again{"n":1}`, `result gone true there is no tool "gone"; the tools are done, again, once`,
		`approval rerun once{"n":1} A call of once was interrupted, and whether it took effect is unknown. Run it again?`, "input_required ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"again": 1}, c.ran); diff != "" {
		t.Errorf("tools that ran:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"t1/c-again"}, c.steps); diff != "" || len(m.reqs) != 0 {
		t.Errorf("%d model calls\n%s", len(m.reqs), diff)
	}
	// Calls of earlier turns are not resumed.
	clear(c.ran)
	inv.Conversation = append(inv.Conversation[:2:2], newUserEntry("next"))
	if _, err := runToLines(t.Context(), a, inv); err != nil || len(c.ran) != 0 {
		t.Errorf("ran %v of an earlier turn (%v)", c.ran, err)
	}
}

// TestDecided continues after decisions: an approved call runs with the approved arguments, after a Call event, and the
// model is not asked again.
func TestDecided(t *testing.T) {
	t.Parallel()
	one, two := json.RawMessage(`{"n":1}`), json.RawMessage(`{"n":2}`)
	agreed := &agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(one)}
	begun := &agentsvc.ToolCall{ID: "c-send", Name: "send", Arguments: two}
	for name, c := range map[string]struct {
		tool    string
		settled agent.CallState
		want    []string
		ran     int
	}{
		"approved": {"send", agent.CallState{Decision: agreed}, []string{`call send{"n":1}`, `result send false send{"n":1}`, "chunks Done.", "usage", "completed Done."}, 1},
		"edited": {"send", agent.CallState{Decision: &agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Arguments: two, Hash: agentsvc.HashArguments(two)}}, []string{
			`call send{"n":2}`, `result send false send{"n":2}`, "chunks Done.", "usage", "completed Done.",
		}, 1},
		"approved something else": {"send", agent.CallState{Decision: &agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(two)}}, []string{
			`approval call send{"n":1} May send run?`, "input_required ",
		}, 0},
		"nobody asked": {"send", agent.CallState{}, []string{`approval call send{"n":1} May send run?`, "input_required "}, 0},
		"interrupted after it was approved": {"send", agent.CallState{Begun: begun}, []string{
			`approval rerun send{"n":2} A call of send was interrupted, and whether it took effect is unknown. Run it again?`, "input_required ",
		}, 0},
		"run again": {"send", agent.CallState{Begun: begun, Decision: &agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(two)}}, []string{
			`call send{"n":2}`, `result send false send{"n":2}`, "chunks Done.", "usage", "completed Done.",
		}, 1},
		"a rerun of what needs no approval": {"free", agent.CallState{Decision: agreed}, []string{`call free{"n":1}`, `result free false free{"n":1}`, "chunks Done.", "usage", "completed Done."}, 1},
		"its credential is there":           {"free", agent.CallState{Supplied: true}, []string{`call free{"n":1}`, `result free false free{"n":1}`, "chunks Done.", "usage", "completed Done."}, 1},
		"approved, and its credential is there": {"send", agent.CallState{Decision: agreed, Supplied: true}, []string{
			`call send{"n":1}`, `result send false send{"n":1}`, "chunks Done.", "usage", "completed Done.",
		}, 1},
		"its credential is there, and nobody was asked": {"send", agent.CallState{Supplied: true}, []string{`approval call send{"n":1} May send run?`, "input_required "}, 0},
		"begun without its credential, which is there now": {"send", agent.CallState{Begun: begun, Supplied: true}, []string{
			`call send{"n":2}`, `result send false send{"n":2}`, "chunks Done.", "usage", "completed Done.",
		}, 1},
		"interrupted, but may be repeated": {"safe", agent.CallState{Begun: begun}, []string{`result safe false safe{"n":2}`, "chunks Done.", "usage", "completed Done."}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := &callCounter{}
			m := newScriptedModel(t, newRule(scripted.When{}, scripted.Item{Text: "Done."}))
			inv := newAnnouncedInvocation(c.tool)
			inv.CallStates = map[agent.CallKey]agent.CallState{{Call: agentsvc.CallID("c-" + c.tool)}: c.settled}
			got, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newApprovalTools(t, count, tool.ApprovalOptions{})}), inv)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			if count.ran[c.tool] != c.ran || len(m.reqs) != min(c.ran, 1) {
				t.Errorf("ran %v, %d model calls", count.ran, len(m.reqs))
			}
			// A decision about a call in another frame does not apply to this call.
			inv.Frame = "elsewhere"
			got, _ = runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newApprovalTools(t, count, tool.ApprovalOptions{})}), inv)
			if c.settled.Decision != nil && got[len(got)-1] != "input_required " {
				t.Errorf("elsewhere %q", got)
			}
		})
	}
}

// shopCredential is the credential that the tool shop needs of its caller.
var shopCredential = &tool.CredentialProvider{Credential: agentsvc.Credential{Tool: "shop", Header: "X-Key", Server: "https://shop.example.com"}, Prompt: "Your key?"}

// TestWanting checks that a call without its caller's credential asks for it, together with other calls that run, and
// only a bounded number of times.
func TestWanting(t *testing.T) {
	t.Parallel()
	buy := funcTool{name: "buy", call: func(context.Context, tool.Call) (string, error) {
		return "", &tool.CredentialError{CredentialProvider: shopCredential}
	}}
	for name, c := range map[string]struct {
		inv  agent.Invocation
		want []string
	}{
		"announced now": {newInvocation("go"), []string{
			"usage", `message  buy{"n":0} echo{"n":1} buy{"n":2}`, `result echo false echo{"n":1}`,
			`approval credential buy{"n":0} Your key?`, `approval credential buy{"n":2} Your key?`, "auth_required ",
		}},
		"interrupted": {newAnnouncedInvocation("buy"), []string{
			`approval rerun buy{"n":1} A call of buy was interrupted, and whether it took effect is unknown. Run it again?`, "input_required ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newScriptedModel(t, newRule(scripted.When{}, newCallItems("buy", "echo", "buy")...))
			got, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newToolSet(t, buy, newEchoTool("echo"))}), c.inv)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	inv := newInvocation("go")
	inv.CredentialRequests = map[string]int{"shop": 3}
	m := newScriptedModel(t, newRule(scripted.When{ToolResult: "buy"}, scripted.Item{Text: "{{result}}"}), newRule(scripted.When{}, newCallItems("buy")...))
	got, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newToolSet(t, buy)}), inv)
	if want := "completed shop needs a credential of its caller that https://shop.example.com accepts; 3 were supplied in this turn"; err != nil || got[len(got)-1] != want {
		t.Errorf("%q, %v", got, err)
	}
}

// credentialSource is a server that lists its tools only to a caller with a credential.
type credentialSource struct{ open bool }

func (*credentialSource) Name() string { return "tools.shop" }
func (s *credentialSource) ListTools(context.Context, agentsvc.SessionKey) ([]tool.Tool, error) {
	if !s.open {
		return nil, &tool.CredentialError{CredentialProvider: shopCredential}
	}
	return nil, nil
}

// TestWantingTools checks that a turn whose tools cannot be listed asks for the credential before it calls the model.
func TestWantingTools(t *testing.T) {
	t.Parallel()
	g := &credentialSource{}
	set, err := tool.NewSet(nil, tool.Options{Sources: []tool.Source{g}})
	if err != nil {
		t.Fatal(err)
	}
	m := newScriptedModel(t, newRule(scripted.When{}, scripted.Item{Text: "Hello."}))
	a := agent.NewLLM(m, agent.Options{Tools: set})
	got, err := runToLines(t.Context(), a, newInvocation("go"))
	if diff := cmp.Diff([]string{"approval credential shop Your key?", "auth_required "}, got); err != nil || diff != "" || len(m.reqs) != 0 {
		t.Errorf("%v, %d model calls\n%s", err, len(m.reqs), diff)
	}
	inv := newInvocation("go")
	inv.CredentialRequests = map[string]int{"shop": 3}
	if _, err := runToLines(t.Context(), a, inv); !errors.Is(err, agentsvc.CodeInvalid) {
		t.Errorf("after three: %v", err)
	}
	g.open = true
	if got, err = runToLines(t.Context(), a, newInvocation("go")); err != nil || got[len(got)-1] != "completed Hello." {
		t.Errorf("%q, %v", got, err)
	}
}

// TestDecidedStops checks that an approved call does not run if its Call event was not recorded.
func TestDecidedStops(t *testing.T) {
	t.Parallel()
	c := &callCounter{}
	inv := newAnnouncedInvocation("send")
	inv.CallStates = map[agent.CallKey]agent.CallState{{Call: "c-send"}: {
		Decision: &agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(json.RawMessage(`{"n":1}`))},
	}}
	m := newScriptedModel(t, newRule(scripted.When{}, scripted.Item{Text: "Done."}))
	for ev := range agent.NewLLM(m, agent.Options{Tools: newApprovalTools(t, c, tool.ApprovalOptions{})}).Run(t.Context(), inv) {
		if ev.Call == nil {
			t.Errorf("got %s first", formatEvent(ev))
		}
		break
	}
	if len(m.reqs) != 0 || len(c.ran) != 0 {
		t.Errorf("ran %v, %d model calls", c.ran, len(m.reqs))
	}
}

// TestCancelCall checks that a user can cancel one call, and that the agent continues with the other results and that
// failure.
func TestCancelCall(t *testing.T) {
	t.Parallel()
	hang := funcTool{name: "hang", call: func(ctx context.Context, _ tool.Call) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}}
	m := newScriptedModel(t, newRule(scripted.When{ToolResult: "echo"}, scripted.Item{Text: "Done."}), newRule(scripted.When{}, newCallItems("hang", "echo")...))
	inv := newInvocation("go")
	var mu sync.Mutex
	running := map[agentsvc.CallID]context.CancelCauseFunc{}
	inv.RegisterCall = func(call agentsvc.CallID, stop context.CancelCauseFunc) func() {
		mu.Lock()
		defer mu.Unlock()
		running[call] = stop
		return func() {
			mu.Lock()
			defer mu.Unlock()
			delete(running, call)
		}
	}
	delayedEcho := newEchoTool("echo")
	answer := delayedEcho.call
	delayedEcho.call = func(ctx context.Context, in tool.Call) (string, error) {
		time.AfterFunc(100*time.Millisecond, func() { // the other call has answered and this one hangs
			mu.Lock()
			defer mu.Unlock()
			for _, stop := range running {
				stop(&agentsvc.CallCancelledError{Reason: "too slow"})
			}
		})
		return answer(ctx, in)
	}
	got, err := runToLines(t.Context(), agent.NewLLM(m, agent.Options{Tools: newToolSet(t, hang, delayedEcho)}), inv)
	want := []string{
		"usage", `message  hang{"n":0} echo{"n":1}`, `result echo false echo{"n":1}`, "result hang true cancelled by user: too slow",
		"chunks Done.", "usage", "completed Done.",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(running) != 0 {
		t.Errorf("%v, still running %v\n%s", err, running, diff)
	}
}
