package receiver_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestIsolation: a tenant neither reads nor changes the receivers of another tenant's task, and adds none to it.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		alice := receiver.New(d, "alice", audit.NewTarget("alice"))
		bob := receiver.New(d, "bob", audit.NewTarget("bob"))
		var b db.Batch
		dbtest.InsertTask(&b, "alice", "t1")
		if err := d.Tenant("alice").Do(ctx, &b); err != nil {
			t.Fatal(err)
		}
		hers := receiver.Receiver{Task: "t1", ID: "r1", Format: "a2a", Value: "sealed"}
		if err := alice.Set(ctx, hers); err != nil {
			t.Fatal(err)
		}
		before, err := alice.List(ctx, "t1")
		if err != nil || len(before) != 1 {
			t.Fatal(before, err)
		}
		his := hers
		his.Value = "his"
		if err := bob.Set(ctx, his); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("Bob sets: %v", err)
		}
		b = db.Batch{}
		receiver.QueueInsert(&b, "bob", his, 1, 1)
		if err := d.Tenant("bob").Do(ctx, &b); err != nil {
			t.Error(err)
		}
		if list, err := bob.List(ctx, "t1"); err != nil || len(list) != 0 {
			t.Errorf("Bob lists %+v (%v)", list, err)
		}
		if err := bob.Delete(ctx, "t1", "r1"); err != nil {
			t.Errorf("Bob deletes: %v", err)
		}
		after, err := alice.List(ctx, "t1")
		if diff := cmp.Diff(before, after); err != nil || diff != "" {
			t.Errorf("Alice's receivers have changed (%v)\n%s", err, diff)
		}
	})
}
