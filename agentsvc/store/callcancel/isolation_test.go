package callcancel_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store/callcancel"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestIsolation: a tenant neither requests that a call of another tenant's task is cancelled nor learns whether it
// was.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		var b db.Batch
		dbtest.InsertTask(&b, "alice", "t1")
		b.Exec(nil, `INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at)
			VALUES ('alice', 't1', 1, 'running', 1, 1, 1, 'w1', 0, '', 0)`)
		if err := d.Tenant("alice").Do(ctx, &b); err != nil {
			t.Fatal(err)
		}
		alice, bob, queue := callcancel.New(d, "alice"), callcancel.New(d, "bob"), callcancel.NewQueue(d)
		his := callcancel.Request{Task: "t1", Turn: 1, Call: "c1", Reason: "his"}
		if err := bob.Request(ctx, his); !errors.Is(err, agentsvc.ErrTaskChanged) {
			t.Errorf("Bob requests: %v", err)
		}
		hers := callcancel.Request{Tenant: "alice", Task: "t1", Turn: 1, Call: "c1", Reason: "hers"}
		if err := alice.Request(ctx, hers); err != nil {
			t.Fatal(err)
		}
		requested, err := queue.ListOpen(ctx, "w1")
		if diff := cmp.Diff([]callcancel.Request{hers}, requested); err != nil || diff != "" {
			t.Errorf("the worker finds (%v)\n%s", err, diff)
		}
		if err := queue.MarkCancelled(ctx, hers); err != nil {
			t.Fatal(err)
		}
		if taken, err := bob.IsCancelled(ctx, his); err != nil || taken {
			t.Errorf("Bob learns that it was cancelled: %v (%v)", taken, err)
		}
		if taken, err := alice.IsCancelled(ctx, hers); err != nil || !taken {
			t.Errorf("Alice's call was not cancelled: %v (%v)", taken, err)
		}
	})
}
