package task_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/deadletter"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestTurnsHaveTraceAndReceivers: the run of every turn, whatever opened it, has the trace of its request and the
// configured notifications of its agent.
func TestTurnsHaveTraceAndReceivers(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		ctx := trail.WithTraceParent(t.Context(), trace)
		p := startProcess(t, d, func(w *runWork) error {
			if w.run.Turn == 1 && w.run.Message.Text() == "ask" {
				wait := agentsvc.Event{Approval: &agentsvc.Approval{Call: agentsvc.ToolCall{ID: "c1", Name: "send", Arguments: []byte("{}")}, Kind: agentsvc.ApproveCall}}
				rest := agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.InputRequired}}
				return w.RecordFacts(w, store.Record{Events: []agentsvc.Event{wait, rest}, EndState: store.InputRequired})
			}
			point := agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AtStart}}
			over := agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Failed}}
			return w.RecordFacts(w, store.Record{Events: []agentsvc.Event{point, over}, EndState: store.Failed, Error: "no luck"})
		}, task.Options{Notifications: func(agent string) []string { return []string{"tells of " + agent} }})
		requireTraceAndReceivers := func(how string, id agentsvc.TaskID, turn int64) {
			t.Helper()
			var got string
			var b db.Batch
			b.Query(func(r db.Row) error { return r.Scan(&got) }, `SELECT trace FROM run WHERE task = $1 AND turn = $2`, string(id), turn)
			if err := d.Platform().Do(t.Context(), &b); err != nil || got != trace {
				t.Errorf("%s: the run's trace is %q (%v)", how, got, err)
			}
			list, err := p.st.Receivers.List(t.Context(), id)
			names := []string{}
			for _, r := range list {
				names = append(names, r.PublicID())
			}
			if diff := cmp.Diff([]string{"tells of assistant"}, names); err != nil || diff != "" {
				t.Errorf("%s (%v):\n%s", how, err, diff)
			}
		}
		ended := func(sub task.Submission) agentsvc.Task {
			t.Helper()
			got, evs, err := p.Messages.SubmitAndFollow(ctx, sub)
			if err != nil {
				t.Fatal(err)
			}
			for ev, err := range evs {
				if err != nil {
					t.Fatal(err)
				}
				if got.ApplyEvent(ev); ev.Status != nil && ev.Status.State.IsInterrupted() {
					break
				}
			}
			return got
		}
		failed := ended(newSubmission("hi"))
		requireTraceAndReceivers("submitted", failed.ID, 1)
		points, err := p.Checkpoints.List(ctx, task.Visibility{}, failed.ID)
		if err != nil || len(points) != 1 {
			t.Fatal(points, err)
		}
		restored, err := p.Checkpoints.Restore(ctx, task.Visibility{}, failed.ID, points[0].Seq, audit.Actor{Name: ana.Subject}, nil)
		if err != nil {
			t.Fatal(err)
		}
		requireTraceAndReceivers("restored", restored.ID, 1)
		letters := task.NewDeadLetters(d, p.hub, p.pool.WakeClaimers, task.DeadOptions{})
		_, next, err := letters.Requeue(ctx, nil, audit.Actor{Name: "op"}, deadletter.ID{Task: failed.ID, Turn: 1})
		if err != nil {
			t.Fatal(err)
		}
		requireTraceAndReceivers("requeued", next, 1)
		requested := ended(newSubmission("ask"))
		if _, err := p.Decisions.Decide(ctx, task.Visibility{}, requested.ID, ana, audit.Origin{}, task.DecisionInput{Call: "c1", Outcome: agentsvc.OutcomeApproved}); err != nil {
			t.Fatal(err)
		}
		requireTraceAndReceivers("decided", requested.ID, 2)
		triggered, err := p.Messages.Submit(ctx, task.Submission{Agent: "assistant", Owner: ana, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart("it is time")}}, Key: "tick 1", Background: true})
		if err != nil {
			t.Fatal(err)
		}
		requireTraceAndReceivers("triggered", triggered.ID, 1)
	})
}
