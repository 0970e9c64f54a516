package store_test

import (
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestCounts: the number of older tasks is counted now and then, that of younger ones each time.
func TestCounts(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		const old = 200
		first := createOldTasks(t, d, s, old)
		newest := createTask(t, s, newRun("w1")).Task
		total := func(when string, f store.TaskFilter, want int) {
			t.Helper()
			f.Limit = 10
			listed, err := s.Tasks.List(t.Context(), nil, f)
			page, n := listed.Tasks, listed.Total
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
		all, anas := store.TaskFilter{}, store.TaskFilter{Agents: []string{"assistant"}, Owner: &ana}
		working := store.TaskFilter{State: agentsvc.Working}
		total("all", all, old+1)
		total("hers", anas, old+1)
		total("working", working, 1)
		newest = createTask(t, s, newRun("w1")).Task
		remove()
		total("all, with a younger one", all, old+2)
		total("hers, with a younger one", anas, old+2)
		total("working, with a younger one", working, 2)
		const young = 120
		for range young {
			newest = createTask(t, s, newRun("w1")).Task
		}
		total("all, with many younger ones", all, old+2+young)
		total("hers, with many younger ones", anas, old+2+young)
		s.AdvanceCountClock(2 * time.Minute)
		total("all, after a while", all, old+1+young)
		total("hers, after a while", anas, old+1+young)
		var b db.Batch
		b.Exec(nil, "UPDATE task SET owner_sub = 'a b', owner_iss = 'c' WHERE id < $1", store.FirstTaskID(time.Now().Add(-day)))
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for owner, want := range map[agentsvc.Owner]int{{Subject: "a b", Issuer: "c"}: old - 1, {Subject: "a", Issuer: "b c"}: 0} {
			for range 2 {
				if listed, err := s.Tasks.List(t.Context(), nil, store.TaskFilter{Owner: &owner, Limit: 1}); err != nil || listed.Total != want {
					t.Errorf("%+v has %d tasks (%v), want %d", owner, listed.Total, err, want)
				}
			}
		}
		if n, err := s.Sweeper.SweepExpired(t.Context(), store.Retention{Tasks: 30 * day}); err != nil || n.Tasks != old-1 {
			t.Fatalf("swept %+v (%v)", n, err)
		}
		total("all, after a sweep", all, 2+young)
		total("hers, after a sweep", anas, 2+young)
	})
}
