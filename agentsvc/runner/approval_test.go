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
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// newSenderModel returns a model that calls send twice and free once when it is asked to send, and then reports the
// results.
func newSenderModel(t *testing.T) *model {
	send := func(n int) scripted.Item {
		return scripted.Item{Call: &scripted.Call{Tool: "send", Arguments: map[string]any{"n": n}}}
	}
	return newScriptedModel(t,
		scripted.Rule{When: scripted.When{ToolResult: "send"}, Then: []scripted.Item{{Text: "Sent."}}},
		scripted.Rule{When: scripted.When{ToolResult: "free"}, Then: []scripted.Item{{Text: "Free."}}},
		scripted.Rule{When: scripted.When{Text: "^one$"}, Then: []scripted.Item{send(1)}},
		scripted.Rule{When: scripted.When{Text: "^both$"}, Then: []scripted.Item{send(1), {Call: &scripted.Call{Tool: "free", Arguments: map[string]any{}}}, send(2)}},
		scripted.Rule{When: scripted.When{Text: "^ask$"}, Then: []scripted.Item{{Question: "Which one?"}}},
	)
}

// recordingTool is a tool that records its arguments.
type recordingTool struct {
	name string
	hang bool
	mu   sync.Mutex
	sent []string
}

func (t *recordingTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{Name: t.name, Parameters: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
}
func (*recordingTool) IsIdempotent() bool { return false }
func (t *recordingTool) Call(ctx context.Context, in tool.Call) (string, error) {
	t.mu.Lock()
	t.sent = append(t.sent, string(in.Arguments))
	t.mu.Unlock()
	if t.hang {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "sent " + string(in.Arguments), nil
}

func (t *recordingTool) sortedCalls() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.sent)
	return slices.Clone(t.sent)
}

// startApprovalProcess opens a process whose agent a needs approval to call send.
func startApprovalProcess(t *testing.T, d *db.DB, m *model, send *recordingTool, timeout time.Duration) *testProcess {
	t.Helper()
	send.name = "send"
	set, err := tool.NewSet([]tool.Tool{
		tool.WithSettings(send, tool.Settings{Approval: tool.ApprovalOptions{Required: true, Prompt: "Really send?", Timeout: timeout}}), &recordingTool{name: "free"},
	}, tool.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	inside := agent.NewLLM(m, agent.Options{Tools: set})
	h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": inside, "team": agent.NewSequential([]agent.Member{{Name: "inner", Agent: inside}}, agent.GroupOptions{})})
	h.Service = task.New(h.st, "acme", 1, task.NewHub(nil), h.pool, slog.New(slog.NewTextHandler(io.Discard, nil)), task.Options{
		Check: func(ctx context.Context, _ agentsvc.SessionKey, call agentsvc.ToolCall) error {
			return set.CheckCall(ctx, call)
		},
	})
	h.resetRunner()
	h.startWorking(t)
	return h
}

// waitUntilSettled follows a task until it has ended or waits for its user.
func (p *testProcess) waitUntilSettled(t *testing.T, id agentsvc.TaskID) agentsvc.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, evs, err := p.Reader.Follow(ctx, task.Visibility{}, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Status.State; s.IsTerminal() || s.IsInterrupted() {
		return got
	}
	for ev, err := range evs {
		if err != nil {
			t.Fatal(err)
		}
		if got.ApplyEvent(ev); ev.Status != nil && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted()) {
			break
		}
	}
	return got
}

// loadApprovals returns the open approvals of a task.
func (p *testProcess) loadApprovals(t *testing.T, id agentsvc.TaskID) []agentsvc.Approval {
	t.Helper()
	got, err := p.Reader.Get(t.Context(), anaVisibility, id, store.TaskParts{Approvals: true})
	if err != nil {
		t.Fatal(err)
	}
	return got.Approvals
}

func newApproveInput(call agentsvc.CallID) task.DecisionInput {
	return task.DecisionInput{Call: call, Outcome: agentsvc.OutcomeApproved}
}

var approver = agentsvc.Owner{Issuer: "stoa", Subject: "boss"}

// TestApprove: a call that needs approval waits, survives its process, and runs once when a human approves; the model
// is not asked again for what is recorded.
func TestApprove(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m, tools := newSenderModel(t), &recordingTool{}
		h := startApprovalProcess(t, d, m, tools, 0)
		got, facts := h.submitAndDrain(t, newSubmission("one"))
		want := []string{"submitted", "working", "usage", "message", "approval", "input_required"}
		if diff := cmp.Diff(want, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		question := got.Status.Message
		requested, _ := question.Parts[1].Data.Value.(map[string]any)
		if question.Text() != "Really send?" || requested["type"] != "tool_approval" || requested["tool"] != "send" || requested["kind"] != "call" {
			t.Errorf("asked %+v", question)
		}
		open := h.loadApprovals(t, got.ID)
		if len(open) != 1 || string(open[0].Call.ID) != requested["call_id"] || string(open[0].Call.Arguments) != `{"n":1}` {
			t.Fatalf("open: %+v", open)
		}
		if state, _, _ := h.readRunRow(t, got.ID, 1); state != store.InputRequired || len(tools.sortedCalls()) != 0 || len(h.sessionLines(t)) != 0 {
			t.Errorf("the run is %s, sent %v", state, tools.sortedCalls())
		}
		text := newSubmission("yes, do it")
		text.Message.Task = got.ID
		if _, err := h.Messages.Submit(t.Context(), text); !errors.Is(err, agentsvc.ErrAwaitingDecision) {
			t.Errorf("a plain answer: %v", err)
		}
		h.stopNow(t)

		later, again := newSenderModel(t), &recordingTool{}
		there := startApprovalProcess(t, d, later, again, 0)
		now, err := there.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, task.DecisionInput{Outcome: agentsvc.OutcomeApproved, Comment: "fine"})
		if err != nil || now.Status.State != agentsvc.Working || now.Approvals != nil {
			t.Fatalf("decided: %+v (%v)", now, err)
		}
		if _, err := there.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput(open[0].Call.ID)); !errors.Is(err, agentsvc.ErrNoOpenDecision) && !errors.Is(err, agentsvc.ErrTaskEnded) {
			t.Errorf("decided again: %v", err)
		}
		end := there.waitUntilSettled(t, got.ID)
		if end.Status.State != agentsvc.Completed || end.Status.Message.Text() != "Sent." || len(end.Status.Message.ToolCalls) != 1 {
			t.Errorf("%s: %+v", end.Status.State, end.Status.Message)
		}
		if diff := cmp.Diff([]string{`{"n":1}`}, append(tools.sortedCalls(), again.sortedCalls()...)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"2/1"}, later.requestSteps()); diff != "" {
			t.Errorf("asked after the decision\n%s", diff)
		}
		if diff := cmp.Diff([]string{"user: one", "agent calls: ", `result: sent {"n":1}`, "agent: Sent."}, there.sessionLines(t)); diff != "" {
			t.Error(diff)
		}
		log, err := h.st.Events.Load(t.Context(), nil, got.ID, 6, 100)
		if diff := cmp.Diff([]string{"approve", "working", "call", "result", "usage", "completed"}, eventKinds(log)); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if by := log[0].Decision; by.By != approver || by.Comment != "fine" || by.Hash != agentsvc.HashArguments(open[0].Call.Arguments) {
			t.Errorf("on record %+v", by)
		}
		for turn, want := range map[int]store.RunState{1: store.InputRequired, 2: store.Completed} {
			if state, _, _ := h.readRunRow(t, got.ID, turn); state != want {
				t.Errorf("run %d is %s, want %s", turn, state, want)
			}
		}
	})
}

// TestApproveSeveral: the turn continues when all calls are decided, with the arguments of each decision.
func TestApproveSeveral(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m, tools := newSenderModel(t), &recordingTool{}
		h := startApprovalProcess(t, d, m, tools, 0)
		got, facts := h.submitAndDrain(t, newSubmission("both"))
		if diff := cmp.Diff([]string{"submitted", "working", "usage", "message", "result", "approval", "approval", "input_required"}, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		open := h.loadApprovals(t, got.ID)
		for name, r := range map[string]task.DecisionInput{
			"no call named":         {Outcome: agentsvc.OutcomeApproved},
			"against the schema":    {Call: open[0].Call.ID, Outcome: agentsvc.OutcomeApproved, Arguments: []byte(`{"n":"x"}`)},
			"no object":             {Call: open[0].Call.ID, Outcome: agentsvc.OutcomeApproved, Arguments: []byte(`[1]`)},
			"arguments to a reject": {Call: open[0].Call.ID, Outcome: agentsvc.OutcomeRejected, Arguments: []byte(`{"n":1}`)},
		} {
			if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, r); !errors.Is(err, agentsvc.CodeInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("nosuchcall")); !errors.Is(err, agentsvc.CodeInvalid) || !strings.Contains(err.Error(), string(open[0].Call.ID)+" (send), "+string(open[1].Call.ID)) {
			t.Errorf("an unknown call: %v", err)
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput(open[0].Call.ID), newApproveInput(open[0].Call.ID)); !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("twice at once: %v", err)
		}
		if diff := cmp.Diff(open, h.loadApprovals(t, got.ID)); diff != "" {
			t.Fatalf("a refused decision changed\n%s", diff)
		}
		edited := newApproveInput(open[1].Call.ID)
		edited.Arguments = []byte(`{"n":20}`)
		now, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, edited)
		if err != nil || now.Status.State != agentsvc.InputRequired || len(now.Approvals) != 1 || len(now.Status.Message.Parts) != 2 {
			t.Fatalf("after one: %+v (%v)", now, err)
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, edited); !errors.Is(err, agentsvc.ErrNoOpenDecision) {
			t.Errorf("decided again: %v", err)
		}
		if len(tools.sortedCalls()) != 0 {
			t.Errorf("sent %v before all was decided", tools.sortedCalls())
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("")); err != nil {
			t.Fatal(err)
		}
		end := h.waitUntilSettled(t, got.ID)
		if diff := cmp.Diff([]string{`{"n":1}`, `{"n":20}`}, tools.sortedCalls()); diff != "" || end.Status.State != agentsvc.Completed {
			t.Errorf("%s, sent\n%s", end.Status.State, diff)
		}
		var reported []string
		for _, c := range end.Status.Message.ToolCalls {
			reported = append(reported, c.Name+string(c.Arguments))
		}
		if diff := cmp.Diff([]string{`send{"n":1}`, "free{}", `send{"n":20}`}, reported); diff != "" {
			t.Error(diff)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.reqs) != 2 {
			t.Fatalf("asked %d times, the task is %+v", len(m.reqs), end.Status)
		}
		if requested := m.reqs[1].Conversation[1].Message; string(requested.ToolCalls[2].Arguments) != `{"n":20}` {
			t.Errorf("asked %+v", requested)
		}
	})
}

// TestReject: one rejection ends the task; none of the waiting calls runs, and nothing can be decided any more.
func TestReject(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m, tools := newSenderModel(t), &recordingTool{}
		h := startApprovalProcess(t, d, m, tools, 0)
		got, _ := h.submitAndDrain(t, newSubmission("both"))
		open := h.loadApprovals(t, got.ID)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, evs, err := h.Reader.Follow(ctx, anaVisibility, got.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Decisions.Decide(ctx, anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput(open[0].Call.ID)); err != nil {
			t.Fatal(err)
		}
		now, err := h.Decisions.Decide(ctx, anaVisibility, got.ID, approver, audit.Origin{}, task.DecisionInput{Outcome: agentsvc.OutcomeRejected, Comment: "too late"})
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
		if diff := cmp.Diff([]string{"approve", "input_required", "reject", "rejected"}, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		if _, err := h.Decisions.Decide(ctx, anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("")); !errors.Is(err, agentsvc.ErrTaskEnded) {
			t.Errorf("decided after the end: %v", err)
		}
		if state, _, _ := h.readRunRow(t, got.ID, 1); state != store.Completed || len(tools.sortedCalls()) != 0 || len(m.requestSteps()) != 1 {
			t.Errorf("the run is %s, sent %v, asked %v", state, tools.sortedCalls(), m.requestSteps())
		}
	})
}

// TestDecideAtOnce: of concurrent decisions one counts.
func TestDecideAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		tools := &recordingTool{}
		h := startApprovalProcess(t, d, newSenderModel(t), tools, 0)
		for range 5 {
			got, _ := h.submitAndDrain(t, newSubmission("one"))
			var won, late atomic.Int64
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					r := task.DecisionInput{Outcome: []agentsvc.DecisionOutcome{agentsvc.OutcomeApproved, agentsvc.OutcomeRejected}[i%2]}
					switch _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, r); {
					case err == nil:
						won.Add(1)
					case errors.Is(err, agentsvc.ErrNoOpenDecision), errors.Is(err, agentsvc.ErrTaskEnded):
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
			h.waitUntilSettled(t, got.ID)
		}
	})
}

// TestCancelledAtOnce: a decision during the cancellation of its task gets "task ended", not "not found".
func TestCancelledAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		h := startApprovalProcess(t, d, newSenderModel(t), &recordingTool{}, 0)
		for range 100 {
			got, _ := h.submitAndDrain(t, newSubmission("one"))
			call := h.loadApprovals(t, got.ID)[0].Call.ID
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = h.Canceller.Cancel(t.Context(), anaVisibility, got.ID) })
			for range 3 {
				wg.Go(func() {
					_, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, task.DecisionInput{Call: call, Outcome: agentsvc.OutcomeRejected})
					if err != nil && !errors.Is(err, agentsvc.ErrNoOpenDecision) && !errors.Is(err, agentsvc.ErrTaskEnded) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
	})
}

// TestDecideByMessage: messages bring decisions, several in one, and a repeated message decides once.
func TestDecideByMessage(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		tools := &recordingTool{}
		h := startApprovalProcess(t, d, newSenderModel(t), tools, 0)
		got, _ := h.submitAndDrain(t, newSubmission("both"))
		sub := task.Submission{Agent: "a", Owner: approver, Message: agentsvc.Message{ID: "m-decide", Task: got.ID, Parts: []agentsvc.Part{agentsvc.TextPart("go ahead")}}}
		for _, a := range h.loadApprovals(t, got.ID) {
			value := map[string]any{"type": "tool_approval", "call_id": string(a.Call.ID), "decision": "approve"}
			sub.Message.Parts = append(sub.Message.Parts, agentsvc.Part{Data: &agentsvc.Data{Value: value}})
		}
		var err error
		if sub.Decisions, err = task.ParseDecisions(&sub.Message); err != nil || len(sub.Decisions) != 2 || sub.Decisions[1].Comment != "go ahead" {
			t.Fatalf("%+v (%v)", sub.Decisions, err)
		}
		_, facts := h.submitAndDrain(t, sub)
		want := []string{"approve", "approve", "working", "call", "call", "result", "result", "usage", "completed"}
		if diff := cmp.Diff(want, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		_, again := h.submitAndDrain(t, sub)
		if diff := cmp.Diff(facts, again); diff != "" {
			t.Errorf("recorded again\n%s", diff)
		}
		sub.Message.Parts = sub.Message.Parts[1:]
		if _, err := h.Messages.Submit(t.Context(), sub); !errors.Is(err, task.ErrConflict) {
			t.Errorf("the same id with another body: %v", err)
		}
		sub.Message.ID = "another"
		if _, err := h.Messages.Submit(t.Context(), sub); !errors.Is(err, agentsvc.ErrTaskEnded) {
			t.Errorf("another message: %v", err)
		}
		sub.Agent = "team"
		if _, err := h.Messages.Submit(t.Context(), sub); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("through another agent: %v", err)
		}
		if len(tools.sortedCalls()) != 2 {
			t.Errorf("sent %v", tools.sortedCalls())
		}
	})
}

// TestRejectByMessage: a caller that rejects by a message and follows the task sees its end, and also the state after
// one of several decisions.
func TestRejectByMessage(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		h := startApprovalProcess(t, d, newSenderModel(t), &recordingTool{}, 0)
		got, _ := h.submitAndDrain(t, newSubmission("both"))
		open := h.loadApprovals(t, got.ID)
		decide := func(call agentsvc.CallID, verdict agentsvc.DecisionOutcome) task.Submission {
			return task.Submission{
				Agent: "a", Owner: approver, Decisions: []task.DecisionInput{{Call: call, Outcome: verdict}},
				Message: agentsvc.Message{Task: got.ID, Parts: []agentsvc.Part{{Data: &agentsvc.Data{}}}},
			}
		}
		_, facts := h.submitAndDrain(t, decide(open[0].Call.ID, agentsvc.OutcomeApproved))
		if diff := cmp.Diff([]string{"approve", "input_required"}, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		_, evs, err := h.Messages.SubmitAndFollow(t.Context(), decide(open[1].Call.ID, agentsvc.OutcomeRejected))
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
		if diff := cmp.Diff([]string{"reject", "rejected"}, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestApproveInside: the call of a sub-agent waits at the task, and continues where it stopped.
func TestApproveInside(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m, tools := newSenderModel(t), &recordingTool{}
		h := startApprovalProcess(t, d, m, tools, 0)
		sub := newSubmission("one")
		sub.Agent = "team"
		got, _ := h.submitAndDrain(t, sub)
		open := h.loadApprovals(t, got.ID)
		if len(open) != 1 || open[0].Frame != "inner" {
			t.Fatalf("open: %+v", open)
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("")); err != nil {
			t.Fatal(err)
		}
		end := h.waitUntilSettled(t, got.ID)
		if end.Status.State != agentsvc.Completed || end.Status.Message.Text() != "Sent." || len(tools.sortedCalls()) != 1 || len(m.requestSteps()) != 2 {
			t.Errorf("%s: %q, sent %v, asked %v", end.Status.State, end.Status.Message.Text(), tools.sortedCalls(), m.requestSteps())
		}
	})
}

// TestTimeout: a task whose approval expires is rejected, by any process.
func TestTimeout(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m, tools := newSenderModel(t), &recordingTool{}
		h := startApprovalProcess(t, d, m, tools, 200*time.Millisecond)
		got, _ := h.submitAndDrain(t, newSubmission("one"))
		h.stopNow(t)
		there := startApprovalProcess(t, d, m, tools, time.Hour)
		other, _ := there.submitAndDrain(t, newSubmission("one"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, evs, err := there.Reader.Follow(ctx, anaVisibility, got.ID, new(int64))
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
		if state, _, _ := h.readRunRow(t, got.ID, 1); state != store.Completed || len(tools.sortedCalls()) != 0 {
			t.Errorf("the run is %s, sent %v", state, tools.sortedCalls())
		}
		if still, err := there.Reader.Get(ctx, anaVisibility, other.ID, store.TaskParts{Approvals: true}); err != nil || len(still.Approvals) != 1 {
			t.Errorf("the other task: %+v (%v)", still, err)
		}
	})
}

// TestInterruptedAfterApproval: a process stops in the middle of an approved call. Its outcome is unknown, so a human
// is asked again.
func TestInterruptedAfterApproval(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m, hangs, tools := newSenderModel(t), &recordingTool{hang: true}, &recordingTool{}
		h := startApprovalProcess(t, d, m, hangs, 0)
		got, _ := h.submitAndDrain(t, newSubmission("one"))
		edited := newApproveInput("")
		edited.Arguments = []byte(`{"n":5}`)
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, edited); err != nil {
			t.Fatal(err)
		}
		for len(hangs.sortedCalls()) == 0 {
			time.Sleep(time.Millisecond)
		}
		h.stopNow(t)
		there := startApprovalProcess(t, d, m, tools, 0)
		requested := there.waitUntilSettled(t, got.ID)
		open := there.loadApprovals(t, got.ID)
		if requested.Status.State != agentsvc.InputRequired || len(open) != 1 || open[0].Kind != agentsvc.ApproveRerun || string(open[0].Call.Arguments) != `{"n":5}` {
			t.Fatalf("%s, open: %+v", requested.Status.State, open)
		}
		if _, err := there.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("")); err != nil {
			t.Fatal(err)
		}
		if end := there.waitUntilSettled(t, got.ID); end.Status.State != agentsvc.Completed {
			t.Errorf("%+v", end.Status)
		}
		if diff := cmp.Diff([]string{`{"n":5}`}, tools.sortedCalls()); diff != "" || len(hangs.sortedCalls()) != 1 || len(m.requestSteps()) != 2 {
			t.Errorf("hung %v, asked %v, sent\n%s", hangs.sortedCalls(), m.requestSteps(), diff)
		}
	})
}

// TestCancelCall: one call in progress is cancelled and the agent continues; a call that is not in progress cannot be
// cancelled.
func TestCancelCall(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		hangs := &recordingTool{hang: true}
		h := startApprovalProcess(t, d, newSenderModel(t), hangs, 0)
		got, _ := h.submitAndDrain(t, newSubmission("one"))
		call := h.loadApprovals(t, got.ID)[0].Call.ID
		if err := h.Canceller.CancelCall(t.Context(), anaVisibility, got.ID, call, ""); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("before it runs: %v", err)
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("")); err != nil {
			t.Fatal(err)
		}
		for len(hangs.sortedCalls()) == 0 {
			time.Sleep(time.Millisecond)
		}
		otherOwner := task.Visibility{Owner: &approver}
		for name, err := range map[string]error{
			"a stranger": h.Canceller.CancelCall(t.Context(), otherOwner, got.ID, call, ""), "another call": h.Canceller.CancelCall(t.Context(), anaVisibility, got.ID, "x", ""),
			"another task": h.Canceller.CancelCall(t.Context(), anaVisibility, "x", call, ""),
		} {
			if !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.Canceller.CancelCall(t.Context(), anaVisibility, got.ID, call, "too slow"); err != nil {
			t.Fatal(err)
		}
		end := h.waitUntilSettled(t, got.ID)
		want := []string{"user: one", "agent calls: ", "result: cancelled by user: too slow", "agent: Sent."}
		if diff := cmp.Diff(want, h.sessionLines(t)); diff != "" || end.Status.State != agentsvc.Completed {
			t.Errorf("%s\n%s", end.Status.State, diff)
		}
		if err := h.Canceller.CancelCall(t.Context(), anaVisibility, got.ID, call, ""); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// uncancellableTool is a tool that ignores its context.
type uncancellableTool struct{ free chan struct{} }

func (uncancellableTool) Spec() agentsvc.ToolSpec { return agentsvc.ToolSpec{Name: "look"} }
func (uncancellableTool) IsIdempotent() bool      { return false }
func (t uncancellableTool) Call(context.Context, tool.Call) (string, error) {
	<-t.free
	return "late", nil
}

// TestCancelInTime: within a second of a cancellation, in this process or in another one, model and tool are stopped
// and the worker is free. A loaded machine may need several attempts.
func TestCancelInTime(t *testing.T) {
	for _, text := range []string{"slow", "look"} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(text+map[bool]string{true: " elsewhere"}[elsewhere], func(t *testing.T) {
				forEachEngine(t, func(t *testing.T, d *db.DB) {
					free := make(chan struct{})
					defer close(free)
					set, err := tool.NewSet([]tool.Tool{uncancellableTool{free}}, tool.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
					if err != nil {
						t.Fatal(err)
					}
					agents := map[string]agent.Agent{"a": agent.NewLLM(newTalkerModel(t), agent.Options{Tools: set})}
					h := openTestProcess(t, d, queue.Retry{}, agents)
					at := h
					limit := time.Second
					if elsewhere {
						at = newTestProcess(d, quickRetry, agents)
						limit += time.Second // a loaded machine
					}
					var took []time.Duration
					for range 5 {
						took = append(took, measureCancel(t, h, at, text))
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

// measureCancel lets h execute a task until it is cancelled through at, and returns how long that takes.
func measureCancel(t *testing.T, h, at *testProcess, text string) time.Duration {
	t.Helper()
	sub := newSubmission(text)
	sub.Awaited = true
	got, err := h.Messages.Submit(t.Context(), sub)
	for err == nil && text == "look" && got.Seq < 4 {
		got, err = h.Reader.Get(t.Context(), anaVisibility, got.ID, store.TaskParts{})
	}
	if err == nil {
		_, err = at.Canceller.Cancel(t.Context(), anaVisibility, got.ID)
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
