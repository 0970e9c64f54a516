package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newReceiver returns a receiver of a task, or of the task that its run opens.
func newReceiver(id agentsvc.TaskID, name string) receiver.Receiver {
	return receiver.Receiver{Task: id, ID: name, Format: "form", Value: "c2VhbGVk", MasterKey: "k1"}
}

// claimReceivers leases the due receivers for a minute.
func claimReceivers(t *testing.T, q *receiver.Queue, n, perTenant int) []*receiver.Claimed {
	t.Helper()
	got, err := q.Claim(t.Context(), n, perTenant, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestReceiver: a receiver that comes with a message starts at its turn, one that is set later at the current event;
// both get each event once, and the task's end is the last.
func TestReceiver(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := receiver.NewQueue(d)
		for name, fresh := range map[string]bool{"fresh": true, "in a session": false} {
			run := newRun("w1")
			with := newReceiver("", "")
			run.IsNewContext = fresh
			turn := newTurn(run)
			turn.Receiver = &with
			run = createTurn(t, s, turn)
			if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, "later")); err != nil {
				t.Fatal(err)
			}
			got, err := s.Receivers.List(t.Context(), run.Task)
			want := []receiver.Receiver{newReceiver(run.Task, string(run.Task)), newReceiver(run.Task, "later")}
			want[0].State, want[1].State, want[1].DeliveredSeq = receiver.Open, receiver.Open, 2
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(receiver.Receiver{}, "Created"), cmpopts.SortSlices(func(a, b receiver.Receiver) bool { return a.DeliveredSeq < b.DeliveredSeq })); err != nil || diff != "" {
				t.Fatalf("%s: %v %s", name, err, diff)
			}
			first := claimReceivers(t, q, 10, 10)
			if len(first) != 1 || first[0].ID != string(run.Task) || len(claimReceivers(t, q, 10, 10)) != 0 {
				t.Fatalf("%s: claimed %+v, want the first alone, and that once", name, first)
			}
			if err := q.MarkDelivered(t.Context(), first[0], 2, false, time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := q.Release(t.Context(), first[0], 0); err != nil {
				t.Fatal(err)
			}
			if got := claimReceivers(t, q, 10, 10); len(got) != 0 {
				t.Errorf("%s: there is nothing to deliver, and %+v is claimed", name, got)
			}
			rec := store.Record{Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.Completed, nil)), EndState: store.Completed}
			if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
				t.Fatal(err)
			}
			for _, c := range claimReceivers(t, q, 10, 10) {
				if err := q.MarkDelivered(t.Context(), c, 3, true, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			list, err := s.Receivers.List(t.Context(), run.Task)
			if err != nil || len(list) != 2 || list[0].State != receiver.Done || list[1].State != receiver.Done {
				t.Errorf("%s: after the end %+v, %v", name, list, err)
			}
		}
	})
}

// TestReceiverClaimNotCommitted: a claim whose commit failed has leased no receiver, although the database had returned
// it.
func TestReceiverClaimNotCommitted(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		turn, with := newTurn(newRun("w1")), newReceiver("", "")
		turn.Receiver = &with
		createTurn(t, s, turn)
		q := receiver.NewQueue(d)
		commit := dbtest.FailCommits(t, d, "receiver", "NEW.holder <> ''")
		if got, err := q.Claim(t.Context(), 10, 10, time.Minute); err == nil || len(got) != 0 {
			t.Errorf("claimed %d receivers (%v), want none and an error", len(got), err)
		}
		commit()
		if got := claimReceivers(t, q, 10, 10); len(got) != 1 {
			t.Errorf("afterwards claimed %d receivers, want one", len(got))
		}
	})
}

// TestReceiverFails: a failed receiver is delayed, counts the time since its first failure and is given up; a claim
// that has lost the lease writes nothing.
func TestReceiverFails(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q, run := receiver.NewQueue(d), newRun("w1")
		with := newReceiver("", "r")
		turn := newTurn(run)
		turn.Receiver = &with
		run = createTurn(t, s, turn)
		c := claimReceivers(t, q, 1, 1)[0]
		if err := q.MarkFailed(t.Context(), c, "it is down", 0); err != nil {
			t.Fatal(err)
		}
		if err := q.MarkDelivered(t.Context(), c, 2, false, time.Minute); !errors.Is(err, agentsvc.ErrLeaseLost) {
			t.Errorf("without a lease: %v", err)
		}
		c = claimReceivers(t, q, 1, 1)[0]
		if c.Attempts != 1 || c.FailingFor <= 0 {
			t.Errorf("after a failure: %d attempts, failing for %v", c.Attempts, c.FailingFor)
		}
		if err := q.MarkFailed(t.Context(), c, "it is down", time.Hour); err != nil {
			t.Fatal(err)
		}
		if open, failing, err := q.Count(t.Context()); err != nil || open != 1 || failing != 1 {
			t.Errorf("counted %d, %d, %v", open, failing, err)
		}
		if got := claimReceivers(t, q, 1, 1); len(got) != 0 {
			t.Errorf("claimed before its time: %+v", got)
		}
		if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, "r")); err != nil { // setting it again makes it due
			t.Fatal(err)
		}
		c = claimReceivers(t, q, 1, 1)[0]
		if c.Attempts != 0 || c.Receiver.DeliveredSeq != 0 {
			t.Errorf("set anew: %+v", c)
		}
		if err := q.MarkDead(t.Context(), c, "it is gone"); err != nil {
			t.Fatal(err)
		}
		list, err := s.Receivers.List(t.Context(), run.Task)
		if err != nil || list[0].State != receiver.Dead || list[0].Error != "it is gone" {
			t.Errorf("given up: %+v, %v", list, err)
		}
	})
}

// TestReceiverShares: a tenant has at most its share of leased receivers, whichever process claims, and does not
// delay another tenant.
func TestReceiverShares(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		for _, tenant := range []db.ID{"busy", "busy", "busy", "busy", "quiet"} {
			run := newRun("w1")
			with := newReceiver("", "")
			run.Tenant = tenant
			turn := newTurn(run)
			turn.Receiver = &with
			createTurn(t, store.New(d, tenant), turn)
		}
		var got []string
		for range 2 {
			for _, c := range claimReceivers(t, receiver.NewQueue(d), 3, 2) {
				got = append(got, string(c.Tenant))
			}
		}
		if diff := cmp.Diff([]string{"busy", "busy", "quiet"}, got, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStanding: a configured receiver does not count against the callers' limit, and no caller can reach it.
func TestStanding(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		turn := newTurn(newRun("w1"))
		turn.Notifications = []string{"one", "two"}
		run := createTurn(t, s, turn)
		for i := range receiver.MaxPerTask {
			if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, "one")); !errors.Is(err, receiver.ErrTooMany) {
			t.Errorf("in place of a standing one: %v", err)
		}
		if err := s.Receivers.Delete(t.Context(), run.Task, "two"); err != nil {
			t.Fatal(err)
		}
		list, err := s.Receivers.List(t.Context(), run.Task)
		var names []string
		for _, r := range list {
			if r.IsStanding() {
				names = append(names, r.PublicID())
			}
		}
		if diff := cmp.Diff([]string{"one", "two"}, names); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	})
}

// TestReceiverBounds: a task has a bounded number of receivers, which are deleted with it; a receiver of a task that
// does not exist is refused.
func TestReceiverBounds(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		for i := range receiver.MaxPerTask {
			if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, "more")); !errors.Is(err, receiver.ErrTooMany) {
			t.Errorf("one more: %v", err)
		}
		if err := s.Receivers.Set(t.Context(), newReceiver(run.Task, "0")); err != nil {
			t.Errorf("in place of another: %v", err)
		}
		other := store.New(d, "other")
		for name, err := range map[string]error{
			"of no task":          s.Receivers.Set(t.Context(), newReceiver("none", "r")),
			"of another tenant's": other.Receivers.Set(t.Context(), newReceiver(run.Task, "r")),
		} {
			if !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := other.Receivers.Delete(t.Context(), run.Task, "0"); err != nil {
			t.Fatal(err)
		}
		if list, err := other.Receivers.List(t.Context(), run.Task); err != nil || len(list) != 0 {
			t.Errorf("another tenant sees %+v, %v", list, err)
		}
		if list, err := s.Receivers.List(t.Context(), run.Task); err != nil || len(list) != receiver.MaxPerTask {
			t.Errorf("there are %d, %v", len(list), err)
		}
		if err := s.Sweeper.DeleteAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list, err := s.Receivers.List(t.Context(), run.Task); err != nil || len(list) != 0 {
			t.Errorf("without their task: %+v, %v", list, err)
		}
	})
}
