package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/callcancel"
	"stoa/tenancy/db"
)

// TestIsolation: with every id of Alice's task, Bob sees what he would see for ids that do not exist, and changes
// nothing.
func TestIsolation(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, _ *store.Store) {
		ctx := t.Context()
		alice, bob := store.New(d, "alice"), store.New(d, "bob")
		run := newRun("w1")
		run.Tenant = "alice"
		sent := store.SentMessage{Message: "m1", Context: "c1", Hash: "h"}
		if err := alice.Tasks.Create(ctx, store.NewTurn{Run: run, Events: openingEvents(run), Sent: &sent}); err != nil {
			t.Fatal(err)
		}
		rec := store.Record{
			Events:         sequenceEvents(run.Task, 3, messageEvent("secret"), approvalEvent("c1", time.Microsecond), statusEvent(agentsvc.InputRequired, agentMessage("secret?"))),
			EndState:       store.InputRequired,
			SessionEntries: []agentsvc.Entry{{Message: agentMessage("secret")}},
		}
		if err := alice.Runs.WriteRecord(ctx, &run, rec); err != nil {
			t.Fatal(err)
		}
		working := newQueuedRun("w1")
		working.Tenant = "alice"
		createTask(t, alice, working)
		callCancel := callcancel.Request{Tenant: "alice", Task: working.Task, Turn: 1, Call: "c1", Reason: "secret"}
		if err := errors.Join(alice.CallCancels.Request(ctx, callCancel), callcancel.NewQueue(d).MarkCancelled(ctx, callCancel)); err != nil {
			t.Fatal(err)
		}
		seen := loadTask(t, alice, run.Task)
		before := dumpTables(t, d)

		// The answer to Bob about id, as a comparable value.
		answers := func(id agentsvc.TaskID, context agentsvc.ContextID, m store.SentMessage) (out []any) {
			appendResult := func(v any, err error) {
				text := "none"
				if err != nil {
					text = err.Error()
				}
				out = append(out, v, text)
			}
			got, err := bob.Tasks.Load(ctx, nil, id, store.TaskParts{History: true, Artifacts: true})
			appendResult(got, errors.Unwrap(err))
			evs, err := bob.Events.Load(ctx, nil, id, 0, 100)
			appendResult(evs, err)
			evs, err = bob.Runs.LoadJournal(ctx, nil, id, 1)
			appendResult(evs, err)
			sess, err := bob.Sessions.Load(ctx, ana, context)
			appendResult(sess.Entries, err)
			known, hash, err := bob.Tasks.FindSentMessage(ctx, ana, "assistant", m)
			appendResult([]string{string(known), hash}, err)
			listed, err := bob.Tasks.List(ctx, nil, store.TaskFilter{Context: context, Before: id + "z", Limit: 10})
			page, total := listed.Tasks, listed.Total
			appendResult(page, err)
			appendResult(total, nil)
			mine := run
			mine.Task = id
			_, err = bob.Runs.BeginRun(ctx, &store.Run{Tenant: "bob", Task: id, Turn: 1})
			appendResult(nil, err)
			mine.Epoch, mine.Seq = seen.Epoch, seen.Seq
			err = bob.Runs.WriteRecord(ctx, &mine, store.Record{
				Events: sequenceEvents(id, seen.Seq+1, statusEvent(agentsvc.Completed, agentMessage("mine"))), EndState: store.Completed, SessionEntries: []agentsvc.Entry{{Message: agentMessage("mine")}},
			})
			appendResult(nil, err)
			there := seen
			there.ID = id
			next, evs := nextTurn(there, "w9", "mine")
			appendResult(nil, bob.Tasks.Continue(ctx, there, store.NewTurn{Run: next, Events: evs, Sent: &m}))
			open, err := bob.Tasks.Load(ctx, nil, id, store.TaskParts{Approvals: true})
			appendResult(open, errors.Unwrap(err))
			seqs, err := bob.Approvals.ListOverdue(ctx, id)
			appendResult(seqs, err)
			appendResult(nil, bob.CallCancels.Request(ctx, callcancel.Request{Task: id, Turn: 1, Call: "c1"}))
			taken, err := bob.CallCancels.IsCancelled(ctx, callcancel.Request{Task: id, Turn: 1, Call: "c1"})
			appendResult(taken, err)
			line, err := bob.Runs.ListQueuedTasks(ctx, ana, context)
			appendResult(line, err)
			called, err := bob.Runs.PromoteNext(ctx, ana, context)
			appendResult(called, err)
			appendResult(nil, bob.Runs.Unclaim(ctx, store.Run{Task: id, Turn: 1, Lease: store.Lease{Worker: "w1"}}))
			appendResult(nil, bob.Approvals.RecordDecisions(ctx, there, store.DecisionRecord{
				Events: sequenceEvents(id, seen.Seq+1, statusEvent(agentsvc.Rejected, agentMessage("no"))), ClosedApprovals: []int64{4}, Sender: ana, SentMessage: &m,
			}))
			appendResult(nil, bob.Tasks.Cancel(ctx, there, sequenceEvents(id, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]))
			return out
		}
		for _, id := range []agentsvc.TaskID{run.Task, working.Task} {
			want := answers(agentsvc.TaskID(agentsvc.NewID()), "nowhere", store.SentMessage{Message: "never", Context: "nowhere"})
			got := answers(id, "c1", sent)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unknown id -, Alice's id +\n%s", diff)
			}
		}
		if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
			t.Errorf("Bob changed\n%s", diff)
		}
		// Bob can use Alice's ids: rows of different tenants never conflict.
		his := run
		his.Tenant, his.Epoch, his.Seq, his.Message = "bob", 1, 2, agentsvc.Message{Role: agentsvc.RoleUser}
		if err := bob.Tasks.Create(ctx, store.NewTurn{Run: his, Events: openingEvents(his), Sent: &sent}); err != nil {
			t.Fatalf("Bob's own task under an id of Alice's: %v", err)
		}
		if diff := cmp.Diff(seen, loadTask(t, alice, run.Task)); diff != "" {
			t.Errorf("Alice's task is another one now\n%s", diff)
		}
		if got := loadTask(t, bob, run.Task); got.Epoch != 1 || len(got.History) != 1 {
			t.Errorf("Bob's task holds %+v", got)
		}
	})
}
