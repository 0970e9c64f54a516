package db_test

import (
	"testing"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReadTx reads twice in one transaction while another writes: both reads see one state, and a write in it is refused.
func TestReadTx(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		count := func(tx *db.Tx) (n int) {
			err := tx.Query(t.Context(), func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM task`)
			if err != nil {
				t.Error(err)
			}
			return n
		}
		err := d.Tenant("alice").ReadTx(t.Context(), func(tx *db.Tx) error {
			if n := count(tx); n != 0 {
				t.Errorf("%d tasks at first", n)
			}
			var b db.Batch
			insertTask(&b, "alice", "1")
			if err := d.Tenant("alice").Do(t.Context(), &b); err != nil {
				t.Error(err)
			}
			if n := count(tx); n != 0 {
				t.Errorf("%d tasks after another transaction has inserted one, want the state before", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		err = d.Platform().ReadTx(t.Context(), func(tx *db.Tx) error {
			if n := count(tx); n != 1 {
				t.Errorf("%d tasks in another transaction, want 1", n)
			}
			_, err := tx.Exec(t.Context(), `DELETE FROM task`)
			return err
		})
		if err == nil {
			t.Error("a transaction that only reads has written")
		}
		// Another tenant's handle reads nothing on PostgreSQL, where row-level security applies.
		if err := d.Tenant("bob").ReadTx(t.Context(), func(tx *db.Tx) error {
			if n := count(tx); d.Engine() == db.Postgres && n != 0 {
				t.Errorf("another tenant reads %d tasks", n)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
