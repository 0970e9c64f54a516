package runner_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/tool"
	"stoa/tenancy/db"
)

// sender calls send twice and free once when told to send, and then tells of the results.
func sender(t *testing.T) *model {
	send := func(n int) scripted.Item {
		return scripted.Item{Call: &scripted.Call{Tool: "send", Arguments: map[string]any{"n": n}}}
	}
	return script(t,
		scripted.Rule{When: scripted.When{ToolResult: "send"}, Then: []scripted.Item{{Say: "Sent."}}},
		scripted.Rule{When: scripted.When{ToolResult: "free"}, Then: []scripted.Item{{Say: "Free."}}},
		scripted.Rule{When: scripted.When{Text: "^one$"}, Then: []scripted.Item{send(1)}},
		scripted.Rule{When: scripted.When{Text: "^both$"}, Then: []scripted.Item{send(1), {Call: &scripted.Call{Tool: "free", Arguments: map[string]any{}}}, send(2)}},
		scripted.Rule{When: scripted.When{Text: "^ask$"}, Then: []scripted.Item{{Ask: "Which one?"}}},
	)
}

// post is a tool that keeps what it was called with.
type post struct {
	name string
	hang bool
	mu   sync.Mutex
	sent []string
}

func (p *post) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{Name: p.name, Parameters: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
}
func (*post) Idempotent() bool { return false }
func (p *post) Call(ctx context.Context, in tool.Input) (string, error) {
	p.mu.Lock()
	p.sent = append(p.sent, string(in.Arguments))
	p.mu.Unlock()
	if p.hang {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "sent " + string(in.Arguments), nil
}

func (p *post) calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.sent)
	return slices.Clone(p.sent)
}

// office opens a house whose agent a needs approval to send.
func office(t *testing.T, d *db.DB, m *model, send *post, timeout time.Duration) *house {
	t.Helper()
	send.name = "send"
	set, err := tool.NewSet([]tool.Tool{
		tool.With(send, tool.Settings{Approval: tool.Approval{Required: true, Prompt: "Really send?", Timeout: timeout}}), &post{name: "free"},
	}, tool.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	inside := agent.NewLLM(m, agent.Options{Tools: set})
	h := build(d, quick, map[string]agent.Agent{"a": inside, "team": agent.NewSequential([]agent.Member{{Name: "inner", Agent: inside}}, agent.GroupOptions{})})
	h.Service = task.New(h.st, "acme", 1, task.NewHub(nil), h.pool, slog.New(slog.NewTextHandler(io.Discard, nil)), task.Options{
		Check: set.Check,
	})
	h.rewire()
	h.start(t)
	return h
}

// wait follows a task until it has ended or waits for somebody.
func (h *house) wait(t *testing.T, id agentsvc.TaskID) agentsvc.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, evs, err := h.Follow(ctx, task.Reach{}, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Status.State; s.Terminal() || s.Interrupted() {
		return got
	}
	for ev, err := range evs {
		if err != nil {
			t.Fatal(err)
		}
		if got.Apply(ev); ev.Status != nil && (ev.Status.State.Terminal() || ev.Status.State.Interrupted()) {
			break
		}
	}
	return got
}

// waiting reads what a task waits for.
func (h *house) waiting(t *testing.T, id agentsvc.TaskID) []agentsvc.Approval {
	t.Helper()
	got, err := h.Get(t.Context(), reach, id, store.With{Approvals: true})
	if err != nil {
		t.Fatal(err)
	}
	return got.Approvals
}

func approve(call agentsvc.CallID) task.Ruling {
	return task.Ruling{Call: call, Verdict: agentsvc.Approve}
}

var boss = agentsvc.Owner{Issuer: "stoa", Subject: "boss"}

// TestApprove: a call that needs approval waits, survives its process, and runs once when a human agrees; the model is
// not asked again for what it has asked.
func TestApprove(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m, tools := sender(t), &post{}
		h := office(t, d, m, tools, 0)
		got, facts := h.call(t, send("one"))
		want := []string{"submitted", "working", "usage", "message", "approval", "input_required"}
		if diff := cmp.Diff(want, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		question := got.Status.Message
		asked, _ := question.Parts[1].Data.Value.(map[string]any)
		if question.Text() != "Really send?" || asked["type"] != "tool_approval" || asked["tool"] != "send" || asked["kind"] != "call" {
			t.Errorf("asked %+v", question)
		}
		open := h.waiting(t, got.ID)
		if len(open) != 1 || string(open[0].Call.ID) != asked["call_id"] || string(open[0].Call.Arguments) != `{"n":1}` {
			t.Fatalf("open: %+v", open)
		}
		if state, _, _ := h.row(t, got.ID, 1); state != store.InputRequired || len(tools.calls()) != 0 || len(h.talk(t)) != 0 {
			t.Errorf("the run is %s, sent %v", state, tools.calls())
		}
		text := send("yes, do it")
		text.Message.Task = got.ID
		if _, err := h.Submit(t.Context(), text); !errors.Is(err, agentsvc.ErrUndecided) {
			t.Errorf("a plain answer: %v", err)
		}
		h.stop(t)

		later, again := sender(t), &post{}
		there := office(t, d, later, again, 0)
		now, err := there.Decide(t.Context(), reach, got.ID, boss, task.Ruling{Verdict: agentsvc.Approve, Comment: "fine"})
		if err != nil || now.Status.State != agentsvc.Working || now.Approvals != nil {
			t.Fatalf("decided: %+v (%v)", now, err)
		}
		if _, err := there.Decide(t.Context(), reach, got.ID, boss, approve(open[0].Call.ID)); !errors.Is(err, agentsvc.ErrDecided) && !errors.Is(err, agentsvc.ErrTerminal) {
			t.Errorf("decided again: %v", err)
		}
		end := there.wait(t, got.ID)
		if end.Status.State != agentsvc.Completed || end.Status.Message.Text() != "Sent." || len(end.Status.Message.ToolCalls) != 1 {
			t.Errorf("%s: %+v", end.Status.State, end.Status.Message)
		}
		if diff := cmp.Diff([]string{`{"n":1}`}, append(tools.calls(), again.calls()...)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"2/1"}, later.steps()); diff != "" {
			t.Errorf("asked after the decision\n%s", diff)
		}
		if diff := cmp.Diff([]string{"user: one", "agent calls: ", `result: sent {"n":1}`, "agent: Sent."}, there.talk(t)); diff != "" {
			t.Error(diff)
		}
		log, err := h.st.Events(t.Context(), got.ID, 6, 100)
		if diff := cmp.Diff([]string{"approve", "working", "call", "result", "usage", "completed"}, kinds(log)); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if by := log[0].Decision; by.By != boss || by.Comment != "fine" || by.Hash != agentsvc.HashArguments(open[0].Call.Arguments) {
			t.Errorf("on record %+v", by)
		}
		for turn, want := range map[int]store.RunState{1: store.InputRequired, 2: store.Completed} {
			if state, _, _ := h.row(t, got.ID, turn); state != want {
				t.Errorf("run %d is %s, want %s", turn, state, want)
			}
		}
	})
}

// TestApproveSeveral: the turn goes on when all are decided, with what each was decided to run with.
func TestApproveSeveral(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m, tools := sender(t), &post{}
		h := office(t, d, m, tools, 0)
		got, facts := h.call(t, send("both"))
		if diff := cmp.Diff([]string{"submitted", "working", "usage", "message", "result", "approval", "approval", "input_required"}, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		open := h.waiting(t, got.ID)
		var invalid *agentsvc.InvalidError
		for name, r := range map[string]task.Ruling{
			"no call named":         {Verdict: agentsvc.Approve},
			"against the schema":    {Call: open[0].Call.ID, Verdict: agentsvc.Approve, Arguments: []byte(`{"n":"x"}`)},
			"no object":             {Call: open[0].Call.ID, Verdict: agentsvc.Approve, Arguments: []byte(`[1]`)},
			"arguments to a reject": {Call: open[0].Call.ID, Verdict: agentsvc.Reject, Arguments: []byte(`{"n":1}`)},
		} {
			if _, err := h.Decide(t.Context(), reach, got.ID, boss, r); !errors.As(err, &invalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, approve("nosuchcall")); !errors.As(err, &invalid) || !strings.Contains(err.Error(), string(open[0].Call.ID)+" (send), "+string(open[1].Call.ID)) {
			t.Errorf("an unknown call: %v", err)
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, approve(open[0].Call.ID), approve(open[0].Call.ID)); !errors.As(err, &invalid) {
			t.Errorf("twice at once: %v", err)
		}
		if diff := cmp.Diff(open, h.waiting(t, got.ID)); diff != "" {
			t.Fatalf("a refused decision changed\n%s", diff)
		}
		edited := approve(open[1].Call.ID)
		edited.Arguments = []byte(`{"n":20}`)
		now, err := h.Decide(t.Context(), reach, got.ID, boss, edited)
		if err != nil || now.Status.State != agentsvc.InputRequired || len(now.Approvals) != 1 || len(now.Status.Message.Parts) != 2 {
			t.Fatalf("after one: %+v (%v)", now, err)
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, edited); !errors.Is(err, agentsvc.ErrDecided) {
			t.Errorf("decided again: %v", err)
		}
		if len(tools.calls()) != 0 {
			t.Errorf("sent %v before all was decided", tools.calls())
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, approve("")); err != nil {
			t.Fatal(err)
		}
		end := h.wait(t, got.ID)
		if diff := cmp.Diff([]string{`{"n":1}`, `{"n":20}`}, tools.calls()); diff != "" || end.Status.State != agentsvc.Completed {
			t.Errorf("%s, sent\n%s", end.Status.State, diff)
		}
		var told []string
		for _, c := range end.Status.Message.ToolCalls {
			told = append(told, c.Name+string(c.Arguments))
		}
		if diff := cmp.Diff([]string{`send{"n":1}`, "free{}", `send{"n":20}`}, told); diff != "" {
			t.Error(diff)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.reqs) != 2 {
			t.Fatalf("asked %d times, the task is %+v", len(m.reqs), end.Status)
		}
		if asked := m.reqs[1].Conversation[1].Message; string(asked.ToolCalls[2].Arguments) != `{"n":20}` {
			t.Errorf("asked %+v", asked)
		}
	})
}

// TestReject: one reject ends the task, nothing of what waited runs, and there is nothing left to decide.
func TestReject(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m, tools := sender(t), &post{}
		h := office(t, d, m, tools, 0)
		got, _ := h.call(t, send("both"))
		open := h.waiting(t, got.ID)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, evs, err := h.Follow(ctx, reach, got.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Decide(ctx, reach, got.ID, boss, approve(open[0].Call.ID)); err != nil {
			t.Fatal(err)
		}
		now, err := h.Decide(ctx, reach, got.ID, boss, task.Ruling{Verdict: agentsvc.Reject, Comment: "too late"})
		if err != nil || now.Status.State != agentsvc.Rejected || now.Status.Message.Text() != "The call of send was rejected: too late." {
			t.Errorf("%+v (%v)", now.Status, err)
		}
		var facts []agentsvc.Event
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			facts = append(facts, ev)
		}
		if diff := cmp.Diff([]string{"approve", "input_required", "reject", "rejected"}, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		if _, err := h.Decide(ctx, reach, got.ID, boss, approve("")); !errors.Is(err, agentsvc.ErrTerminal) {
			t.Errorf("decided after the end: %v", err)
		}
		if state, _, _ := h.row(t, got.ID, 1); state != store.Completed || len(tools.calls()) != 0 || len(m.steps()) != 1 {
			t.Errorf("the run is %s, sent %v, asked %v", state, tools.calls(), m.steps())
		}
	})
}

// TestDecideAtOnce: of decisions made at once one counts.
func TestDecideAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		tools := &post{}
		h := office(t, d, sender(t), tools, 0)
		for range 5 {
			got, _ := h.call(t, send("one"))
			var won, late atomic.Int64
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					r := task.Ruling{Verdict: []agentsvc.Verdict{agentsvc.Approve, agentsvc.Reject}[i%2]}
					switch _, err := h.Decide(t.Context(), reach, got.ID, boss, r); {
					case err == nil:
						won.Add(1)
					case errors.Is(err, agentsvc.ErrDecided), errors.Is(err, agentsvc.ErrTerminal):
						late.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 || late.Load() != 5 {
				t.Errorf("%d won, %d were late", won.Load(), late.Load())
			}
			h.wait(t, got.ID)
		}
	})
}

// TestCancelledAtOnce: who decides on a call while its task is cancelled is told that it is over, not that the call never
// was.
func TestCancelledAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		h := office(t, d, sender(t), &post{}, 0)
		for range 100 {
			got, _ := h.call(t, send("one"))
			call := h.waiting(t, got.ID)[0].Call.ID
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = h.Cancel(t.Context(), reach, got.ID) })
			for range 3 {
				wg.Go(func() {
					_, err := h.Decide(t.Context(), reach, got.ID, boss, task.Ruling{Call: call, Verdict: agentsvc.Reject})
					if err != nil && !errors.Is(err, agentsvc.ErrDecided) && !errors.Is(err, agentsvc.ErrTerminal) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
	})
}

// TestDecideByMessage: decisions come by messages as well, several in one, and a message that comes twice decides once.
func TestDecideByMessage(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		tools := &post{}
		h := office(t, d, sender(t), tools, 0)
		got, _ := h.call(t, send("both"))
		sub := task.Submission{Agent: "a", Owner: boss, Message: agentsvc.Message{ID: "m-decide", Task: got.ID, Parts: []agentsvc.Part{agentsvc.TextPart("go ahead")}}}
		for _, a := range h.waiting(t, got.ID) {
			value := map[string]any{"type": "tool_approval", "call_id": string(a.Call.ID), "decision": "approve"}
			sub.Message.Parts = append(sub.Message.Parts, agentsvc.Part{Data: &agentsvc.Data{Value: value}})
		}
		var err error
		if sub.Rulings, err = task.Rulings(&sub.Message); err != nil || len(sub.Rulings) != 2 || sub.Rulings[1].Comment != "go ahead" {
			t.Fatalf("%+v (%v)", sub.Rulings, err)
		}
		_, facts := h.call(t, sub)
		want := []string{"approve", "approve", "working", "call", "call", "result", "result", "usage", "completed"}
		if diff := cmp.Diff(want, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		_, again := h.call(t, sub)
		if diff := cmp.Diff(facts, again); diff != "" {
			t.Errorf("told again\n%s", diff)
		}
		sub.Message.Parts = sub.Message.Parts[1:]
		if _, err := h.Submit(t.Context(), sub); !errors.Is(err, task.ErrConflict) {
			t.Errorf("the same id with another body: %v", err)
		}
		sub.Message.ID = "another"
		if _, err := h.Submit(t.Context(), sub); !errors.Is(err, agentsvc.ErrTerminal) {
			t.Errorf("another message: %v", err)
		}
		sub.Agent = "team"
		if _, err := h.Submit(t.Context(), sub); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("through another agent: %v", err)
		}
		if len(tools.calls()) != 2 {
			t.Errorf("sent %v", tools.calls())
		}
	})
}

// TestRejectByMessage: whoever listens while rejecting is told the end, and one decision of several that the task waits on.
func TestRejectByMessage(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		h := office(t, d, sender(t), &post{}, 0)
		got, _ := h.call(t, send("both"))
		open := h.waiting(t, got.ID)
		decide := func(call agentsvc.CallID, verdict agentsvc.Verdict) task.Submission {
			return task.Submission{
				Agent: "a", Owner: boss, Rulings: []task.Ruling{{Call: call, Verdict: verdict}},
				Message: agentsvc.Message{Task: got.ID, Parts: []agentsvc.Part{{Data: &agentsvc.Data{}}}},
			}
		}
		_, facts := h.call(t, decide(open[0].Call.ID, agentsvc.Approve))
		if diff := cmp.Diff([]string{"approve", "input_required"}, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		_, evs, err := h.Call(t.Context(), decide(open[1].Call.ID, agentsvc.Reject))
		if err != nil {
			t.Fatal(err)
		}
		facts = nil
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			facts = append(facts, ev)
		}
		if diff := cmp.Diff([]string{"reject", "rejected"}, kinds(facts)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestApproveInside: a call of an agent inside another one waits at the task, and goes on where it stopped.
func TestApproveInside(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m, tools := sender(t), &post{}
		h := office(t, d, m, tools, 0)
		sub := send("one")
		sub.Agent = "team"
		got, _ := h.call(t, sub)
		open := h.waiting(t, got.ID)
		if len(open) != 1 || open[0].Frame != "inner" {
			t.Fatalf("open: %+v", open)
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, approve("")); err != nil {
			t.Fatal(err)
		}
		end := h.wait(t, got.ID)
		if end.Status.State != agentsvc.Completed || end.Status.Message.Text() != "Sent." || len(tools.calls()) != 1 || len(m.steps()) != 2 {
			t.Errorf("%s: %q, sent %v, asked %v", end.Status.State, end.Status.Message.Text(), tools.calls(), m.steps())
		}
	})
}

// TestTimeout: a task that nobody decides on in time is rejected, by whichever process is there.
func TestTimeout(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m, tools := sender(t), &post{}
		h := office(t, d, m, tools, 200*time.Millisecond)
		got, _ := h.call(t, send("one"))
		h.stop(t)
		there := office(t, d, m, tools, time.Hour)
		other, _ := there.call(t, send("one"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, evs, err := there.Follow(ctx, reach, got.ID, new(int64))
		if err != nil {
			t.Fatal(err)
		}
		var last agentsvc.Event
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			last = ev
		}
		if st := last.Status; st.State != agentsvc.Rejected || st.Message.Text() != "Nobody decided about the call of send within 200ms." {
			t.Errorf("%+v", st)
		}
		if state, _, _ := h.row(t, got.ID, 1); state != store.Completed || len(tools.calls()) != 0 {
			t.Errorf("the run is %s, sent %v", state, tools.calls())
		}
		if still, err := there.Get(ctx, reach, other.ID, store.With{Approvals: true}); err != nil || len(still.Approvals) != 1 {
			t.Errorf("the other task: %+v (%v)", still, err)
		}
	})
}

// TestInterruptedAfterApproval: a process stops in the middle of a call that was approved. Whether it took effect is
// unknown, so a human is asked again.
func TestInterruptedAfterApproval(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m, hangs, tools := sender(t), &post{hang: true}, &post{}
		h := office(t, d, m, hangs, 0)
		got, _ := h.call(t, send("one"))
		edited := approve("")
		edited.Arguments = []byte(`{"n":5}`)
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, edited); err != nil {
			t.Fatal(err)
		}
		for len(hangs.calls()) == 0 {
			time.Sleep(time.Millisecond)
		}
		h.stop(t)
		there := office(t, d, m, tools, 0)
		asked := there.wait(t, got.ID)
		open := there.waiting(t, got.ID)
		if asked.Status.State != agentsvc.InputRequired || len(open) != 1 || open[0].Kind != agentsvc.ApproveRerun || string(open[0].Call.Arguments) != `{"n":5}` {
			t.Fatalf("%s, open: %+v", asked.Status.State, open)
		}
		if _, err := there.Decide(t.Context(), reach, got.ID, boss, approve("")); err != nil {
			t.Fatal(err)
		}
		if end := there.wait(t, got.ID); end.Status.State != agentsvc.Completed {
			t.Errorf("%+v", end.Status)
		}
		if diff := cmp.Diff([]string{`{"n":5}`}, tools.calls()); diff != "" || len(hangs.calls()) != 1 || len(m.steps()) != 2 {
			t.Errorf("hung %v, asked %v, sent\n%s", hangs.calls(), m.steps(), diff)
		}
	})
}

// TestCancelCall: one running call ends, the agent goes on, and a call that does not run cannot be cancelled.
func TestCancelCall(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		hangs := &post{hang: true}
		h := office(t, d, sender(t), hangs, 0)
		got, _ := h.call(t, send("one"))
		call := h.waiting(t, got.ID)[0].Call.ID
		if err := h.CancelCall(t.Context(), reach, got.ID, call, ""); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("before it runs: %v", err)
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, approve("")); err != nil {
			t.Fatal(err)
		}
		for len(hangs.calls()) == 0 {
			time.Sleep(time.Millisecond)
		}
		stranger := task.Reach{Owner: &boss}
		for name, err := range map[string]error{
			"a stranger": h.CancelCall(t.Context(), stranger, got.ID, call, ""), "another call": h.CancelCall(t.Context(), reach, got.ID, "x", ""),
			"another task": h.CancelCall(t.Context(), reach, "x", call, ""),
		} {
			if !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.CancelCall(t.Context(), reach, got.ID, call, "too slow"); err != nil {
			t.Fatal(err)
		}
		end := h.wait(t, got.ID)
		want := []string{"user: one", "agent calls: ", "result: cancelled by user: too slow", "agent: Sent."}
		if diff := cmp.Diff(want, h.talk(t)); diff != "" || end.Status.State != agentsvc.Completed {
			t.Errorf("%s\n%s", end.Status.State, diff)
		}
		if err := h.CancelCall(t.Context(), reach, got.ID, call, ""); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// stubborn is a tool that does not listen.
type stubborn struct{ free chan struct{} }

func (stubborn) Spec() agentsvc.ToolSpec { return agentsvc.ToolSpec{Name: "look"} }
func (stubborn) Idempotent() bool        { return false }
func (s stubborn) Call(context.Context, tool.Input) (string, error) {
	<-s.free
	return "late", nil
}

// TestCancelInTime: within a second of a cancellation, made in this process or in another, model and tool are stopped
// and the worker is free. A busy machine may need several tries.
func TestCancelInTime(t *testing.T) {
	for _, text := range []string{"slow", "look"} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(text+map[bool]string{true: " elsewhere"}[elsewhere], func(t *testing.T) {
				each(t, func(t *testing.T, d *db.DB) {
					free := make(chan struct{})
					defer close(free)
					set, err := tool.NewSet([]tool.Tool{stubborn{free}}, tool.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
					if err != nil {
						t.Fatal(err)
					}
					agents := map[string]agent.Agent{"a": agent.NewLLM(talker(t), agent.Options{Tools: set})}
					h := open(t, d, queue.Retry{}, agents)
					at := h
					limit := time.Second
					if elsewhere {
						at = build(d, quick, agents)
						limit += time.Second // a busy machine
					}
					var took []time.Duration
					for range 5 {
						took = append(took, stops(t, h, at, text))
						if took[len(took)-1] <= limit {
							return
						}
					}
					t.Errorf("the worker was free after %v", took)
				})
			})
		}
	}
}

// stops has h work on a task until it is cancelled through at, and returns how long that takes.
func stops(t *testing.T, h, at *house, text string) time.Duration {
	t.Helper()
	sub := send(text)
	sub.Live = true
	got, err := h.Submit(t.Context(), sub)
	for err == nil && text == "look" && got.Seq < 4 {
		got, err = h.Get(t.Context(), reach, got.ID, store.With{})
	}
	if err == nil {
		_, err = at.Cancel(t.Context(), reach, got.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for h.pool.Inflight() > 0 {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%d runs are at work", h.pool.Inflight())
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}
