package runner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// TestRecovery: a process stops in the middle of a run. The RecoveryPolicy decides whether another process continues
// it.
func TestRecovery(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		for _, c := range []struct {
			name   string
			allows runner.RecoveryPolicy
			text   string
			human  bool // the run continued after an answer
			want   agentsvc.State
			why    string
		}{
			{"nothing is said", runner.RecoveryPolicy{}, "look", false, agentsvc.Completed, ""},
			{"young enough", runner.RecoveryPolicy{MaxAge: time.Hour}, "look", false, agentsvc.Completed, ""},
			{"too old", runner.RecoveryPolicy{MaxAge: time.Nanosecond}, "look", false, agentsvc.Failed, "its app allows interrupted tasks to continue for 1ns"},
			{"never", runner.RecoveryPolicy{NeverAfterMessage: true}, "look", false, agentsvc.Failed, "does not allow interrupted tasks to continue"},
			{"never after an answer", runner.RecoveryPolicy{NeverAfterHuman: true}, "look", false, agentsvc.Completed, ""},
			{"never, after an answer", runner.RecoveryPolicy{NeverAfterHuman: true}, "ask", true, agentsvc.Failed, "does not allow interrupted tasks to continue"},
			{"only after an answer", runner.RecoveryPolicy{NeverAfterMessage: true}, "ask", true, agentsvc.Completed, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				began := make(chan struct{}, 1)
				hangs := lookTool{idempotent: true, call: func(ctx context.Context) (string, error) {
					began <- struct{}{}
					<-ctx.Done()
					return "", ctx.Err()
				}}
				m := newTalkerModel(t)
				h := openTestProcess(t, d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, hangs)})
				sub := newSubmission(c.text)
				if c.human {
					got, _ := h.submitAndDrain(t, sub)
					sub = newSubmission("look")
					sub.Message.Task = got.ID
				}
				got, err := h.Messages.Submit(t.Context(), sub)
				if err != nil {
					t.Fatal(err)
				}
				<-began
				h.stopNow(t)
				there := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{idempotent: true})})
				there.options.Recovery = c.allows
				there.resetRunner()
				there.startWorking(t)
				there.pool.WakeClaimers()
				end := there.waitUntilSettled(t, got.ID)
				if end.Status.State != c.want || !strings.Contains(end.Status.Message.Text(), c.why) {
					t.Errorf("the task is %s: %q", end.Status.State, end.Status.Message.Text())
				}
				log, err := h.st.Events.Load(t.Context(), nil, got.ID, 0, 100)
				at := slices.IndexFunc(log, func(ev agentsvc.Event) bool { return ev.Attempt != nil })
				if err != nil || at < 0 || !log[at].Attempt.CutOff || log[at].Attempt.Number < 1 || !strings.Contains(log[at].Attempt.Reason, "process") {
					t.Errorf("the log does not say that the process stopped: %v (%v)", eventKinds(log), err)
				}
			})
		}
	})
}

// TestNotCutOff: a run that never began continues whatever the policy.
func TestNotCutOff(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, newTalkerModel(t), lookTool{})})
		h.options.Recovery = runner.RecoveryPolicy{NeverAfterMessage: true, NeverAfterHuman: true}
		h.resetRunner()
		got, err := h.Messages.Submit(t.Context(), newSubmission("hello"))
		if err != nil {
			t.Fatal(err)
		}
		q := store.NewRunQueue(d)
		if runs, err := q.ClaimRuns(t.Context(), "w", []store.Share{{Tenant: "acme", ClaimCount: 1}}); err != nil || len(runs) != 1 {
			t.Fatalf("claimed %v (%v)", runs, err)
		}
		if _, err := q.ReleaseRuns(t.Context(), "w"); err != nil {
			t.Fatal(err)
		}
		h.startWorking(t)
		h.pool.WakeClaimers()
		if end := h.waitUntilSettled(t, got.ID); end.Status.State != agentsvc.Completed {
			t.Errorf("%+v", end.Status)
		}
	})
}

// newStumblerModel returns a model that calls look twice and then fails as often as there are stones.
func newStumblerModel(t *testing.T) *model {
	look := scripted.Item{Call: &scripted.Call{Tool: "look"}}
	return newScriptedModel(t,
		scripted.Rule{When: scripted.When{Text: "^go$"}, Then: []scripted.Item{look}},
		scripted.Rule{When: scripted.When{ToolResult: "look", Text: "^1$"}, Then: []scripted.Item{look}},
		scripted.Rule{When: scripted.When{ToolResult: "look", Text: "^2$"}, Then: []scripted.Item{{Failure: &scripted.Failure{Status: 400, Message: "no"}}}},
		scripted.Rule{Then: []scripted.Item{{Text: "I saw {{result}}"}}},
	)
}

// TestCheckpoints: which places of a turn each policy writes.
func TestCheckpoints(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		for _, c := range []struct {
			o    runner.CheckpointPolicy
			want []string
		}{
			{runner.CheckpointPolicy{AfterTools: true, BeforeLLM: true, Interval: 1}, nil},
			{runner.CheckpointPolicy{Enabled: true}, []string{"start 0"}},
			{runner.CheckpointPolicy{Enabled: true, AfterTools: true}, []string{"start 0", "after_tools 1", "after_tools 2"}},
			{runner.CheckpointPolicy{Enabled: true, BeforeLLM: true}, []string{"start 0", "before_llm 0", "before_llm 1", "before_llm 2"}},
			{runner.CheckpointPolicy{Enabled: true, Interval: 2}, []string{"start 0", "interval 2"}},
		} {
			var n atomic.Int64
			count := lookTool{call: func(context.Context) (string, error) { return fmt.Sprint(n.Add(1)), nil }}
			h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, newStumblerModel(t), count)})
			h.options.Checkpoints = c.o
			h.resetRunner()
			h.startWorking(t)
			got, _ := h.submitAndDrain(t, newSubmission("go"))
			checkpoints, err := h.Checkpoints.List(t.Context(), anaVisibility, got.ID)
			if err != nil || got.Status.State != agentsvc.Failed {
				t.Fatalf("%s (%v)", got.Status.State, err)
			}
			var names []string
			for _, ev := range checkpoints {
				names = append(names, fmt.Sprint(ev.Checkpoint.Reason, " ", ev.Checkpoint.Step))
			}
			if diff := cmp.Diff(c.want, names); diff != "" {
				t.Errorf("%+v\n%s", c.o, diff)
			}
			h.stopNow(t)
		}
	})
}

// TestRestore: a failed task is restored from each of its checkpoints. What was recorded by then is not repeated.
func TestRestore(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		var n atomic.Int64
		count := lookTool{call: func(context.Context) (string, error) { return fmt.Sprint(n.Add(1)), nil }}
		m := newStumblerModel(t)
		h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, count)})
		h.options.Checkpoints = runner.CheckpointPolicy{Enabled: true, AfterTools: true}
		h.resetRunner()
		h.startWorking(t)
		sub := newSubmission("go")
		sub.Roles = []string{"finance"}
		failed, _ := h.submitAndDrain(t, sub)
		checkpoints, err := h.Checkpoints.List(t.Context(), anaVisibility, failed.ID)
		if err != nil || len(checkpoints) != 3 {
			t.Fatalf("kept %v (%v)", checkpoints, err)
		}
		for i, c := range []struct {
			calls int64
			asked int
			state agentsvc.State
			says  string
		}{
			{1, 2, agentsvc.Completed, "I saw 3"},         // from the start: the model accepts the third result
			{1, 2, agentsvc.Completed, "I saw 4"},         // "1" is recorded; the model does not accept it
			{0, 1, agentsvc.Failed, "refused as invalid"}, // "1" and "2" are recorded, at which the model fails
		} {
			before, requested := n.Load(), len(m.requestSteps())
			got, err := h.Checkpoints.Restore(t.Context(), anaVisibility, failed.ID, checkpoints[i].Seq, audit.Actor{Name: "op"}, nil)
			if err != nil || got.ID == failed.ID || got.Status.State != agentsvc.Submitted || got.Context != failed.Context || got.Owner != failed.Owner {
				t.Fatalf("restored %+v (%v)", got, err)
			}
			if roles, err := h.st.Runs.LoadRoles(t.Context(), got.ID); err != nil || len(roles) != 1 || roles[0] != "finance" {
				t.Errorf("from %d: the roles are %v, %v", i, roles, err)
			}
			end := h.waitUntilSettled(t, got.ID)
			if end.Status.State != c.state || !strings.Contains(end.Status.Message.Text(), c.says) {
				t.Errorf("from %d: %s, %q", i, end.Status.State, end.Status.Message.Text())
			}
			if made := n.Load() - before; made != c.calls || len(m.requestSteps())-requested != c.asked {
				t.Errorf("from %d: %d tool calls, %d model calls", i, made, len(m.requestSteps())-requested)
			}
			from, _ := end.History[0].Metadata["restored_from"].(map[string]any)
			if from["task_id"] != string(failed.ID) || from["checkpoint"] != float64(checkpoints[i].Seq) {
				t.Errorf("it says that it comes from %v", from)
			}
			if end.Status.State == agentsvc.Completed {
				if _, err := h.Checkpoints.Restore(t.Context(), anaVisibility, got.ID, 2, audit.Actor{Name: "op"}, nil); !errors.Is(err, task.ErrNotRestorable) {
					t.Errorf("a task that completed: %v", err)
				}
			}
		}
		noted := 0
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&noted) }, `SELECT COUNT(*) FROM audit WHERE action = 'checkpoint.restore' AND actor = 'op'`)
		if err := d.Platform().Do(t.Context(), &b); err != nil || noted != 3 {
			t.Errorf("%d entries on the audit trail, want 3 (%v)", noted, err)
		}
		still, err := h.Reader.Get(t.Context(), anaVisibility, failed.ID, store.TaskParts{})
		if err != nil || still.Seq != failed.Seq || still.Status.State != agentsvc.Failed {
			t.Errorf("the task that failed is now %+v (%v)", still, err)
		}
		bob := task.Visibility{Owner: &agentsvc.Owner{Issuer: "stoa", Subject: "bob"}}
		for _, id := range []int64{checkpoints[0].Seq + 1, 0, -1, 1000} {
			if _, err := h.Checkpoints.Restore(t.Context(), anaVisibility, failed.ID, id, audit.Actor{Name: "op"}, nil); !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("no checkpoint stands at %d: %v", id, err)
			}
		}
		if _, err := h.Checkpoints.Restore(t.Context(), bob, failed.ID, checkpoints[0].Seq, audit.Actor{Name: "op"}, nil); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("another's task: %v", err)
		}
		if _, err := h.Checkpoints.List(t.Context(), bob, failed.ID); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("another's checkpoints: %v", err)
		}
	})
}

// checkpointProbe is an agent that reads the log each time before its model is called.
type checkpointProbe struct {
	agent.Agent
	onCheckpoint func(step int)
}

func (p checkpointProbe) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		for ev, err := range p.Agent.Run(ctx, inv) {
			if !yield(ev, err) {
				return
			}
			if c := ev.Checkpoint; c != nil && c.Reason == agentsvc.BeforeLLM {
				p.onCheckpoint(c.Step)
			}
		}
	}
}

// TestCheckpointsDurable: the checkpoints behind a round of tools are on the log, in one transaction with its last
// result, before the model is called again.
func TestCheckpointsDurable(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		var n atomic.Int64
		var h *testProcess
		found := map[int][]string{}
		count := lookTool{call: func(context.Context) (string, error) { return fmt.Sprint(n.Add(1)), nil }}
		h = newTestProcess(d, quickRetry, map[string]agent.Agent{"a": checkpointProbe{newLookAgent(t, newStumblerModel(t), count), func(step int) {
			page, err := h.Reader.List(context.Background(), task.Visibility{}, task.Query{})
			if err != nil || len(page.Tasks) != 1 {
				t.Errorf("%d tasks (%v)", len(page.Tasks), err)
				return
			}
			evs, err := h.st.Events.Load(context.Background(), nil, page.Tasks[0].ID, 0, 100)
			if err != nil {
				t.Error(err)
			}
			result := int64(0)
			for _, ev := range evs {
				switch {
				case ev.Result != nil:
					result = ev.Seq
				case ev.Checkpoint != nil && ev.Checkpoint.Reason != agentsvc.AtStart:
					found[step] = append(found[step], fmt.Sprint(ev.Checkpoint.Reason, " ", ev.Checkpoint.Step))
					if ev.Checkpoint.Step > 0 && ev.Seq > result+2 {
						t.Errorf("%s stands at %d, its fact at %d", ev.Checkpoint.Reason, ev.Seq, result)
					}
				}
			}
		}}})
		h.options.Checkpoints = runner.CheckpointPolicy{Enabled: true, AfterTools: true, BeforeLLM: true}
		h.resetRunner()
		h.startWorking(t)
		got, _ := h.submitAndDrain(t, newSubmission("go"))
		if got.Status.State != agentsvc.Failed {
			t.Fatal(got.Status.State)
		}
		first := []string{"before_llm 0", "after_tools 1", "before_llm 1"}
		want := map[int][]string{1: first, 2: append(first[:3:3], "after_tools 2", "before_llm 2")}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("on the log before each call of the model (-want +got)\n%s", diff)
		}
	})
}

// TestDrainedBetween: a run is stopped between a tool's last result and the checkpoints behind it: the result is
// written, and the next attempt repeats no call.
func TestDrainedBetween(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		var looked atomic.Int64
		seen := lookTool{call: func(context.Context) (string, error) { looked.Add(1); return "a cat", nil }}
		ctx, cancel := context.WithCancelCause(t.Context())
		h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": interruptingAgent{newLookAgent(t, newTalkerModel(t), seen), func(context.Context) { cancel(queue.ErrStopping) }}})
		h.options.Checkpoints = runner.CheckpointPolicy{Enabled: true, AfterTools: true}
		h.resetRunner()
		run := store.Run{
			Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c1", Owner: ana, FirstSeq: 1, Attempts: 1,
			Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("look")}},
			Lease:   store.Lease{Epoch: 1, Seq: 1, Worker: "w"},
		}
		ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working, Message: &run.Message}}
		if err := h.st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{ev}}); err != nil {
			t.Fatal(err)
		}
		if err := h.runner.Run(ctx, run, agentsvc.LeaseCheck{}); !errors.Is(err, queue.ErrStopping) {
			t.Error(err)
		}
		evs, err := h.st.Events.Load(t.Context(), nil, run.Task, 0, 100)
		if err != nil || !slices.ContainsFunc(evs, func(ev agentsvc.Event) bool { return ev.Result != nil }) || looked.Load() != 1 {
			t.Errorf("the result is not on the log: %d events (%v), %d calls", len(evs), err, looked.Load())
		}
	})
}
