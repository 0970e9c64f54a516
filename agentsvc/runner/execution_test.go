package runner_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/tool"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestRun: one turn as its caller, its log, its session and the queue see it.
func TestRun(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m := newTalkerModel(t)
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{})})
		got, facts := h.submitAndDrain(t, newSubmission("look"))
		want := []string{"submitted", "working", "usage", "message", "result", "usage", "completed"}
		if diff := cmp.Diff(want, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		log, err := h.st.Events.Load(t.Context(), nil, got.ID, 0, 100)
		if diff := cmp.Diff(log, facts); err != nil || diff != "" {
			t.Errorf("log -, got + (%v)\n%s", err, diff)
		}
		final := got.Status.Message
		if final.Text() != "I saw: a cat" || len(final.ToolCalls) != 1 || final.ToolCalls[0].Name != "look" {
			t.Errorf("final message %+v", final)
		}
		used, _ := final.Metadata["tokens_used"].(map[string]any)
		want = []string{"input", "output", "total", "cache_read", "cache_write", "reasoning"}
		for _, key := range want {
			if _, ok := used[key].(float64); !ok {
				t.Errorf("tokens_used lacks %s: %v", key, used)
			}
		}
		if used["output"] != 8.0 || used["total"] != used["input"].(float64)+8 || final.Metadata["model"] != "scripted" {
			t.Errorf("metadata %v", final.Metadata)
		}
		if took, ok := final.Metadata["execution_time"].(float64); !ok || took <= 0 || took > 10 {
			t.Errorf("execution time %v", final.Metadata["execution_time"])
		}
		conversation := []string{"user: look", "agent calls: One moment.", "result: a cat", "agent: I saw: a cat"}
		if diff := cmp.Diff(conversation, h.sessionLines(t)); diff != "" {
			t.Error(diff)
		}
		if state, attempts, why := h.readRunRow(t, got.ID, 1); state != store.Completed || attempts != 1 || why != "" {
			t.Errorf("the run is %s after %d attempts, %q", state, attempts, why)
		}
		if steps := m.requestSteps(); len(steps) != 2 {
			t.Errorf("asked %v", steps)
		}
		_, _ = h.submitAndDrain(t, newSubmission("and now?"))
		conversation = append(conversation, "user: and now?")
		m.mu.Lock()
		requested := formatEntries(m.reqs[2].Conversation)
		m.mu.Unlock()
		if diff := cmp.Diff(conversation, requested); diff != "" {
			t.Errorf("the next task of the session is asked\n%s", diff)
		}
	})
}

// newFailure returns metadata.error of a message; details are names and values.
func newFailure(code string, details ...any) map[string]any {
	of := map[string]any{}
	for i := 0; i+1 < len(details); i += 2 {
		of[details[i].(string)] = details[i+1]
	}
	return map[string]any{"code": code, "details": of}
}

// failureOf returns metadata.error of m, nil if it has none.
func failureOf(m *agentsvc.Message) map[string]any {
	f, _ := m.Metadata[agentsvc.FailureKey].(map[string]any)
	return f
}

// newRemoteAgent returns the agent far on the server at url.
func newRemoteAgent(t *testing.T, url string) agent.Agent {
	t.Helper()
	a, err := agent.NewRemote(agent.RemoteOptions{Name: "far", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestFailure: how a failing turn ends, after how many attempts, and what its caller may read.
func TestFailure(t *testing.T) {
	busy := &llm.Error{Provider: "p", Status: 503, Reason: "is busy", Retryable: true}
	refused := &llm.Error{Provider: "p", Status: 400, Reason: "refused the request"}
	busyFailure := newFailure("UNAVAILABLE", "provider", "p", "status", 503.0)
	refusedFailure := newFailure("FAILED_PRECONDITION", "provider", "p", "status", 400.0)
	reset := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		errs     []error
		agent    agent.Agent
		missing  bool
		state    agentsvc.State
		text     string
		attempts int64
		failure  map[string]any // metadata.error of the last message; nil = internal
	}{
		"busy once":     {errs: []error{busy}, state: agentsvc.Completed, text: "You said: hi", attempts: 2},
		"busy for good": {errs: []error{busy, busy, busy, busy}, state: agentsvc.Failed, text: busy.Error(), attempts: 3, failure: busyFailure},
		"refused":       {errs: []error{refused, nil}, state: agentsvc.Failed, text: refused.Error(), attempts: 1, failure: refusedFailure},
		"unreachable":   {agent: newRemoteAgent(t, "http://127.0.0.1:1"), state: agentsvc.Failed, text: "the remote agent far could not be called: the connection was refused", attempts: 3, failure: newFailure("UNAVAILABLE", "agent", "far")},
		"at work too long": {agent: brokenAgent(func(yield func(agentsvc.Event, error) bool) {
			yield(agentsvc.Event{}, &agent.RemoteError{Agent: "far", Reason: "did not answer within 30s"})
		}), state: agentsvc.Failed, text: "the remote agent far did not answer within 30s", attempts: 1, failure: newFailure("UNAVAILABLE", "agent", "far")},
		"an inner error": {errs: []error{errInternal}, state: agentsvc.Failed, text: "The agent failed with an internal error.", attempts: 1},
		"no such agent":  {missing: true, state: agentsvc.Failed, text: "The agent failed with an internal error.", attempts: 1},
		"a panic":        {agent: brokenAgent(func(func(agentsvc.Event, error) bool) { panic(errInternal) }), state: agentsvc.Failed, text: "The agent failed with an internal error.", attempts: 1},
		"no answer":      {agent: brokenAgent(func(func(agentsvc.Event, error) bool) {}), state: agentsvc.Failed, text: "The agent failed with an internal error.", attempts: 1},
		"in a circle": {agent: brokenAgent(func(yield func(agentsvc.Event, error) bool) {
			yield(agentsvc.Event{}, &agent.TooManyTransfersError{Max: 3})
		}), state: agentsvc.Failed, text: (&agent.TooManyTransfersError{Max: 3}).Error(), attempts: 1, failure: newFailure("RESOURCE_EXHAUSTED", "rule", "transfers", "limit", 3.0)},
		"without end": {agent: brokenAgent(func(yield func(agentsvc.Event, error) bool) { yield(agentsvc.Event{}, agent.ErrTooManySteps) }), state: agentsvc.Failed, text: agent.ErrTooManySteps.Error(), attempts: 1, failure: newFailure("RESOURCE_EXHAUSTED", "rule", "model_calls")},
		"on and on": {agent: brokenAgent(func(yield func(agentsvc.Event, error) bool) {
			if yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &agentsvc.Message{}}}, nil) {
				t.Error("an agent that has ended its turn is asked for more")
			}
		}), state: agentsvc.Completed, attempts: 1},
		"an invalid wish": {errs: []error{agentsvc.NewInvalidError("tools", "are too many")}, state: agentsvc.Failed, text: "tools: are too many", attempts: 1, failure: newFailure("INVALID_ARGUMENT", "field", "tools")},
		"a budget": {
			errs: []error{(&agentsvc.ExhaustedBudget{Budget: "monthly", Scope: "app", ResetsAt: reset}).NewError()}, state: agentsvc.Failed,
			text: "the budget monthly (app) is used up until 2100-01-01T00:00:00Z", attempts: 1,
			failure: newFailure("RESOURCE_EXHAUSTED", "budget", "monthly", "scope", "app", "resets_at", "2100-01-01T00:00:00.000Z"),
		},
		"a budget without end": {
			errs: []error{(&agentsvc.ExhaustedBudget{Budget: "all", Scope: "app"}).NewError()}, state: agentsvc.Failed,
			text: "the budget all (app) is used up", attempts: 1, failure: newFailure("RESOURCE_EXHAUSTED", "budget", "all", "scope", "app", "resets_at", nil),
		},
		"a named model": {
			errs: []error{&llm.ModelError{Model: "large", Err: refused}}, state: agentsvc.Failed, text: refused.Error(), attempts: 1,
			failure: newFailure("FAILED_PRECONDITION", "provider", "p", "status", 400.0, "model", "large"),
		},
		"tools that are away": {
			errs: []error{&tool.UnavailableError{Source: "files", Reason: "it does not answer"}}, state: agentsvc.Failed,
			text: "the tools of files are not available: it does not answer", attempts: 1, failure: newFailure("UNAVAILABLE", "tools", "files"),
		},
		"nothing but ends": {agent: brokenAgent(func(yield func(agentsvc.Event, error) bool) {
			yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed}}, nil)
		}), state: agentsvc.Completed, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			forEachEngine(t, func(t *testing.T, d *db.DB) {
				m := newTalkerModel(t)
				m.errs = c.errs
				a := c.agent
				if a == nil {
					a = newLookAgent(t, m, lookTool{})
				}
				agents := map[string]agent.Agent{"a": a}
				if c.missing {
					delete(agents, "a")
				}
				h := openTestProcess(t, d, quickRetry, agents)
				got, facts := h.submitAndDrain(t, newSubmission("hi"))
				if got.Status.State != c.state || got.Status.Message.Text() != c.text {
					t.Errorf("%s: %q, want %s: %q", got.Status.State, got.Status.Message.Text(), c.state, c.text)
				}
				if c.state == agentsvc.Failed && c.failure == nil {
					c.failure = newFailure("INTERNAL")
				}
				if diff := cmp.Diff(c.failure, failureOf(got.Status.Message)); diff != "" {
					t.Error("metadata.error", diff)
				}
				ends := 0
				for _, ev := range facts {
					if ev.Status != nil && ev.Status.State.IsTerminal() {
						ends++
					}
				}
				if ends != 1 || facts[len(facts)-1].Seq != int64(len(facts)) {
					t.Errorf("%d ends in %v", ends, eventKinds(facts))
				}
				end := map[agentsvc.State]store.RunState{agentsvc.Completed: store.Completed, agentsvc.Failed: store.Failed}[c.state]
				if state, attempts, why := h.readRunRow(t, got.ID, 1); state != end || attempts != c.attempts || end == store.Failed && why == "" {
					t.Errorf("the run is %s after %d attempts (%q), want %s after %d", state, attempts, why, end, c.attempts)
				}
			})
		})
	}
}

// TestRetryAfter: a run waits as long as the model's provider demands, up to the policy's maximum.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for requested, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute, 1000 * time.Hour: 5 * time.Minute} {
		d := dbtest.NewSQLite(t)
		m := newTalkerModel(t)
		m.errs = []error{&llm.Error{Status: 429, Retryable: true, RetryAfter: requested}}
		h := openTestProcess(t, d, queue.Retry{MaxRetries: 3, InitialDelay: 10 * time.Second, MaxDelay: 5 * time.Minute}, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{})})
		sub := newSubmission("hi")
		sub.Awaited = true
		began := time.Now()
		got, err := h.Messages.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		for state := store.Running; state == store.Running; state, _, _ = h.readRunRow(t, got.ID, 1) {
			time.Sleep(time.Millisecond)
		}
		if in := h.timeUntilDue(t); in > want || in < want/2-time.Since(began) {
			t.Errorf("asked for %v: tried again in %v, want about %v", requested, in, want)
		}
		if got, err := h.Reader.Get(t.Context(), anaVisibility, got.ID, store.TaskParts{}); err != nil || got.Status.State != agentsvc.Working {
			t.Errorf("meanwhile the task is %s (%v)", got.Status.State, err)
		}
	}
}

// TestRecordedNotRepeated: what one attempt recorded the next one does not repeat.
func TestRecordedNotRepeated(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		var looked atomic.Int64
		m := newTalkerModel(t)
		m.errs = []error{nil, &llm.Error{Status: 503, Reason: "is busy", Retryable: true}, &llm.Error{Status: 503, Reason: "is busy", Retryable: true}}
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{call: func(context.Context) (string, error) {
			looked.Add(1)
			return "a cat", nil
		}})})
		got, facts := h.submitAndDrain(t, newSubmission("look"))
		if got.Status.State != agentsvc.Completed || got.Status.Message.Text() != "I saw: a cat" || looked.Load() != 1 {
			t.Errorf("%s: %q, looked %d times", got.Status.State, got.Status.Message.Text(), looked.Load())
		}
		if diff := cmp.Diff([]string{"1/0", "1/1", "1/1", "1/1"}, m.requestSteps()); diff != "" {
			t.Errorf("asked\n%s", diff)
		}
		if diff := cmp.Diff([]string{"submitted", "working", "usage", "message", "result", "attempt", "attempt", "usage", "completed"}, eventKinds(facts)); diff != "" {
			t.Error(diff)
		}
		for i, ev := range facts[5:7] {
			if a := ev.Attempt; a.Number != int64(i+2) || a.CutOff || !strings.Contains(a.Reason, "is busy") || a.Delay <= 0 {
				t.Errorf("%+v", a)
			}
		}
		if diff := cmp.Diff([]string{"user: look", "agent calls: One moment.", "result: a cat", "agent: I saw: a cat"}, h.sessionLines(t)); diff != "" {
			t.Error(diff)
		}
		final := got.Status.Message
		if used := final.Metadata["tokens_used"].(map[string]any); len(final.ToolCalls) != 1 || used["output"] != 8.0 {
			t.Errorf("the last message has %d calls and %v", len(final.ToolCalls), used)
		}
	})
}

// TestStoppedInToolCall: a process stops in the middle of a tool call. Another one continues: it repeats an
// idempotent call, asks a human about any other, and uses the model's recorded answer.
func TestStoppedInToolCall(t *testing.T) {
	for name, idempotent := range map[string]bool{"idempotent": true, "not idempotent": false} {
		t.Run(name, func(t *testing.T) {
			forEachEngine(t, func(t *testing.T, d *db.DB) {
				var looked atomic.Int64
				began := make(chan struct{}, 1)
				hang := lookTool{idempotent: idempotent, call: func(ctx context.Context) (string, error) {
					looked.Add(1)
					began <- struct{}{}
					<-ctx.Done()
					return "", ctx.Err()
				}}
				first, second := newTalkerModel(t), newTalkerModel(t)
				h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, first, hang)})
				sub := newSubmission("look")
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
				if state, attempts, _ := h.readRunRow(t, got.ID, 1); state != store.Pending || attempts != 0 {
					t.Errorf("handed back %s after %d attempts, want pending and uncounted", state, attempts)
				}
				there := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, second, lookTool{idempotent: idempotent, call: func(context.Context) (string, error) {
					looked.Add(1)
					return "a cat", nil
				}})})
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
					if ev.Status != nil && ev.Status.State == agentsvc.InputRequired {
						break
					}
				}
				want, requested := []string{"submitted", "working", "usage", "message", "attempt", "result", "usage", "completed"}, []string{"1/1"}
				times, message := int64(2), "a cat"
				if !idempotent {
					want, requested = []string{"submitted", "working", "usage", "message", "attempt", "approval", "input_required"}, nil
					times, message = 1, "unknown. Run it again?"
				}
				if diff := cmp.Diff(want, eventKinds(facts)); diff != "" {
					t.Error(diff)
				}
				if text := facts[len(facts)-1].Status.Message.Text(); looked.Load() != times || !strings.Contains(text, message) {
					t.Errorf("looked %d times and answered %q, want %d and %q", looked.Load(), text, times, message)
				}
				if diff := cmp.Diff([]string{"1/0"}, first.requestSteps()); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(requested, second.requestSteps()); diff != "" {
					t.Error(diff)
				}
				if idempotent {
					return
				}
				if _, err := there.Decisions.Decide(ctx, anaVisibility, got.ID, ana, audit.Origin{}, task.DecisionInput{Outcome: agentsvc.OutcomeApproved}); err != nil {
					t.Fatal(err)
				}
				if end := there.waitUntilSettled(t, got.ID); end.Status.State != agentsvc.Completed || looked.Load() != 2 {
					t.Errorf("after the decision %s, looked %d times", end.Status.State, looked.Load())
				}
			})
		})
	}
}

// TestExhausted: a run whose workers died too often is given up without another attempt.
func TestExhausted(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m := newTalkerModel(t)
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{})})
		// Without a worker: pending, with its used attempts.
		run := store.Run{Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, FirstSeq: 1, Attempts: 3, Lease: store.Lease{Epoch: 1, Seq: 1}}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &agentsvc.Message{ID: "m", Role: agentsvc.RoleUser}}}
		if err := h.st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{ev}}); err != nil {
			t.Fatal(err)
		}
		h.pool.WakeClaimers()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, evs, err := h.Reader.Follow(ctx, anaVisibility, run.Task, nil)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			got.ApplyEvent(ev)
		}
		if state, attempts, why := h.readRunRow(t, run.Task, 1); got.Status.State != agentsvc.Failed || state != store.Failed || attempts != 3 || !strings.Contains(why, "died in attempt 3") {
			t.Errorf("the task is %s, its run %s after %d attempts: %q", got.Status.State, state, attempts, why)
		}
		if steps := m.requestSteps(); len(steps) != 0 {
			t.Errorf("the model was asked %v", steps)
		}
	})
}

// TestLost: a run whose task is taken from it stops and writes nothing.
func TestLost(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, newTalkerModel(t), lookTool{})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, evs, err := h.Messages.SubmitAndFollow(ctx, newSubmission("slow"))
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for ev, err := range evs {
			switch {
			case err != nil:
				t.Fatal(err)
			case ev.Chunk != nil:
				if _, err := h.Canceller.Cancel(ctx, anaVisibility, got.ID); err != nil {
					t.Fatal(err)
				}
			case ev.Status != nil:
				states = append(states, string(ev.Status.State))
			default:
				t.Errorf("got %+v", ev)
			}
		}
		if diff := cmp.Diff([]string{"submitted", "working", "cancelled"}, states); diff != "" {
			t.Error(diff)
		}
		for h.pool.Inflight() > 0 {
			time.Sleep(time.Millisecond)
		}
		if state, _, _ := h.readRunRow(t, got.ID, 1); state != store.Completed {
			t.Errorf("the run is %s", state)
		}
		if conversation := h.sessionLines(t); len(conversation) != 0 {
			t.Errorf("the session holds %q", conversation)
		}
	})
}

// TestLostUnseen: another process takes the task; the worker learns it from its next write, and writes nothing.
func TestLostUnseen(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		step := make(chan struct{})
		h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, newTalkerModel(t), lookTool{call: func(context.Context) (string, error) {
			<-step
			return "a cat", nil
		}})})
		run := store.Run{
			Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, FirstSeq: 1, Attempts: 1,
			Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("look")}},
			Lease:   store.Lease{Epoch: 1, Seq: 1, Worker: "w"},
		}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working}}
		if err := h.st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{ev}}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- h.runner.Run(context.Background(), run, agentsvc.LeaseCheck{}) }()
		var seen store.StoredTask
		for seen.Seq < 3 { // usage and the announced call
			var err error
			if seen, err = h.st.Tasks.Load(t.Context(), nil, run.Task, store.TaskParts{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.st.Tasks.Cancel(t.Context(), seen, agentsvc.Event{Task: run.Task, Seq: 4, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Cancelled}}); err != nil {
			t.Fatal(err)
		}
		close(step)
		if err := <-done; !errors.Is(err, agentsvc.ErrLeaseLost) {
			t.Errorf("the run ended with %v", err)
		}
		log, err := h.st.Events.Load(t.Context(), nil, run.Task, 0, 100)
		if diff := cmp.Diff([]string{"working", "usage", "message", "cancelled"}, eventKinds(log)); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

// TestStopping: a run whose process stops returns ErrStopping and records no failure.
func TestStopping(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{queue.ErrStopping, queue.ErrStale, queue.ErrPostponed, agentsvc.ErrLeaseLost} {
		d := dbtest.NewSQLite(t)
		h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, newTalkerModel(t), lookTool{})})
		run := store.Run{
			Tenant: "acme", Task: "t", Turn: 1, Agent: "a", Context: "c1", Owner: ana, FirstSeq: 1, Attempts: 1,
			Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("slow")}},
			Lease:   store.Lease{Epoch: 1, Seq: 1, Worker: "w"},
		}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working}}
		if err := h.st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{ev}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
		if err := h.runner.Run(ctx, run, agentsvc.LeaseCheck{}); !errors.Is(err, cause) {
			t.Errorf("stopped because %v: %v", cause, err)
		}
		if got, err := h.st.Tasks.Load(t.Context(), nil, "t", store.TaskParts{}); err != nil || got.Seq != 1 {
			t.Errorf("stopped because %v: the task is %s at %d (%v)", cause, got.Status.State, got.Seq, err)
		}
	}
}

// TestAsk: a question ends the run; the answer is a run of its own with the whole conversation.
func TestAsk(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m := newTalkerModel(t)
		h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{})})
		got, _ := h.submitAndDrain(t, newSubmission("ask"))
		if got.Status.State != agentsvc.InputRequired || got.Status.Message.Text() != "Which one?" {
			t.Fatalf("%s: %q", got.Status.State, got.Status.Message.Text())
		}
		if state, _, _ := h.readRunRow(t, got.ID, 1); state != store.InputRequired {
			t.Errorf("the run is %s, want it to rest", state)
		}
		answer := newSubmission("the red one")
		answer.Message.Task = got.ID
		got, facts := h.submitAndDrain(t, answer)
		if got.Status.State != agentsvc.Completed || got.Status.Message.Text() != "You said: the red one" || facts[len(facts)-1].Seq != got.Seq {
			t.Errorf("%s: %q", got.Status.State, got.Status.Message.Text())
		}
		conversation := []string{"user: ask", "agent: Which one?", "user: the red one"}
		m.mu.Lock()
		requested := formatEntries(m.reqs[1].Conversation)
		m.mu.Unlock()
		if diff := cmp.Diff(conversation, requested); diff != "" {
			t.Errorf("the model was asked\n%s", diff)
		}
		if diff := cmp.Diff(append(conversation, "agent: You said: the red one"), h.sessionLines(t)); diff != "" {
			t.Errorf("the session holds\n%s", diff)
		}
		if diff := cmp.Diff([]string{"1/0", "2/0"}, m.requestSteps()); diff != "" {
			t.Error(diff)
		}
		for turn, want := range map[int]store.RunState{1: store.InputRequired, 2: store.Completed} {
			if state, _, _ := h.readRunRow(t, got.ID, turn); state != want {
				t.Errorf("run %d is %s, want %s", turn, state, want)
			}
		}
	})
}

// interruptingAgent is an agent that is stopped after a tool has returned and before the result is written.
type interruptingAgent struct {
	agent.Agent
	onResult func(ctx context.Context)
}

func (a interruptingAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		for ev, err := range a.Agent.Run(ctx, inv) {
			if ev.Result != nil {
				a.onResult(ctx)
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestDrained: a run is stopped when a tool has just returned. The result is written, so that the next attempt
// neither repeats the call nor asks a human. A run that has lost its task writes nothing.
func TestDrained(t *testing.T) {
	for _, cause := range []error{queue.ErrStopping, queue.ErrStale, queue.ErrPostponed, agentsvc.ErrLeaseLost} {
		t.Run(cause.Error(), func(t *testing.T) {
			forEachEngine(t, func(t *testing.T, d *db.DB) {
				var looked atomic.Int64
				seen := lookTool{call: func(context.Context) (string, error) {
					looked.Add(1)
					return "a cat", nil
				}}
				ctx, cancel := context.WithCancelCause(t.Context())
				h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": interruptingAgent{newLookAgent(t, newTalkerModel(t), seen), func(context.Context) { cancel(cause) }}})
				run := store.Run{
					Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, FirstSeq: 1, Attempts: 1,
					Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("look")}},
					Lease:   store.Lease{Epoch: 1, Seq: 1, Worker: "w"},
				}
				ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working, Message: &run.Message}}
				if err := h.st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{ev}}); err != nil {
					t.Fatal(err)
				}
				if err := h.runner.Run(ctx, run, agentsvc.LeaseCheck{}); !errors.Is(err, cause) {
					t.Errorf("stopped because %v: %v", cause, err)
				}
				log, err := h.st.Events.Load(t.Context(), nil, run.Task, 0, 100)
				want := []string{"working", "usage", "message", "result"}
				if errors.Is(cause, agentsvc.ErrLeaseLost) {
					want = want[:3]
				}
				if diff := cmp.Diff(want, eventKinds(log)); err != nil || diff != "" {
					t.Fatalf("%v\n%s", err, diff)
				}
				if errors.Is(cause, agentsvc.ErrLeaseLost) {
					return
				}
				if _, err := store.NewRunQueue(d).ReleaseRuns(t.Context(), "w"); err != nil {
					t.Fatal(err)
				}
				second := newTalkerModel(t)
				there := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, second, seen)})
				there.pool.WakeClaimers()
				if end := there.waitUntilSettled(t, run.Task); end.Status.State != agentsvc.Completed || end.Status.Message.Text() != "I saw: a cat" || looked.Load() != 1 {
					t.Errorf("%s %q, looked %d times", end.Status.State, end.Status.Message.Text(), looked.Load())
				}
				if diff := cmp.Diff([]string{"1/1"}, second.requestSteps()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
