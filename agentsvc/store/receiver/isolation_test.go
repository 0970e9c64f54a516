package receiver_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// insertTask writes the row of a task at epoch 1 and sequence 1.
func insertTask(t *testing.T, d *db.DB, tenant db.ID, id agentsvc.TaskID) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		VALUES ($1, $2, 'a', 'c', 'stoa', 'ana', 'working', 1, 1, 1, 1, 0, 0)`, string(tenant), string(id))
	if err := d.Tenant(tenant).Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestIsolation: a tenant neither reads nor changes the receivers of another tenant's task, and adds none to it.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		alice := receiver.New(d, "alice", tenancy.NewAuditTarget("alice"))
		bob := receiver.New(d, "bob", tenancy.NewAuditTarget("bob"))
		insertTask(t, d, "alice", "t1")
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
		var b db.Batch
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
