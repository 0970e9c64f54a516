package store

import (
	"cmp"
	"context"
	"slices"

	"stoa/tenancy/db"
)

// Share is a tenant with claimable runs and what it may have of a process's workers.
type Share struct {
	Tenant     db.ID
	Weight     int64 // runs in each of its turns in the ring; at least 1
	MaxRunning int64 // limit of its executing runs, in all processes together; 0 = none
	Running    int64 // executing now; read only where MaxRunning is set
	Closed     bool  // the tenant is not active: nothing of it is claimed
	ClaimCount int64 // how many runs ClaimRuns leases at most; set by the caller
	// SuspectOnly restricts the share to one suspect run, AwaitedOnly to runs whose callers wait.
	SuspectOnly, AwaitedOnly bool
}

// AvailableRuns returns how many more runs of the tenant may execute, after ClaimCount.
func (s Share) AvailableRuns() int64 {
	switch {
	case s.Closed:
		return 0
	case s.MaxRunning == 0:
		return 1 << 30
	}
	return s.MaxRunning - s.Running - s.ClaimCount
}

// The next tenant of the ring, found by the index run_turn: it contains exactly the claimable runs. Its first column
// is an expression (the tenant with an empty text appended), which no other index has, so that PostgreSQL cannot
// choose the primary key instead.
const (
	nextAppSQL     = `SELECT r.tenant FROM run r WHERE r.state = 'pending' AND r.ready `
	firstInRingSQL = `ORDER BY r.tenant || '' LIMIT 1`
)

// suspectRescues is how many workers may die with a run before it is claimed alone: a run that kills its process
// kills the other runs there too.
const suspectRescues = 2

// IsSuspect reports whether the run is one that workers died with repeatedly.
func (run Run) IsSuspect() bool { return run.Rescues >= suspectRescues }

// Conditions of claimable runs. ready is false for a run with a delay and for a suspect. ListShares sets it when the
// delay has ended; for suspects it stays false, so that ordinary claims never see them.
const (
	claimableSQL = `state = 'pending' AND ready`
	suspectSQL   = `state = 'pending' AND NOT ready AND rescues >= 2 AND available_at <= stoa_now()`
)

// shareSQL reads a share for each tenant of t. Its columns are scalar sub-selects: a join could change the order of
// t's rows.
const shareSQL = `SELECT t.tenant, COALESCE((SELECT status FROM app a WHERE a.tenant = t.tenant), 'active') <> 'active',
	COALESCE((SELECT COALESCE(NULLIF(a.weight, 0), (SELECT p.weight FROM plan p WHERE p.name = a.plan)) FROM app a WHERE a.tenant = t.tenant), 0), ` + limitSQL + `, CASE WHEN ` + limitSQL + ` > 0 THEN ` + runningSQL + ` ELSE 0 END FROM `

const (
	// limitSQL is the tenant's own limit of executing runs, else that of its plan, else 0. runningSQL counts its
	// executing runs by the index run_leased.
	limitSQL = `COALESCE((SELECT COALESCE(NULLIF(a.max_concurrent_tasks, 0), (SELECT p.max_concurrent_tasks FROM plan p WHERE p.name = a.plan))
		FROM app a WHERE a.tenant = t.tenant), 0)`
	runningSQL = `(SELECT COUNT(*) FROM run w WHERE w.state = 'running' AND w.tenant = t.tenant)`
)

// scanShare reads the columns of shareSQL.
func scanShare(r db.Row, s *Share) error {
	err := r.Scan((*string)(&s.Tenant), &s.Closed, &s.Weight, &s.MaxRunning, &s.Running)
	s.Weight = max(1, s.Weight)
	return err
}

// ListShares returns up to n tenants with claimable runs, ordered by id from one on and continuing at the start.
// Before that it makes the runs ready whose delay has ended. With suspects the first share may be that of one suspect
// run, whose tenant is active and below its limit.
func (q *RunQueue) ListShares(ctx context.Context, from db.ID, n int, suspects bool) ([]Share, error) {
	var shares []Share
	err := q.execBatch(ctx, "list the shares of apps", func(b *db.Batch) {
		// The index run_later contains only these runs.
		b.Exec(nil, `UPDATE run SET ready = TRUE WHERE state = 'pending' AND NOT ready AND available_at <= stoa_now() AND rescues < $1`, suspectRescues)
		if suspects {
			b.Query(func(r db.Row) error {
				s := Share{SuspectOnly: true, ClaimCount: 1}
				err := scanShare(r, &s)
				shares = append(shares, s)
				return err
			}, shareSQL+`(SELECT tenant, available_at FROM run WHERE `+suspectSQL+`) t
				WHERE NOT EXISTS (SELECT 1 FROM app a WHERE a.tenant = t.tenant AND a.status <> 'active')
					AND (`+limitSQL+` = 0 OR `+limitSQL+` > `+runningSQL+`) ORDER BY t.available_at LIMIT 1`)
		}
		b.Query(func(r db.Row) error {
			var s Share
			err := scanShare(r, &s)
			shares = append(shares, s)
			return err
			// A loose index scan: each step looks up the next tenant in run_turn, so the cost depends on the number of
			// tenants read and not on the length of their queues. UNION ends the recursion when the first tenant comes
			// again.
		}, `WITH RECURSIVE ring (tenant) AS (
				SELECT COALESCE((`+nextAppSQL+`AND r.tenant || '' >= (SELECT CAST($1 AS TEXT)) `+firstInRingSQL+`), (`+nextAppSQL+firstInRingSQL+`))
				UNION
				SELECT COALESCE((`+nextAppSQL+`AND r.tenant || '' > ring.tenant `+firstInRingSQL+`), (`+nextAppSQL+firstInRingSQL+`)) FROM ring WHERE ring.tenant IS NOT NULL)
			`+shareSQL+`(SELECT tenant FROM ring WHERE tenant IS NOT NULL LIMIT (SELECT CAST($2 AS BIGINT))) t`,
			string(from), n)
	})
	return shares, err
}

// ClaimRuns leases runs to a worker, which [Runs.BeginRun] turns into an epoch, as specified by shares: of each tenant those with the lowest priority number
// first, and of these the longest waiting. A tenant never has more executing runs than its limit, however many
// processes claim and accept at the same time. With an error it returns no runs: a transaction that has returned them may
// still fail at its commit. If it took effect nevertheless, they are leased and not started, see package queue.
func (q *RunQueue) ClaimRuns(ctx context.Context, worker string, shares []Share) ([]Run, error) {
	shares = slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return s.ClaimCount == 0 })
	if len(shares) == 0 {
		return nil, nil
	}
	// Every claim takes the tenants' locks in one order, so that no two claims deadlock.
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Tenant, b.Tenant) })
	var runs []Run
	err := q.execBatch(ctx, "claim runs", func(b *db.Batch) {
		for _, s := range shares {
			args := []any{worker, string(s.Tenant), s.ClaimCount}
			if s.MaxRunning > 0 {
				lockApp(b, q.h, s.Tenant)
				args = append(args, s.MaxRunning)
			}
			b.Query(func(r db.Row) error {
				run, roles := Run{Lease: Lease{Worker: worker}}, ""
				err := r.Scan((*string)(&run.Tenant), (*string)(&run.Task), &run.Turn, &run.Revision, &run.Attempts, &run.FirstSeq,
					&run.WasCutOff, &run.Rescues, &run.LimitReservation, &run.Trace, &roles)
				run.Roles = decodeRoles(roles)
				runs = append(runs, run)
				return err
			}, claimRunsSQL(q.h.Engine(), s), args...)
		}
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// FindAwaitedApps returns those of the tenants, given with their limits, that have claimable runs whose callers wait,
// or, where a limit is set, any claimable runs: the limit held them back when they were accepted.
func (q *RunQueue) FindAwaitedApps(ctx context.Context, apps map[db.ID]int64) (still []db.ID, err error) {
	err = q.execBatch(ctx, "look for runs that are waited for", func(b *db.Batch) {
		for app, limit := range apps {
			maximum := PriorityAwaited
			if limit > 0 {
				maximum = PriorityBackground
			}
			b.Query(func(db.Row) error {
				still = append(still, app)
				return nil
			}, `SELECT 1 FROM run WHERE `+claimableSQL+` AND tenant || '' = $1 AND priority <= $2 LIMIT 1`, string(app), int64(maximum))
		}
	})
	return still, err
}

// CountWaiting counts the runs of a tenant that wait for a worker or for their session, up to limit. The LIMIT in
// each branch bounds the cost for a long queue.
func (q *RunQueue) CountWaiting(ctx context.Context, tenant db.ID, limit int64) (n int64, err error) {
	err = q.execBatch(ctx, "count waiting runs", func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&n) },
			`SELECT COUNT(*) FROM (SELECT * FROM (SELECT 1 AS one FROM run WHERE `+claimableSQL+` AND tenant || '' = $1 LIMIT $2) p
				UNION ALL SELECT * FROM (SELECT 1 FROM run WHERE state = 'waiting' AND tenant || '' = $1 LIMIT $2) w) q`, string(tenant), limit)
	})
	return n, err
}

// claimRunsSQL returns the statement that claims the runs of one share. Parameters: worker, tenant, count and, with a
// limit, the limit.
//
// The ORDER BY is that of the index run_turn, so nothing is sorted. SKIP LOCKED lets processes claim concurrently
// without waiting for each other. MATERIALIZED makes PostgreSQL evaluate the selection once: as a sub-select of the
// UPDATE it could be executed again and lock more rows than it claims (TestClaimPlan).
func claimRunsSQL(e db.Engine, s Share) string {
	which, order, limit, skip := claimableSQL+" AND tenant || '' = $2", "tenant || '', priority, available_at", "$3", ""
	switch {
	case s.SuspectOnly:
		which, order = suspectSQL+" AND tenant = $2", "available_at"
	case s.AwaitedOnly:
		which += " AND priority = 0"
	}
	if s.MaxRunning > 0 {
		limit = `(SELECT CASE WHEN COUNT(*) >= $4 THEN 0 WHEN $4 - COUNT(*) < $3 THEN $4 - COUNT(*) ELSE $3 END
			FROM run WHERE state = 'running' AND tenant = $2)`
	}
	if e == db.Postgres {
		skip = " FOR UPDATE SKIP LOCKED"
	}
	return `WITH due AS MATERIALIZED (SELECT tenant, task, turn FROM run WHERE ` + which + ` AND available_at <= stoa_now()
			ORDER BY ` + order + ` LIMIT ` + limit + skip + `)
		UPDATE run SET state = 'running', worker = $1, attempts = attempts + 1, postponed = FALSE WHERE (tenant, task, turn) IN (SELECT tenant, task, turn FROM due)
		RETURNING tenant, task, turn, revision, attempts, first_seq, cut_off, rescues, reserved, trace, roles`
}

// lockApp adds to b that no other transaction counts and adds executing runs of the tenant until b commits: a limit
// could otherwise be exceeded by two transactions that count at the same time. SQLite has one writer, so it needs no
// lock.
func lockApp(b *db.Batch, h *db.Handle, tenant db.ID) {
	if h.Engine() == db.Postgres {
		b.Exec(nil, `SELECT pg_advisory_xact_lock(7240, hashtext($1))`, string(tenant))
	}
}

// DemoteRuns gives queued runs whose callers have disconnected the normal priority. Runs that execute or have ended
// are unchanged.
func (q *RunQueue) DemoteRuns(ctx context.Context, runs []Run) error {
	return q.execBatch(ctx, "lower the priority of runs whose callers left", func(b *db.Batch) {
		for _, run := range runs {
			b.Exec(nil, `UPDATE run SET priority = $3 WHERE tenant = $1 AND task = $2 AND priority = $4 AND state IN ('pending', 'waiting')`,
				string(run.Tenant), string(run.Task), int64(PriorityNormal), int64(PriorityAwaited))
		}
	})
}
