package store_test

import (
	"fmt"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestCounts: how many old tasks there are is counted once in a while, and of younger ones every time.
func TestCounts(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		first := aged(t, d, s, "acme", "m1", 40*day, agentsvc.Completed)
		var b db.Batch
		const old = 200
		for i := range old - 1 {
			id := fmt.Sprintf("%s%012d", store.FirstID(time.Now().Add(-40 * day))[:24], i)
			b.Exec(nil, `INSERT INTO task SELECT tenant, $1, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at FROM task WHERE id = $2`,
				id, string(first))
			b.Exec(nil, `INSERT INTO event SELECT tenant, $1, seq, at, kind, body FROM event WHERE task = $2`, id, string(first))
		}
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		newest := accept(t, s, aRun("w1")).Task
		total := func(when string, f store.Filter, want int) {
			t.Helper()
			f.Limit = 10
			page, n, err := s.Tasks(t.Context(), f)
			if err != nil || n != want || page[0].ID != newest {
				t.Errorf("%s: %d tasks from %s on (%v), want %d from %s on", when, n, page[0].ID, err, want, newest)
			}
		}
		remove := func() {
			t.Helper()
			var b db.Batch
			b.Exec(nil, "DELETE FROM task WHERE id = $1", string(first))
			if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		all, anas := store.Filter{}, store.Filter{Agents: []string{"assistant"}, Owner: &ana}
		working := store.Filter{State: agentsvc.Working}
		total("all", all, old+1)
		total("hers", anas, old+1)
		total("working", working, 1)
		newest = accept(t, s, aRun("w1")).Task
		remove()
		total("all, with a younger one", all, old+2)
		total("hers, with a younger one", anas, old+2)
		total("working, with a younger one", working, 2)
		s.Later(2 * time.Minute)
		total("all, after a while", all, old+1)
		total("hers, after a while", anas, old+1)
		if n, err := s.Sweep(t.Context(), store.Retention{Tasks: 30 * day}); err != nil || n.Tasks != old-1 {
			t.Fatalf("swept %+v (%v)", n, err)
		}
		total("all, after a sweep", all, 2)
		total("hers, after a sweep", anas, 2)
	})
}
