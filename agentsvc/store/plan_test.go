package store_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestPlans: PostgreSQL uses a generic plan for every frequent statement. It compares the generic plan with those of
// the first five executions; where it expects the custom ones to be better, planning would take longer than the
// statement.
func TestPlans(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), dbtest.NewPostgresURL(t), db.Options{MaxConns: 1}) // a connection sees only its own plans
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, runs := store.New(d, "acme"), store.NewRunQueue(d)
	old := createOldTasks(t, d, s, 2000)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(d.ChangeSchema(t.Context(), "", func(owner *sql.DB) error {
		_, err := owner.ExecContext(t.Context(), "ANALYZE")
		return err
	}))
	late := createTask(t, s, newRun("w1")).Task
	const times = 20
	for range times {
		for _, f := range []store.TaskFilter{
			{}, {Agents: []string{"assistant"}}, {Context: "of-m1"}, {State: agentsvc.Working}, {State: agentsvc.Completed}, {Before: late}, {Before: old},
		} {
			f.Limit = 51
			_, err := s.Tasks.List(t.Context(), nil, f)
			check(err)
			f.Owner = &ana
			_, err = s.Tasks.List(t.Context(), nil, f)
			check(err)
		}
		for _, w := range []store.TaskParts{{}, {History: true}, {StateOnly: true}, {History: true, Artifacts: true}} {
			_, err := s.Tasks.Load(t.Context(), nil, old, w)
			check(err)
		}
		_, _, err := s.Events.LoadPage(t.Context(), nil, old, 0, 256, 64<<10)
		check(err)
		createTask(t, s, newRun(""))
		shares, err := runs.ListShares(t.Context(), "", 8, true)
		check(err)
		for i := range shares {
			shares[i].ClaimCount = 1
		}
		claimed, err := runs.ClaimRuns(t.Context(), "w1", shares)
		check(err)
		for _, run := range claimed {
			_, err := s.Runs.BeginRun(t.Context(), &run)
			check(err)
			_, err = s.Sessions.LoadConversation(t.Context(), nil, run)
			check(err)
		}
		_, err = runs.ListLeasedRuns(t.Context(), "w1")
		check(err)
	}
	often := 0
	var b db.Batch
	b.Query(func(r db.Row) error {
		var sql string
		var once, anew int64
		err := r.Scan(&sql, &once, &anew)
		if once+anew < times {
			return err
		}
		if often++; anew > 5 {
			t.Errorf("planned %d times anew of %d: %s", anew, once+anew, sql)
		}
		return err
	}, "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements")
	check(d.Platform().Do(t.Context(), &b))
	if often < 15 {
		t.Errorf("only %d statements came often", often)
	}
}

// createOldTasks writes tasks that ended long ago, and returns the first one.
func createOldTasks(t *testing.T, d *db.DB, s *store.Store, many int) agentsvc.TaskID {
	t.Helper()
	first := createAgedTask(t, d, s, "acme", "m1", 40*day, agentsvc.Completed)
	var b db.Batch
	for i := range many - 1 {
		id := fmt.Sprintf("%s%012d", store.FirstTaskID(time.Now().Add(-40 * day))[:24], i)
		b.Exec(nil, `INSERT INTO task SELECT tenant, CAST($1 AS TEXT), agent, 'of-' || $1, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at, opens_context FROM task WHERE id = $2`,
			id, string(first))
		b.Exec(nil, `INSERT INTO event SELECT tenant, $1, seq, at, kind, body FROM event WHERE task = $2`, id, string(first))
	}
	if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return first
}
