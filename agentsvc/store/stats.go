package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"stoa/tenancy/db"
)

// Stats is the queue at a glance.
type Stats struct {
	// Pending counts also what waits for its session.
	Pending, Running, Completed, Failed, InputRequired int64

	OldestPending time.Duration // since the longest waiting run was accepted
	Apps          []AppStats    // with runs pending or at work, those with the most first, 100 at most
}

// AppStats is an app's part of the queue.
type AppStats struct {
	App              string // its name
	Pending, Running int64
}

// maxApps bounds the apps that [Stats] tells of.
const maxApps = 100

// Stats counts the runs in each state.
func (q *Runs) Stats(ctx context.Context) (Stats, error) {
	s, err := q.Open(ctx)
	if err != nil {
		return s, err
	}
	var all int64
	err = q.do(ctx, "count runs", func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&all) }, countSQL(q.h.Engine()))
	})
	s.Completed = max(0, all-s.Pending-s.Running-s.Failed-s.InputRequired)
	return s, err
}

// Open is Stats without what has completed, which is dear to count.
func (q *Runs) Open(ctx context.Context) (Stats, error) {
	var s Stats
	apps := map[string]AppStats{}
	err := q.do(ctx, "count runs", func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			var tenant string
			var a AppStats
			err := r.Scan(&tenant, &a.App, &a.Pending, &a.Running)
			a.Pending, a.Running = a.Pending+apps[tenant].Pending, a.Running+apps[tenant].Running
			apps[tenant] = a
			return err
		}, `SELECT q.tenant, COALESCE(a.name, q.tenant), q.pending, q.running FROM (
				SELECT tenant, COUNT(*) AS pending, 0 AS running FROM run WHERE state = 'pending' AND ready GROUP BY tenant
				UNION ALL SELECT tenant, COUNT(*), 0 FROM run WHERE state = 'pending' AND NOT ready GROUP BY tenant
				UNION ALL SELECT tenant, COUNT(*), 0 FROM run WHERE state = 'waiting' GROUP BY tenant
				UNION ALL SELECT tenant, 0, COUNT(*) FROM run WHERE state = 'running' GROUP BY tenant) q
			LEFT JOIN app a ON a.tenant = q.tenant`)
		b.Query(func(r db.Row) error {
			var oldest int64
			err := r.Scan(&s.Failed, &s.InputRequired, &oldest)
			s.OldestPending = time.Duration(oldest) * time.Microsecond
			return err
		},
			`SELECT (SELECT COUNT(*) FROM run WHERE state = 'failed'), (SELECT COUNT(*) FROM run WHERE state = 'input_required'),
				COALESCE(stoa_now() - (SELECT MIN(created_at) FROM (SELECT created_at FROM run WHERE state = 'pending' AND ready
					UNION ALL SELECT created_at FROM run WHERE state = 'pending' AND NOT ready
					UNION ALL SELECT created_at FROM run WHERE state = 'waiting') p), 0)`)
	})
	for _, a := range apps {
		s.Pending, s.Running = s.Pending+a.Pending, s.Running+a.Running
		s.Apps = append(s.Apps, a)
	}
	slices.SortFunc(s.Apps, func(a, b AppStats) int {
		return cmp.Or(cmp.Compare(b.Pending+b.Running, a.Pending+a.Running), cmp.Compare(a.App, b.App))
	})
	s.Apps = s.Apps[:min(len(s.Apps), maxApps)]
	return s, err
}

// countSQL counts all runs there are, on PostgreSQL by estimate where they are many.
func countSQL(e db.Engine) string {
	if e != db.Postgres {
		return `SELECT COUNT(*) FROM run`
	}
	return `SELECT CASE WHEN e.n > 100000 THEN e.n ELSE (SELECT COUNT(*) FROM run) END
		FROM (SELECT CAST(reltuples AS BIGINT) AS n FROM pg_class WHERE oid = CAST('run' AS regclass)) e`
}
