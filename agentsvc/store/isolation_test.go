package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestIsolation: with every id of Alice's in hand, Bob sees what he would see of ids that never were, and changes
// nothing.
func TestIsolation(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, _ *store.Store) {
		ctx := t.Context()
		alice, bob := store.New(d, "alice"), store.New(d, "bob")
		run := aRun("w1")
		run.Tenant = "alice"
		sent := store.Sent{Message: "m1", Context: "c1", Hash: "h"}
		if err := alice.Accept(ctx, run, first(run), &sent); err != nil {
			t.Fatal(err)
		}
		rec := store.Record{
			Events:  events(run.Task, 3, message("secret"), approval("c1", time.Microsecond), status(agentsvc.InputRequired, says("secret?"))),
			End:     store.InputRequired,
			Session: []agentsvc.Entry{{Message: says("secret")}},
		}
		working := inLine("w1")
		working.Tenant = "alice"
		accept(t, alice, working)
		if err := alice.Record(ctx, &run, rec); err != nil {
			t.Fatal(err)
		}
		wish := store.CallCancel{Tenant: "alice", Task: working.Task, Turn: 1, Call: "c1", Reason: "secret"}
		if err := errors.Join(alice.AskCancel(ctx, wish), store.NewRuns(d).TakeCancel(ctx, wish)); err != nil {
			t.Fatal(err)
		}
		seen := task(t, alice, run.Task)
		before := dump(t, d)

		// What Bob is answered about id, as a value that can be compared.
		answers := func(id agentsvc.TaskID, context agentsvc.ContextID, m store.Sent) (out []any) {
			say := func(v any, err error) {
				text := "none"
				if err != nil {
					text = err.Error()
				}
				out = append(out, v, text)
			}
			got, err := bob.Task(ctx, id, store.With{History: true, Artifacts: true})
			say(got, errors.Unwrap(err))
			evs, err := bob.Events(ctx, id, 0, 100)
			say(evs, err)
			evs, err = bob.Journal(ctx, store.Run{Task: id, FirstSeq: 1})
			say(evs, err)
			sess, err := bob.Session(ctx, ana, context)
			say(sess.Entries, err)
			known, hash, err := bob.FindSent(ctx, ana, "assistant", m)
			say([]string{string(known), hash}, err)
			listed, err := bob.Tasks(ctx, store.Filter{Context: context, Before: id + "z", Limit: 10})
			page, total := listed.Tasks, listed.Total
			say(page, err)
			say(total, nil)
			mine := run
			mine.Task = id
			_, err = bob.Begin(ctx, &store.Run{Tenant: "bob", Task: id, Turn: 1})
			say(nil, err)
			mine.Epoch, mine.Seq = seen.Epoch, seen.Seq
			err = bob.Record(ctx, &mine, store.Record{
				Events: events(id, seen.Seq+1, status(agentsvc.Completed, says("mine"))), End: store.Completed, Session: []agentsvc.Entry{{Message: says("mine")}},
			})
			say(nil, err)
			there := seen
			there.ID = id
			next, evs := next(there, "w9", "mine")
			say(nil, bob.Continue(ctx, there.Task, seen.Epoch, next, evs, &m))
			open, err := bob.Task(ctx, id, store.With{Approvals: true})
			say(open, errors.Unwrap(err))
			seqs, err := bob.Overdue(ctx, id)
			say(seqs, err)
			say(nil, bob.AskCancel(ctx, store.CallCancel{Task: id, Turn: 1, Call: "c1"}))
			taken, err := bob.CancelTaken(ctx, store.CallCancel{Task: id, Turn: 1, Call: "c1"})
			say(taken, err)
			line, err := bob.Line(ctx, ana, context)
			say(line, err)
			called, err := bob.CallUp(ctx, ana, context)
			say(called, err)
			say(nil, bob.Rest(ctx, store.Run{Task: id, Turn: 1, Worker: "w1"}))
			say(nil, bob.Decide(ctx, there, store.Ruling{
				Events: events(id, seen.Seq+1, status(agentsvc.Rejected, says("no"))), Settled: []int64{4}, Sender: ana, Sent: &m,
			}))
			say(nil, bob.Cancel(ctx, there, events(id, seen.Seq+1, status(agentsvc.Cancelled, nil))[0]))
			return out
		}
		for _, id := range []agentsvc.TaskID{run.Task, working.Task} {
			want := answers(agentsvc.TaskID(agentsvc.NewID()), "nowhere", store.Sent{Message: "never", Context: "nowhere"})
			got := answers(id, "c1", sent)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unknown id -, Alice's id +\n%s", diff)
			}
		}
		if diff := cmp.Diff(before, dump(t, d)); diff != "" {
			t.Errorf("Bob changed\n%s", diff)
		}
		// Her ids are free for him to use: his rows and hers do not meet.
		his := run
		his.Tenant, his.Epoch, his.Seq, his.Message = "bob", 1, 2, agentsvc.Message{Role: agentsvc.RoleUser}
		if err := bob.Accept(ctx, his, first(his), &sent); err != nil {
			t.Fatalf("Bob's own task under an id of Alice's: %v", err)
		}
		if diff := cmp.Diff(seen, task(t, alice, run.Task)); diff != "" {
			t.Errorf("Alice's task is another one now\n%s", diff)
		}
		if got := task(t, bob, run.Task); got.Epoch != 1 || len(got.History) != 1 {
			t.Errorf("Bob's task holds %+v", got)
		}
	})
}
