package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// QuotaOptions say how much each tenant may store in a database, in bytes. One of Each and Shared is set.
type QuotaOptions struct {
	PerTenant int64 // of each tenant
	Shared    int64 // of all together, of which a tenant may store as much as it leaves free
	Advice    string
	Log       *slog.Logger
}

// Quota bounds what tenants store in a database. It counts what this process writes, adds that to what it has measured, and
// measures again before it could be wrong by much: a write costs no statement more. What other processes have written
// since the last measurement it does not know.
type Quota struct {
	database *db.DB
	options  QuotaOptions

	mu      sync.Mutex
	tenants map[db.ID]*tenantUsage
	total   int64 // of all in tenants
	refused int64 // writes, since the process began
	wakeup  chan struct{}
}

// tenantUsage is what a tenant stores. Quota.mu guards it.
type tenantUsage struct {
	measured        int64
	added           int64     // by this process, since the measurement began
	refused         int64     // writes, since the measurement
	isMeasured      bool      // it was measured
	measuredAt      time.Time // when it was measured or first written to
	nextMeasurement time.Time // when it may be measured again
}

func (t *tenantUsage) totalBytes() int64 { return t.measured + t.added }

// Of measuring. It reads all keys of a tenant's rows, for which it may take a hundredth of the time.
const (
	measureCostRatio       = 100
	minMeasureInterval     = 10 * time.Second // at least, between two measurements of a tenant
	refusedMeasureInterval = time.Minute      // between two of a tenant that is refused: something may have been deleted
	measureTimeout         = time.Minute      // the longest that one may take
	remeasureFraction      = 16               // a tenant is measured again when it has written such a part of what was free
	firstMeasureFraction   = 1024             // and first when it has written such a part of what it may store: most never do
	quotaIdleTime          = time.Hour        // after which a tenant that does not write is forgotten
)

// quotaReserveFraction is the part of its bound that a tenant may store beyond it for what was begun: runs at work end rather than fail.
const quotaReserveFraction = 8

// maxEndBytes is the size, in bytes, up to which what ends something is never refused.
const maxEndBytes = 64 << 10

// NewQuota returns the bound of what tenants store in d, which has to be told of it.
func NewQuota(d *db.DB, o QuotaOptions) *Quota {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Quota{database: d, options: o, tenants: map[db.ID]*tenantUsage{}, wakeup: make(chan struct{}, 1)}
}

// AllowWrite implements [db.Quota].
func (q *Quota) AllowWrite(tenant db.ID, bytes int64, what db.StorageKind) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenants[tenant]
	if t == nil {
		t = &tenantUsage{measuredAt: time.Now()}
		q.tenants[tenant] = t
	}
	maximum := q.tenantLimit()
	if what == db.StoresMore || what == db.StoresEnd {
		maximum += maximum / quotaReserveFraction
	}
	if t.totalBytes()+bytes > maximum && (what != db.StoresEnd || bytes > maxEndBytes) {
		t.refused++
		q.refused++
		q.requestMeasurement()
		return &agentsvc.StorageLimitError{StoredBytes: t.totalBytes(), MaxBytes: q.tenantLimit(), Advice: q.options.Advice, RetryAfter: refusedMeasureInterval}
	}
	t.added += bytes
	q.total += bytes
	if q.isDue(t) {
		q.requestMeasurement()
	}
	return nil
}

// tenantLimit is how much a tenant may store. q.mu is held.
func (q *Quota) tenantLimit() int64 {
	if q.options.Shared > 0 {
		return max(q.options.Shared-q.total, 0)
	}
	return q.options.PerTenant
}

// isDue reports whether a tenant is to be measured, now or when it may be. q.mu is held.
func (q *Quota) isDue(t *tenantUsage) bool {
	if !t.isMeasured {
		return t.added > q.tenantLimit()/firstMeasureFraction
	}
	return t.added > max(q.tenantLimit()-t.measured, 0)/remeasureFraction
}

// requestMeasurement has due tenants measured. q.mu is held.
func (q *Quota) requestMeasurement() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// Run measures tenants when that is due, until ctx ends.
func (q *Quota) Run(ctx context.Context) error {
	tick := time.NewTicker(minMeasureInterval)
	defer tick.Stop()
	for {
		select {
		case <-q.wakeup:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, id := range q.dueTenants(time.Now()) {
			if err := q.MeasureTenant(ctx, id); err != nil && ctx.Err() == nil {
				q.options.Log.Warn("what an app stores could not be measured", "tenant", id, "error", err)
			}
		}
	}
}

// dueTenants returns the tenants that are to be measured now, and forgets those that have not written for long.
func (q *Quota) dueTenants(now time.Time) (ids []db.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, t := range q.tenants {
		switch {
		case now.Before(t.nextMeasurement):
		case q.isDue(t), t.refused > 0 && now.Sub(t.measuredAt) >= refusedMeasureInterval:
			ids = append(ids, id)
		case t.added == 0 && now.Sub(t.measuredAt) >= quotaIdleTime:
			q.removeTenant(id)
		case now.Sub(t.measuredAt) >= quotaIdleTime: // others may have deleted or written
			ids = append(ids, id)
		}
	}
	return ids
}

// MeasureTenant finds out how much a tenant stores.
func (q *Quota) MeasureTenant(ctx context.Context, tenant db.ID) error {
	q.mu.Lock()
	t := q.tenants[tenant]
	if t == nil {
		t = &tenantUsage{}
		q.tenants[tenant] = t
	}
	before := t.added
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	began := time.Now()
	n, err := New(q.database, tenant).sumSizes(ctx, quotaTables, rowOverhead)
	took := time.Since(began)
	q.mu.Lock()
	defer q.mu.Unlock()
	t.nextMeasurement = time.Now().Add(max(minMeasureInterval, measureCostRatio*took))
	if err != nil || q.tenants[tenant] != t {
		return err
	}
	if t.refused > 0 {
		q.options.Log.Warn("an app stores as much as it may, and was refused to store more", "tenant", tenant, "bytes", n, "most", q.tenantLimit(), "refused", t.refused)
	}
	q.total += n - t.measured - before
	t.measured, t.added, t.refused, t.isMeasured, t.measuredAt = n, t.added-before, 0, true, began
	return nil
}

// ForgetTenant forgets a tenant, whose rows are gone.
func (q *Quota) ForgetTenant(tenant db.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeTenant(tenant)
}

func (q *Quota) removeTenant(tenant db.ID) {
	if t := q.tenants[tenant]; t != nil {
		q.total -= t.totalBytes()
		delete(q.tenants, tenant)
	}
}

// IsNearLimit reports whether a tenant has less than a quarter of what it may store left.
func (q *Quota) IsNearLimit(tenant db.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenants[tenant]
	return t != nil && t.totalBytes() > q.tenantLimit()/4*3
}

// StoredBytes returns how many bytes each tenant stores that has written in this process of late, as far as it knows.
func (q *Quota) StoredBytes() map[db.ID]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[db.ID]int64, len(q.tenants))
	for id, t := range maps.All(q.tenants) {
		all[id] = t.totalBytes()
	}
	return all
}

// RefusedWrites returns how many writes were refused.
func (q *Quota) RefusedWrites() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// rowOverhead is what a row takes beside its texts, its keys and indexes included, in bytes.
const rowOverhead = 256

// quotaTables are the tables that count for a quota, and the size of a row.
var quotaTables = append([]sizedTable{
	{"task", "0"}, {"run", "0"}, {"sent", "0"}, {"receiver", "octet_length(value)"},
}, sizedTables...)

// sumSizes adds up the sizes of the tenant's rows in tables, and row for each of them. It reads all of the tenant's rows, though not
// their long texts.
func (s *Store) sumSizes(ctx context.Context, tables []sizedTable, row int64) (total int64, err error) {
	parts := make([]string, len(tables))
	for i, k := range tables {
		parts[i] = `SELECT COALESCE(SUM(` + k.size + `), 0) + COUNT(*) * CAST($2 AS BIGINT) AS n FROM ` + k.table + ` WHERE tenant = $1`
	}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&total) }, `SELECT CAST(SUM(n) AS BIGINT) FROM (`+strings.Join(parts, " UNION ALL ")+`) AS sums`, s.tenant, row)
	if err := s.h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("add up the bytes that are stored: %w", err)
	}
	return total, nil
}
