package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestRoles checks that the roles of a turn's caller are stored with its run, whatever opened it, and that who executes the
// run after a crash gets them.
func TestRoles(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRunQueue(d)
		if _, _, err := q.WriteHeartbeat(t.Context(), "dead", ""); err != nil {
			t.Fatal(err)
		}
		ageHeartbeat(t, d, "dead", time.Hour)
		long := strings.Repeat("x", 5000)
		for _, c := range []struct {
			name        string
			fresh       bool
			roles, want []string
		}{
			{"fresh", true, []string{"finance", "it's \x00"}, []string{"finance", "it's \x00"}},
			{"in a session", false, []string{"finance"}, []string{"finance"}},
			{"none", true, nil, nil},
			{"too long", true, []string{long, long}, []string{long}},
		} {
			run := newRun("dead")
			run.Context, run.IsNewContext, run.Roles = agentsvc.ContextID(c.name), c.fresh, c.roles
			run = createTask(t, s, run)
			if _, _, err := q.RescueRuns(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			got, err := q.ClaimRuns(t.Context(), "w1", []store.Share{{Tenant: "acme", ClaimCount: 1}})
			if err != nil || len(got) != 1 || got[0].Task != run.Task {
				t.Fatalf("%s: %+v, %v", c.name, got, err)
			}
			if diff := cmp.Diff(c.want, got[0].Roles); diff != "" {
				t.Errorf("%s, after a crash: %s", c.name, diff)
			}
			loaded, err := s.Runs.LoadRoles(t.Context(), run.Task)
			if diff := cmp.Diff(c.want, loaded); err != nil || diff != "" {
				t.Errorf("%s: %v %s", c.name, err, diff)
			}
			if other, err := store.New(d, "globex").Runs.LoadRoles(t.Context(), run.Task); err != nil || other != nil {
				t.Errorf("another tenant reads %v, %v", other, err)
			}
		}
	})
}
