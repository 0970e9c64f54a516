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
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestRun: a whole turn as its caller, its log, its session and the queue have it.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m := talker(t)
		h := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, m, look{})})
		got, facts := h.call(t, send("look"))
		want := []string{"submitted", "working", "usage", "message", "result", "usage", "completed"}
		if diff := cmp.Diff(want, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		log, err := h.st.Events(t.Context(), got.ID, 0, 100)
		if diff := cmp.Diff(log, facts); err != nil || diff != "" {
			t.Errorf("log -, told + (%v)\n%s", err, diff)
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
		talk := []string{"user: look", "agent calls: One moment.", "result: a cat", "agent: I saw: a cat"}
		if diff := cmp.Diff(talk, h.talk(t)); diff != "" {
			t.Error(diff)
		}
		if state, attempts, why := h.row(t, got.ID, 1); state != store.Completed || attempts != 1 || why != "" {
			t.Errorf("the run is %s after %d attempts, %q", state, attempts, why)
		}
		if steps := m.steps(); len(steps) != 2 {
			t.Errorf("asked %v", steps)
		}
		_, _ = h.call(t, send("and now?"))
		talk = append(talk, "user: and now?")
		m.mu.Lock()
		asked := spoken(m.reqs[2].Conversation)
		m.mu.Unlock()
		if diff := cmp.Diff(talk, asked); diff != "" {
			t.Errorf("the next task of the session is asked\n%s", diff)
		}
	})
}

// TestFailure: how a turn ends that cannot go on, after how many attempts, and what its caller may read.
func TestFailure(t *testing.T) {
	busy := &llm.Error{Provider: "p", Status: 503, Reason: "is busy", Retryable: true}
	refused := &llm.Error{Provider: "p", Status: 400, Reason: "refused the request"}
	for name, c := range map[string]struct {
		errs     []error
		agent    agent.Agent
		missing  bool
		state    agentsvc.State
		text     string
		attempts int64
	}{
		"busy once":      {errs: []error{busy}, state: agentsvc.Completed, text: "You said: hi", attempts: 2},
		"busy for good":  {errs: []error{busy, busy, busy, busy}, state: agentsvc.Failed, text: busy.Error(), attempts: 3},
		"refused":        {errs: []error{refused, nil}, state: agentsvc.Failed, text: refused.Error(), attempts: 1},
		"an inner error": {errs: []error{errInside}, state: agentsvc.Failed, text: "The agent met an internal error.", attempts: 1},
		"no such agent":  {missing: true, state: agentsvc.Failed, text: "The agent met an internal error.", attempts: 1},
		"a panic":        {agent: broken(func(func(agentsvc.Event, error) bool) { panic(errInside) }), state: agentsvc.Failed, text: "The agent met an internal error.", attempts: 1},
		"no answer":      {agent: broken(func(func(agentsvc.Event, error) bool) {}), state: agentsvc.Failed, text: "The agent met an internal error.", attempts: 1},
		"without end":    {agent: broken(func(yield func(agentsvc.Event, error) bool) { yield(agentsvc.Event{}, agent.ErrTooLong) }), state: agentsvc.Failed, text: agent.ErrTooLong.Error(), attempts: 1},
		"on and on": {agent: broken(func(yield func(agentsvc.Event, error) bool) {
			if yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &agentsvc.Message{}}}, nil) {
				t.Error("an agent that has ended its turn is asked for more")
			}
		}), state: agentsvc.Completed, attempts: 1},
		"an invalid wish": {errs: []error{agentsvc.Invalid("tools", "are too many")}, state: agentsvc.Failed, text: "tools: are too many", attempts: 1},
		"nothing but ends": {agent: broken(func(yield func(agentsvc.Event, error) bool) {
			yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed}}, nil)
		}), state: agentsvc.Completed, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d *db.DB) {
				m := talker(t)
				m.errs = c.errs
				a := c.agent
				if a == nil {
					a = thinker(t, m, look{})
				}
				agents := map[string]agent.Agent{"a": a}
				if c.missing {
					delete(agents, "a")
				}
				h := open(t, d, quick, agents)
				got, facts := h.call(t, send("hi"))
				if got.Status.State != c.state || got.Status.Message.Text() != c.text {
					t.Errorf("%s: %q, want %s: %q", got.Status.State, got.Status.Message.Text(), c.state, c.text)
				}
				ends := 0
				for _, ev := range facts {
					if ev.Status != nil && ev.Status.State.Terminal() {
						ends++
					}
				}
				if ends != 1 || facts[len(facts)-1].Seq != int64(len(facts)) {
					t.Errorf("%d ends in %v", ends, kinds(facts))
				}
				end := map[agentsvc.State]store.RunState{agentsvc.Completed: store.Completed, agentsvc.Failed: store.Failed}[c.state]
				if state, attempts, why := h.row(t, got.ID, 1); state != end || attempts != c.attempts || end == store.Failed && why == "" {
					t.Errorf("the run is %s after %d attempts (%q), want %s after %d", state, attempts, why, end, c.attempts)
				}
			})
		})
	}
}

// TestRetryAfter: a model that asks for time gets it, as far as an operator's patience goes.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute, 1000 * time.Hour: 5 * time.Minute} {
		d := dbtest.SQLite(t)
		m := talker(t)
		m.errs = []error{&llm.Error{Status: 429, Retryable: true, RetryAfter: asked}}
		h := open(t, d, queue.Retry{Max: 3, Initial: 10 * time.Second, Limit: 5 * time.Minute}, map[string]agent.Agent{"a": thinker(t, m, look{})})
		sub := send("hi")
		sub.Live = true
		began := time.Now()
		got, err := h.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		for state := store.Running; state == store.Running; state, _, _ = h.row(t, got.ID, 1) {
			time.Sleep(time.Millisecond)
		}
		if in := h.due(t); in > want || in < want/2-time.Since(began) {
			t.Errorf("asked for %v: tried again in %v, want about %v", asked, in, want)
		}
		if got, err := h.Get(t.Context(), reach, got.ID, store.With{}); err != nil || got.Status.State != agentsvc.Working {
			t.Errorf("meanwhile the task is %s (%v)", got.Status.State, err)
		}
	}
}

// TestKept: what an attempt recorded the next one neither asks nor does again.
func TestKept(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		var looked atomic.Int64
		m := talker(t)
		m.errs = []error{nil, &llm.Error{Status: 503, Reason: "is busy", Retryable: true}, &llm.Error{Status: 503, Reason: "is busy", Retryable: true}}
		h := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, m, look{call: func(context.Context) (string, error) {
			looked.Add(1)
			return "a cat", nil
		}})})
		got, facts := h.call(t, send("look"))
		if got.Status.State != agentsvc.Completed || got.Status.Message.Text() != "I saw: a cat" || looked.Load() != 1 {
			t.Errorf("%s: %q, looked %d times", got.Status.State, got.Status.Message.Text(), looked.Load())
		}
		if diff := cmp.Diff([]string{"1/0", "1/1", "1/1", "1/1"}, m.steps()); diff != "" {
			t.Errorf("asked\n%s", diff)
		}
		if diff := cmp.Diff([]string{"submitted", "working", "usage", "message", "result", "usage", "completed"}, kinds(facts)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"user: look", "agent calls: One moment.", "result: a cat", "agent: I saw: a cat"}, h.talk(t)); diff != "" {
			t.Error(diff)
		}
		final := got.Status.Message
		if used := final.Metadata["tokens_used"].(map[string]any); len(final.ToolCalls) != 1 || used["output"] != 8.0 {
			t.Errorf("the last message tells of %d calls and %v", len(final.ToolCalls), used)
		}
	})
}

// TestHandedBack: a process stops in the middle of a tool call. Another one goes on: what may be repeated it repeats,
// about what may not it asks a human, and the model's recorded answer stands.
func TestHandedBack(t *testing.T) {
	for name, idempotent := range map[string]bool{"idempotent": true, "not idempotent": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d *db.DB) {
				var looked atomic.Int64
				began := make(chan struct{}, 1)
				hang := look{idempotent: idempotent, call: func(ctx context.Context) (string, error) {
					looked.Add(1)
					began <- struct{}{}
					<-ctx.Done()
					return "", ctx.Err()
				}}
				first, second := talker(t), talker(t)
				h := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, first, hang)})
				sub := send("look")
				sub.Live = true
				got, err := h.Submit(t.Context(), sub)
				if err != nil {
					t.Fatal(err)
				}
				<-began
				now, stop := context.WithCancel(t.Context())
				stop()
				if err := h.pool.Drain(now); err != nil {
					t.Fatal(err)
				}
				if state, attempts, _ := h.row(t, got.ID, 1); state != store.Pending || attempts != 0 {
					t.Errorf("handed back %s after %d attempts, want pending and uncounted", state, attempts)
				}
				there := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, second, look{idempotent: idempotent, call: func(context.Context) (string, error) {
					looked.Add(1)
					return "a cat", nil
				}})})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, evs, err := there.Follow(ctx, reach, got.ID, new(int64))
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
				want, asked := []string{"submitted", "working", "usage", "message", "result", "usage", "completed"}, []string{"1/1"}
				times, said := int64(2), "a cat"
				if !idempotent {
					want, asked = []string{"submitted", "working", "usage", "message", "approval", "input_required"}, nil
					times, said = 1, "unknown. Run it again?"
				}
				if diff := cmp.Diff(want, kinds(facts)); diff != "" {
					t.Error(diff)
				}
				if text := facts[len(facts)-1].Status.Message.Text(); looked.Load() != times || !strings.Contains(text, said) {
					t.Errorf("looked %d times and said %q, want %d and %q", looked.Load(), text, times, said)
				}
				if diff := cmp.Diff([]string{"1/0"}, first.steps()); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(asked, second.steps()); diff != "" {
					t.Error(diff)
				}
				if idempotent {
					return
				}
				if _, err := there.Decide(ctx, reach, got.ID, ana, task.Ruling{Verdict: agentsvc.Approve}); err != nil {
					t.Fatal(err)
				}
				if end := there.wait(t, got.ID); end.Status.State != agentsvc.Completed || looked.Load() != 2 {
					t.Errorf("after the decision %s, looked %d times", end.Status.State, looked.Load())
				}
			})
		})
	}
}

// TestExhausted: a run whose workers died too often is given up without another try.
func TestExhausted(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m := talker(t)
		h := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, m, look{})})
		// No worker: pending, with the attempts it has had.
		run := store.Run{Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, Epoch: 1, Seq: 1, FirstSeq: 1, Attempts: 3}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &agentsvc.Message{ID: "m", Role: agentsvc.RoleUser}}}
		if err := h.st.Accept(t.Context(), run, []agentsvc.Event{ev}, nil); err != nil {
			t.Fatal(err)
		}
		h.pool.Wake()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, evs, err := h.Follow(ctx, reach, run.Task, nil)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			got.Apply(ev)
		}
		if state, attempts, why := h.row(t, run.Task, 1); got.Status.State != agentsvc.Failed || state != store.Failed || attempts != 3 || !strings.Contains(why, "died in attempt 3") {
			t.Errorf("the task is %s, its run %s after %d attempts: %q", got.Status.State, state, attempts, why)
		}
		if steps := m.steps(); len(steps) != 0 {
			t.Errorf("the model was asked %v", steps)
		}
	})
}

// TestLost: a run whose task is taken from it stops and adds nothing.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, talker(t), look{})})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, evs, err := h.Call(ctx, send("slow"))
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for ev, err := range evs {
			switch {
			case err != nil:
				t.Fatal(err)
			case ev.Chunk != nil:
				if _, err := h.Cancel(ctx, reach, got.ID); err != nil {
					t.Fatal(err)
				}
			case ev.Status != nil:
				states = append(states, string(ev.Status.State))
			default:
				t.Errorf("told %+v", ev)
			}
		}
		if diff := cmp.Diff([]string{"submitted", "working", "cancelled"}, states); diff != "" {
			t.Error(diff)
		}
		for h.pool.Inflight() > 0 {
			time.Sleep(time.Millisecond)
		}
		if state, _, _ := h.row(t, got.ID, 1); state != store.Completed {
			t.Errorf("the run is %s", state)
		}
		if talk := h.talk(t); len(talk) != 0 {
			t.Errorf("the session holds %q", talk)
		}
	})
}

// TestLostUnseen: somebody elsewhere takes the task; the worker learns it from its next fact and leaves no word.
func TestLostUnseen(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		step := make(chan struct{})
		h := build(d, quick, map[string]agent.Agent{"a": thinker(t, talker(t), look{call: func(context.Context) (string, error) {
			<-step
			return "a cat", nil
		}})})
		run := store.Run{
			Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, Epoch: 1, Seq: 1, FirstSeq: 1, Attempts: 1, Worker: "w",
			Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("look")}},
		}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working}}
		if err := h.st.Accept(t.Context(), run, []agentsvc.Event{ev}, nil); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- h.run.Run(context.Background(), run) }()
		var seen store.Stored
		for seen.Seq < 3 { // usage and the announced call
			var err error
			if seen, err = h.st.Task(t.Context(), run.Task, store.With{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.st.Cancel(t.Context(), seen, agentsvc.Event{Task: run.Task, Seq: 4, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Cancelled}}); err != nil {
			t.Fatal(err)
		}
		close(step)
		if err := <-done; !errors.Is(err, agentsvc.ErrLost) {
			t.Errorf("the run ended with %v", err)
		}
		log, err := h.st.Events(t.Context(), run.Task, 0, 100)
		if diff := cmp.Diff([]string{"working", "usage", "message", "cancelled"}, kinds(log)); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

// TestStopping: a run whose process stops says so, and records no failure.
func TestStopping(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{queue.ErrStopping, queue.ErrStale, queue.ErrPostponed, agentsvc.ErrLost} {
		d := dbtest.SQLite(t)
		h := build(d, quick, map[string]agent.Agent{"a": thinker(t, talker(t), look{})})
		run := store.Run{
			Tenant: "acme", Task: "t", Turn: 1, Agent: "a", Context: "c1", Owner: ana, Epoch: 1, Seq: 1, FirstSeq: 1, Attempts: 1, Worker: "w",
			Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("slow")}},
		}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working}}
		if err := h.st.Accept(t.Context(), run, []agentsvc.Event{ev}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
		if err := h.run.Run(ctx, run); !errors.Is(err, cause) {
			t.Errorf("stopped because %v: %v", cause, err)
		}
		if got, err := h.st.Task(t.Context(), "t", store.With{}); err != nil || got.Seq != 1 {
			t.Errorf("stopped because %v: the task is %s at %d (%v)", cause, got.Status.State, got.Seq, err)
		}
	}
}

// TestAsk: a question rests the run; the answer is a run of its own that knows what was said.
func TestAsk(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		m := talker(t)
		h := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, m, look{})})
		got, _ := h.call(t, send("ask"))
		if got.Status.State != agentsvc.InputRequired || got.Status.Message.Text() != "Which one?" {
			t.Fatalf("%s: %q", got.Status.State, got.Status.Message.Text())
		}
		if state, _, _ := h.row(t, got.ID, 1); state != store.InputRequired {
			t.Errorf("the run is %s, want it to rest", state)
		}
		answer := send("the red one")
		answer.Message.Task = got.ID
		got, facts := h.call(t, answer)
		if got.Status.State != agentsvc.Completed || got.Status.Message.Text() != "You said: the red one" || facts[len(facts)-1].Seq != got.Seq {
			t.Errorf("%s: %q", got.Status.State, got.Status.Message.Text())
		}
		talk := []string{"user: ask", "agent: Which one?", "user: the red one"}
		m.mu.Lock()
		asked := spoken(m.reqs[1].Conversation)
		m.mu.Unlock()
		if diff := cmp.Diff(talk, asked); diff != "" {
			t.Errorf("the model was asked\n%s", diff)
		}
		if diff := cmp.Diff(append(talk, "agent: You said: the red one"), h.talk(t)); diff != "" {
			t.Errorf("the session holds\n%s", diff)
		}
		if diff := cmp.Diff([]string{"1/0", "2/0"}, m.steps()); diff != "" {
			t.Error(diff)
		}
		for turn, want := range map[int]store.RunState{1: store.InputRequired, 2: store.Completed} {
			if state, _, _ := h.row(t, got.ID, turn); state != want {
				t.Errorf("run %d is %s, want %s", turn, state, want)
			}
		}
	})
}

// cut is an agent that is interrupted when a tool's result has come and nobody has it yet.
type cut struct {
	agent.Agent
	stop func(ctx context.Context)
}

func (c cut) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		for ev, err := range c.Agent.Run(ctx, inv) {
			if ev.Result != nil {
				c.stop(ctx)
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestDrained: a run is stopped just as a tool has its result. The result is kept, so that whoever goes on neither runs
// the tool again nor asks a human about it. A run that has lost its task keeps nothing.
func TestDrained(t *testing.T) {
	for _, cause := range []error{queue.ErrStopping, queue.ErrStale, queue.ErrPostponed, agentsvc.ErrLost} {
		t.Run(cause.Error(), func(t *testing.T) {
			each(t, func(t *testing.T, d *db.DB) {
				var looked atomic.Int64
				seen := look{call: func(context.Context) (string, error) {
					looked.Add(1)
					return "a cat", nil
				}}
				ctx, cancel := context.WithCancelCause(t.Context())
				h := build(d, quick, map[string]agent.Agent{"a": cut{thinker(t, talker(t), seen), func(context.Context) { cancel(cause) }}})
				run := store.Run{
					Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, Epoch: 1, Seq: 1, FirstSeq: 1, Attempts: 1, Worker: "w",
					Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("look")}},
				}
				ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working, Message: &run.Message}}
				if err := h.st.Accept(t.Context(), run, []agentsvc.Event{ev}, nil); err != nil {
					t.Fatal(err)
				}
				if err := h.run.Run(ctx, run); !errors.Is(err, cause) {
					t.Errorf("stopped because %v: %v", cause, err)
				}
				log, err := h.st.Events(t.Context(), run.Task, 0, 100)
				want := []string{"working", "usage", "message", "result"}
				if errors.Is(cause, agentsvc.ErrLost) {
					want = want[:3]
				}
				if diff := cmp.Diff(want, kinds(log)); err != nil || diff != "" {
					t.Fatalf("%v\n%s", err, diff)
				}
				if errors.Is(cause, agentsvc.ErrLost) {
					return
				}
				if err := store.NewRuns(d).Release(t.Context(), "w"); err != nil {
					t.Fatal(err)
				}
				second := talker(t)
				there := open(t, d, quick, map[string]agent.Agent{"a": thinker(t, second, seen)})
				there.pool.Wake()
				if end := there.wait(t, run.Task); end.Status.State != agentsvc.Completed || end.Status.Message.Text() != "I saw: a cat" || looked.Load() != 1 {
					t.Errorf("%s %q, looked %d times", end.Status.State, end.Status.Message.Text(), looked.Load())
				}
				if diff := cmp.Diff([]string{"1/1"}, second.steps()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
