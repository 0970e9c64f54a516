package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// SQL is a [Backend] in a database, for all processes that share it; windows follow its clock.
type SQL struct {
	// openDB returns the database when it is needed; an app's own may not have been opened yet.
	openDB func(context.Context) (*db.DB, error)
	clock  clock

	// mu guards sweptAt, the time of the last sweep of each tenant.
	mu      sync.Mutex
	sweptAt map[db.ID]time.Time
}

// NewSQL returns a backend in the database that open returns, which must have the table rate_count.
func NewSQL(open func(context.Context) (*db.DB, error)) *SQL {
	return &SQL{openDB: open, sweptAt: map[db.ID]time.Time{}}
}

// addCounters implements [Backend].
func (s *SQL) addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	d, err := s.openDB(ctx)
	if err != nil {
		return outcome{}, fmt.Errorf("count in a database: %w", err)
	}
	h := d.Tenant(tenant)
	out, err := s.clock.addByClock(at, func(cs []counter) (outcome, error) { return addInTransaction(ctx, h, cs) })
	if err != nil {
		return out, fmt.Errorf("count in a database: %w", err)
	}
	s.sweepExpired(ctx, h, out.now)
	return out, nil
}

// addInTransaction adds to the counters in one transaction of three statements in one round trip: insert the missing
// rows, lock and read all of them, and add if all amounts fit and the time is in the windows. The rows are locked in
// the order of their keys, so that concurrent calls do not deadlock; the third statement then sees the counts that were
// just locked.
func addInTransaction(ctx context.Context, h *db.Handle, cs []counter) (outcome, error) {
	out := outcome{used: make([]int64, len(cs))}
	var changed, now int64
	var b db.Batch
	add, args := insertStatement(h, cs)
	b.Exec(nil, add, args...)
	read, args := selectStatement(h, cs)
	used := map[string]int64{}
	b.Query(func(r db.Row) error {
		var key string
		var n int64
		err := r.Scan(&key, &n, &now)
		used[key] = n
		return err
	}, read, args...)
	change, args := updateStatement(h, cs)
	b.Exec(&changed, change, args...)
	if err := writeBatch(ctx, h, &b); err != nil {
		return out, err
	}
	for i, c := range cs {
		out.used[i] = used[c.key]
	}
	out.now, out.fits = time.UnixMicro(now).UTC(), changed > 0
	if _, till := commonWindow(cs); !out.fits && areWithinLimits(cs, out.used) && areInWindows(cs, out.now) {
		out.now = till // nothing was added although all fits: a window ended between the statements, so addByClock must try the next one
	}
	return out, nil
}

// writeBatch executes b: on SQLite grouped with other writes, on PostgreSQL alone, because it may wait for locked rows.
func writeBatch(ctx context.Context, h *db.Handle, b *db.Batch) error {
	if h.Engine() == db.SQLite {
		return h.Write(ctx, b)
	}
	return h.Do(ctx, b)
}

// The SQL that differs between the engines. nowSQL is the time at which the transaction began, in microseconds; on
// PostgreSQL it does not use stoa_now(), which an app's own database does not have. lockSQL locks the rows that are
// read; SQLite has only one writer at a time.
var (
	nowSQL  = map[db.Engine]string{db.Postgres: `CAST(extract(epoch FROM now()) * 1000000 AS BIGINT)`, db.SQLite: `stoa_now()`}
	lockSQL = map[db.Engine]string{db.Postgres: ` FOR UPDATE`}
)

// sqlParams collects the arguments of a statement; the first one is the tenant.
type sqlParams []any

// bindValue adds an argument and returns its SQL expression with a type.
func (p *sqlParams) bindValue(v any, kind string) string {
	*p = append(*p, v)
	return "CAST($" + strconv.Itoa(len(*p)) + " AS " + kind + ")"
}

// insertStatement inserts the missing rows with a count of 0.
func insertStatement(h *db.Handle, cs []counter) (string, []any) {
	p := sqlParams{string(h.Tenant())}
	rows := make([]string, len(cs))
	for i, c := range cs {
		rows[i] = "($1, " + p.bindValue(c.key, "TEXT") + ", " + p.bindValue(c.end.UnixMicro(), "BIGINT") + ", 0)"
	}
	return `INSERT INTO rate_count (tenant, counter, end_at, used) VALUES ` + strings.Join(rows, ", ") + ` ON CONFLICT DO NOTHING`, p
}

// selectStatement reads, and on PostgreSQL locks, the rows of the counters in the order of their keys.
func selectStatement(h *db.Handle, cs []counter) (string, []any) {
	p := sqlParams{string(h.Tenant())}
	keys := make([]string, len(cs))
	for i, c := range cs {
		keys[i] = p.bindValue(c.key, "TEXT")
	}
	return `SELECT counter, used, ` + nowSQL[h.Engine()] + ` FROM rate_count WHERE tenant = $1 AND counter IN (` + strings.Join(keys, ", ") + `)
		ORDER BY counter` + lockSQL[h.Engine()], p
}

// updateStatement adds the amounts to all rows if no counter would exceed its limit and the transaction's time is in
// the common window; otherwise it changes no row. A NULL in the column max_used stands for no limit, because the comparison
// is not true.
func updateStatement(h *db.Handle, cs []counter) (string, []any) {
	p := sqlParams{string(h.Tenant())}
	rows := make([]string, len(cs))
	for i, c := range cs {
		var limit any
		if c.limit != unlimited {
			limit = c.limit
		}
		rows[i] = "(" + p.bindValue(c.key, "TEXT") + ", " + p.bindValue(c.amount, "BIGINT") + ", " + p.bindValue(limit, "BIGINT") + ")"
	}
	now := nowSQL[h.Engine()]
	from, till := commonWindow(cs)
	return `WITH change (counter, amount, max_used) AS (VALUES ` + strings.Join(rows, ", ") + `)
		UPDATE rate_count SET used = CASE WHEN used + c.amount < 0 THEN 0 ELSE used + c.amount END
		FROM change c WHERE rate_count.tenant = $1 AND rate_count.counter = c.counter
			AND NOT EXISTS (SELECT 1 FROM rate_count o JOIN change m ON m.counter = o.counter WHERE o.tenant = $1 AND o.used + m.amount > m.max_used)
			AND ` + now + ` >= ` + p.bindValue(from.UnixMicro(), "BIGINT") + ` AND ` + now + ` < ` + p.bindValue(till.UnixMicro(), "BIGINT"), p
}

// sweepInterval is the time between two sweeps of a tenant's expired counters; maxSweptTenants bounds the map sweptAt.
const (
	sweepInterval   = 5 * time.Minute
	maxSweptTenants = 10_000
)

// sweepExpired deletes the tenant's counters whose windows have ended, at most once in sweepInterval. An error is
// ignored: the next sweep finds the same rows.
func (s *SQL) sweepExpired(ctx context.Context, h *db.Handle, now time.Time) {
	s.mu.Lock()
	due := now.Sub(s.sweptAt[h.Tenant()]) >= sweepInterval
	if len(s.sweptAt) >= maxSweptTenants {
		clear(s.sweptAt)
	}
	if due {
		s.sweptAt[h.Tenant()] = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	var b db.Batch
	b.Exec(nil, `DELETE FROM rate_count WHERE tenant = $1 AND end_at < $2`, string(h.Tenant()), now.Add(-expiryGrace).UnixMicro())
	_ = writeBatch(ctx, h, &b) // the next sweep finds what is left
}
