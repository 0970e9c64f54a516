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

// SQL counts in a database, for all processes that share it, by its clock.
type SQL struct {
	openDB func(context.Context) (*db.DB, error)
	clock  clock

	mu      sync.Mutex
	sweptAt map[db.ID]time.Time
}

// NewSQL returns a place in a database that open returns when there is something to count. It has the table rate_count.
func NewSQL(open func(context.Context) (*db.DB, error)) *SQL {
	return &SQL{openDB: open, sweptAt: map[db.ID]time.Time{}}
}

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

// addInTransaction adds to the counters in one transaction: it makes those that are missing, reads all, for which it waits until
// nobody else is about to add to one, and adds if all have room and the time is in their windows.
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
		out.now = till // a window has ended between the two statements
	}
	return out, nil
}

// writeBatch writes b: on SQLite together with others, on PostgreSQL alone, where it may wait for rows that many want.
func writeBatch(ctx context.Context, h *db.Handle, b *db.Batch) error {
	if h.Engine() == db.SQLite {
		return h.Write(ctx, b)
	}
	return h.Do(ctx, b)
}

// What the engines call the time at which a transaction began, in microseconds, also where it is not the platform's
// database; and what has readers of a row wait for those who write it, where not all who write wait for each other.
var (
	nowSQL  = map[db.Engine]string{db.Postgres: `CAST(extract(epoch FROM now()) * 1000000 AS BIGINT)`, db.SQLite: `stoa_now()`}
	lockSQL = map[db.Engine]string{db.Postgres: ` FOR UPDATE`}
)

// sqlParams are the arguments of a statement that is being put together, the tenant first.
type sqlParams []any

func (p *sqlParams) bindValue(v any, kind string) string {
	*p = append(*p, v)
	return "CAST($" + strconv.Itoa(len(*p)) + " AS " + kind + ")"
}

func insertStatement(h *db.Handle, cs []counter) (string, []any) {
	p := sqlParams{string(h.Tenant())}
	rows := make([]string, len(cs))
	for i, c := range cs {
		rows[i] = "($1, " + p.bindValue(c.key, "TEXT") + ", " + p.bindValue(c.end.UnixMicro(), "BIGINT") + ", 0)"
	}
	return `INSERT INTO rate_count (tenant, counter, end_at, used) VALUES ` + strings.Join(rows, ", ") + ` ON CONFLICT DO NOTHING`, p
}

func selectStatement(h *db.Handle, cs []counter) (string, []any) {
	p := sqlParams{string(h.Tenant())}
	keys := make([]string, len(cs))
	for i, c := range cs {
		keys[i] = p.bindValue(c.key, "TEXT")
	}
	return `SELECT counter, used, ` + nowSQL[h.Engine()] + ` FROM rate_count WHERE tenant = $1 AND counter IN (` + strings.Join(keys, ", ") + `)
		ORDER BY counter` + lockSQL[h.Engine()], p
}

func updateStatement(h *db.Handle, cs []counter) (string, []any) {
	p := sqlParams{string(h.Tenant())}
	rows := make([]string, len(cs))
	for i, c := range cs {
		var most any
		if c.limit != unlimited {
			most = c.limit
		}
		rows[i] = "(" + p.bindValue(c.key, "TEXT") + ", " + p.bindValue(c.amount, "BIGINT") + ", " + p.bindValue(most, "BIGINT") + ")"
	}
	now := nowSQL[h.Engine()]
	from, till := commonWindow(cs)
	return `WITH change (counter, amount, most) AS (VALUES ` + strings.Join(rows, ", ") + `)
		UPDATE rate_count SET used = CASE WHEN used + c.amount < 0 THEN 0 ELSE used + c.amount END
		FROM change c WHERE rate_count.tenant = $1 AND rate_count.counter = c.counter
			AND NOT EXISTS (SELECT 1 FROM rate_count o JOIN change m ON m.counter = o.counter WHERE o.tenant = $1 AND o.used + m.amount > m.most)
			AND ` + now + ` >= ` + p.bindValue(from.UnixMicro(), "BIGINT") + ` AND ` + now + ` < ` + p.bindValue(till.UnixMicro(), "BIGINT"), p
}

// Of counters whose windows are over: the time between two looks for those of a tenant, and how many tenants' looks are
// remembered.
const (
	sweepInterval   = 5 * time.Minute
	maxSweptTenants = 10_000
)

// sweepExpired deletes, now and then, the tenant's counters whose windows are over.
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
	_ = writeBatch(ctx, h, &b) // what is left is found the next time
}
