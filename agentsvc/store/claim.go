package store

import (
	"cmp"
	"context"
	"slices"

	"stoa/tenancy/db"
)

// Share is an app with runs that may be claimed, and what it may have of the workers.
type Share struct {
	Tenant     db.ID
	Weight     int64 // runs in each of its turns
	MaxRunning int64 // of its runs at work at a time, in all processes together; 0 = none
	Running    int64 // at work at present; only told where there is a limit
	Closed     bool  // the app is not active: nothing of it is claimed
	ClaimCount int64 // how many runs [RunQueue.Claim] claims at most
	// SuspectOnly says that the share is one run that workers have died with, Awaited that it is runs that somebody waits
	// for: no others of the app are claimed.
	SuspectOnly, AwaitedOnly bool
}

// AvailableRuns is how many more runs of the app may be at work.
func (s Share) AvailableRuns() int64 {
	switch {
	case s.Closed:
		return 0
	case s.MaxRunning == 0:
		return 1 << 30
	}
	return s.MaxRunning - s.Running - s.ClaimCount
}

// The next app of the ring. It is looked up by the expression of the index that holds the runs to claim and no others.
const (
	nextAppSQL     = `SELECT r.tenant FROM run r WHERE r.state = 'pending' AND r.ready `
	firstInRingSQL = `ORDER BY r.tenant || '' LIMIT 1`
)

// suspectRescues is how many workers a run may take with it before it is claimed alone: what kills its worker kills its
// neighbours' too, and they are to get away.
const suspectRescues = 2

// IsSuspect reports whether workers have died with the run, so that it is claimed alone.
func (run Run) IsSuspect() bool { return run.Rescues >= suspectRescues }

// What of a pending run's row says that it may be claimed.
const (
	claimableSQL = `state = 'pending' AND ready`
	suspectSQL   = `state = 'pending' AND NOT ready AND rescues >= 2 AND available_at <= stoa_now()`
)

// shareSQL reads a share of each tenant of t. It joins nothing: a join would mix up the order of the ring.
const shareSQL = `SELECT t.tenant, COALESCE((SELECT status FROM app a WHERE a.tenant = t.tenant), 'active') <> 'active',
	COALESCE((SELECT COALESCE(NULLIF(a.weight, 0), (SELECT p.weight FROM plan p WHERE p.name = a.plan)) FROM app a WHERE a.tenant = t.tenant), 0), ` + limitSQL + `, CASE WHEN ` + limitSQL + ` > 0 THEN ` + runningSQL + ` ELSE 0 END FROM `

const (
	limitSQL = `COALESCE((SELECT COALESCE(NULLIF(a.max_concurrent_tasks, 0), (SELECT p.max_concurrent_tasks FROM plan p WHERE p.name = a.plan))
		FROM app a WHERE a.tenant = t.tenant), 0)`
	runningSQL = `(SELECT COUNT(*) FROM run w WHERE w.state = 'running' AND w.tenant = t.tenant)`
)

func scanShare(r db.Row, s *Share) error {
	err := r.Scan((*string)(&s.Tenant), &s.Closed, &s.Weight, &s.MaxRunning, &s.Running)
	s.Weight = max(1, s.Weight)
	return err
}

// ListShares lists up to n apps with runs that may be claimed now, in the order of their ids from one on and around. With
// suspects the first of the shares may be a run of that kind. Runs whose delay is over become claimable. What comes as a
// sub-select does not have PostgreSQL plan anew each time.
func (q *RunQueue) ListShares(ctx context.Context, from db.ID, n int, suspects bool) ([]Share, error) {
	var shares []Share
	err := q.execBatch(ctx, "look whose turn it is", func(b *db.Batch) {
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
		}, `WITH RECURSIVE ring (tenant) AS (
				SELECT COALESCE((`+nextAppSQL+`AND r.tenant || '' >= (SELECT CAST($1 AS TEXT)) `+firstInRingSQL+`), (`+nextAppSQL+firstInRingSQL+`))
				UNION
				SELECT COALESCE((`+nextAppSQL+`AND r.tenant || '' > ring.tenant `+firstInRingSQL+`), (`+nextAppSQL+firstInRingSQL+`)) FROM ring WHERE ring.tenant IS NOT NULL)
			`+shareSQL+`(SELECT tenant FROM ring WHERE tenant IS NOT NULL LIMIT (SELECT CAST($2 AS BIGINT))) t`,
			string(from), n)
	})
	return shares, err
}

// ClaimRuns leases to a worker the runs that shares say: of each app those of the lowest priority number first, and among
// them the longest waiting. An app never has more runs at work than its limit, whoever else claims at the same time.
func (q *RunQueue) ClaimRuns(ctx context.Context, worker string, shares []Share) ([]Run, error) {
	shares = slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return s.ClaimCount == 0 })
	if len(shares) == 0 {
		return nil, nil
	}
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Tenant, b.Tenant) }) // all lock in one order
	var runs []Run
	err := q.execBatch(ctx, "claim runs", func(b *db.Batch) {
		for _, s := range shares {
			args := []any{worker, string(s.Tenant), s.ClaimCount}
			if s.MaxRunning > 0 {
				lockApp(b, q.h, s.Tenant)
				args = append(args, s.MaxRunning)
			}
			b.Query(func(r db.Row) error {
				run := Run{Worker: worker}
				err := r.Scan((*string)(&run.Tenant), (*string)(&run.Task), &run.Turn, &run.Revision, &run.Attempts, &run.FirstSeq,
					&run.WasInterrupted, (*int64)(&run.Priority), &run.Rescues, &run.Reservation, &run.Trace)
				runs = append(runs, run)
				return err
			}, claimRunsSQL(q.h.Engine(), s), args...)
		}
	})
	return runs, err
}

// FindAwaitedApps returns those of the apps, given with their limits, that have runs to claim which somebody waits for, or which
// the limit holds back.
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

// CountWaiting counts the runs of an app that wait for a worker or for their session, as far as limit.
func (q *RunQueue) CountWaiting(ctx context.Context, tenant db.ID, limit int64) (n int64, err error) {
	err = q.execBatch(ctx, "count waiting runs", func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&n) },
			`SELECT COUNT(*) FROM (SELECT * FROM (SELECT 1 AS one FROM run WHERE `+claimableSQL+` AND tenant || '' = $1 LIMIT $2) p
				UNION ALL SELECT * FROM (SELECT 1 FROM run WHERE state = 'waiting' AND tenant || '' = $1 LIMIT $2) w) q`, string(tenant), limit)
	})
	return n, err
}

func claimRunsSQL(e db.Engine, s Share) string {
	which, order, limit, skip := claimableSQL+" AND tenant || '' = $2", "tenant || '', priority, available_at", "$3", "" // the index's own order, so that nothing is sorted
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
		RETURNING tenant, task, turn, revision, attempts, first_seq, cut_off, priority, rescues, reserved, trace`
}

// lockApp adds to b that nobody else counts the runs of an app with a limit at the same time. On SQLite nobody could.
func lockApp(b *db.Batch, h *db.Handle, tenant db.ID) {
	if h.Engine() == db.Postgres {
		b.Exec(nil, `SELECT pg_advisory_xact_lock(7240, hashtext($1))`, string(tenant))
	}
}

// DemoteRuns has runs in the queue that somebody waited for, and whose callers are gone, wait as those do that nobody waits for.
// What is at work or over stays as it is.
func (q *RunQueue) DemoteRuns(ctx context.Context, runs []Run) error {
	return q.execBatch(ctx, "let runs wait whose callers are gone", func(b *db.Batch) {
		for _, run := range runs {
			b.Exec(nil, `UPDATE run SET priority = $3 WHERE tenant = $1 AND task = $2 AND priority = $4 AND state IN ('pending', 'waiting')`,
				string(run.Tenant), string(run.Task), int64(PriorityNormal), int64(PriorityAwaited))
		}
	})
}
