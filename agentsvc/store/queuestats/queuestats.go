// Package queuestats counts the runs of all tenants by state.
package queuestats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"stoa/tenancy/db"
)

// Stats are the numbers of runs in the queue.
type Stats struct {
	// Pending includes the runs that wait for their session. InputRequired counts the runs whose tasks wait for a
	// human; a run that paused its turn keeps its state when a later one continues the task, and then counts as
	// completed.
	Pending, Running, Completed, Failed, InputRequired int64
	// Suspended are the waiting runs of apps that are suspended or being deleted, which no worker may take. They are in no
	// other count: more workers would not help them.
	Suspended int64

	OldestPending time.Duration // since the longest waiting run was accepted
	Apps          []AppCounts   // tenants with pending or executing runs, those with most first, at most maxApps
}

// AppCounts are the numbers of one tenant.
type AppCounts struct {
	App              string // its name
	Pending, Running int64
}

// maxApps bounds [Stats].Apps.
const maxApps = 100

// Count counts the runs in d and others in each state. The names of tenants are read from d.
func Count(ctx context.Context, d *db.DB, others ...*db.DB) (Stats, error) {
	s, err := CountOpen(ctx, d, others...)
	if err != nil {
		return s, err
	}
	var all int64
	for _, some := range append([]*db.DB{d}, others...) {
		err = errors.Join(err, execBatch(ctx, some, "count runs", func(b *db.Batch) {
			b.Query(func(r db.Row) error {
				var n int64
				err := r.Scan(&n)
				all += n
				return err
			}, countRunsSQL(some.Engine()))
		}))
	}
	// Completed runs are the rest of a total that PostgreSQL may only estimate, so the difference could be negative.
	s.Completed = max(0, all-s.Pending-s.Suspended-s.Running-s.Failed-s.InputRequired)
	return s, err
}

// CountOpen is Count without the completed runs, whose number is expensive to count.
func CountOpen(ctx context.Context, d *db.DB, others ...*db.DB) (Stats, error) {
	var s Stats
	apps, inactive := map[string]AppCounts{}, map[string]bool{}
	err := execBatch(ctx, d, "read which apps are suspended", func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			var tenant string
			err := r.Scan(&tenant)
			inactive[tenant] = true
			return err
		}, `SELECT tenant FROM app WHERE status <> 'active'`)
	})
	if err != nil {
		return s, err
	}
	for _, some := range append([]*db.DB{d}, others...) {
		if err := addCounts(ctx, some, &s, apps, inactive); err != nil {
			return s, err
		}
	}
	tenants := slices.SortedFunc(maps.Keys(apps), func(a, b string) int {
		return cmp.Or(cmp.Compare(apps[b].Pending+apps[b].Running, apps[a].Pending+apps[a].Running), cmp.Compare(a, b))
	})
	for _, tenant := range tenants[:min(len(tenants), maxApps)] {
		a := apps[tenant]
		a.App = tenant
		s.Apps = append(s.Apps, a)
	}
	return s, resolveNames(ctx, d, s.Apps)
}

// addCounts adds the runs of d to s and, by tenant, the pending and executing ones to apps. One branch for each
// partial index. The apps themselves may be in another database, so which are inactive comes from the caller.
func addCounts(ctx context.Context, d *db.DB, s *Stats, apps map[string]AppCounts, inactive map[string]bool) error {
	return execBatch(ctx, d, "count runs", func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			var tenant string
			var pending, running, oldest int64
			err := r.Scan(&tenant, &pending, &running, &oldest)
			if inactive[tenant] {
				s.Suspended, pending, oldest = s.Suspended+pending, 0, 0
			}
			if pending == 0 && running == 0 {
				return err
			}
			s.OldestPending = max(s.OldestPending, time.Duration(oldest)*time.Microsecond)
			s.Pending, s.Running = s.Pending+pending, s.Running+running
			apps[tenant] = AppCounts{Pending: apps[tenant].Pending + pending, Running: apps[tenant].Running + running}
			return err
		}, `SELECT tenant, COUNT(*) AS pending, 0 AS running, stoa_now() - MIN(created_at) AS oldest FROM run WHERE state = 'pending' AND ready GROUP BY tenant
			UNION ALL SELECT tenant, COUNT(*), 0, stoa_now() - MIN(created_at) FROM run WHERE state = 'pending' AND NOT ready GROUP BY tenant
			UNION ALL SELECT tenant, COUNT(*), 0, stoa_now() - MIN(created_at) FROM run WHERE state = 'waiting' GROUP BY tenant
			UNION ALL SELECT tenant, 0, COUNT(*), 0 FROM run WHERE state = 'running' GROUP BY tenant`)
		b.Query(func(r db.Row) error {
			var failed, idle int64
			err := r.Scan(&failed, &idle)
			s.Failed, s.InputRequired = s.Failed+failed, s.InputRequired+idle
			return err
		},
			`SELECT (SELECT COUNT(*) FROM run WHERE state = 'failed'), (SELECT COUNT(*) FROM run r WHERE r.state = 'input_required'
					AND EXISTS (SELECT 1 FROM task t WHERE t.tenant = r.tenant AND t.id = r.task AND t.turn = r.turn AND t.state IN ('input_required', 'auth_required')))`)
	})
}

// resolveNames replaces the tenant ids in apps by names and sorts by size and name. A tenant without a row keeps its
// id.
func resolveNames(ctx context.Context, d *db.DB, apps []AppCounts) error {
	if len(apps) == 0 {
		return nil
	}
	err := execBatch(ctx, d, "read the names of apps", func(b *db.Batch) {
		for i := range apps {
			b.Query(func(r db.Row) error { return r.Scan(&apps[i].App) }, `SELECT name FROM app WHERE tenant = $1`, apps[i].App)
		}
	})
	slices.SortFunc(apps, func(a, b AppCounts) int {
		return cmp.Or(cmp.Compare(b.Pending+b.Running, a.Pending+a.Running), cmp.Compare(a.App, b.App))
	})
	return err
}

// countRunsSQL returns the statement that counts all runs. On PostgreSQL it uses the planner's estimate above
// 100,000, because an exact count reads the whole table.
func countRunsSQL(e db.Engine) string {
	if e != db.Postgres {
		return `SELECT COUNT(*) FROM run`
	}
	return `SELECT CASE WHEN e.n > 100000 THEN e.n ELSE (SELECT COUNT(*) FROM run) END
		FROM (SELECT CAST(reltuples AS BIGINT) AS n FROM pg_class WHERE oid = CAST('run' AS regclass)) e`
}

// execBatch executes the statements that fill adds in one transaction; operation is for the error.
func execBatch(ctx context.Context, d *db.DB, operation string, fill func(*db.Batch)) error {
	var b db.Batch
	fill(&b)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}
