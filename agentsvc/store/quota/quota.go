// Package quota bounds what tenants store in a database, and measures it.
package quota

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Options bound what each tenant may store in a database, in bytes. Either PerTenant or Shared is set.
type Options struct {
	PerTenant int64  // for each tenant
	Shared    int64  // for all together; one tenant may store as much as it leaves free
	Advice    string // for the tenant, in the error of a refused write
	Log       *slog.Logger
}

// Quota bounds what tenants store in a database; it implements [db.Quota]. It adds what this process writes to what
// it measured last, and measures a tenant again before the sum can be wrong by much, so that a write needs no extra
// statement. What other processes have written since the last measurement is unknown to it.
type Quota struct {
	database *db.DB
	options  Options

	// mu guards the fields below.
	mu      sync.Mutex
	tenants map[db.ID]*tenantUsage
	total   int64         // sum of totalBytes over tenants
	refused int64         // refused writes since the process started
	wakeup  chan struct{} // capacity 1: some tenant is due for measurement
}

// tenantUsage is what a tenant stores, in bytes. [Quota].mu guards it.
type tenantUsage struct {
	measured        int64
	added           int64     // written by this process since the measurement began
	refused         int64     // refused writes since the measurement
	isMeasured      bool      // false until the first measurement
	measuredAt      time.Time // start of the measurement, or the first write before it
	nextMeasurement time.Time // earliest time of the next measurement
}

// totalBytes returns the estimate of what the tenant stores.
func (t *tenantUsage) totalBytes() int64 { return t.measured + t.added }

// A measurement reads the keys of all the tenant's rows. It may take one measureCostRatio-th of the time.
const (
	measureCostRatio       = 100
	minMeasureInterval     = 10 * time.Second // at least, between two measurements of a tenant
	refusedMeasureInterval = time.Minute      // for a tenant whose writes are refused: rows may have been deleted
	measureTimeout         = time.Minute      // bounds one measurement
	remeasureFraction      = 16               // a tenant is due when it wrote this fraction of what was free
	firstMeasureFraction   = 1024             // first due when it wrote this fraction of its limit; most tenants never do
	quotaIdleTime          = time.Hour        // after which a tenant that does not write is forgotten
)

// quotaReserveFraction is the fraction of its limit that a tenant may store beyond it for what was begun, so that
// runs in progress can end instead of failing.
const quotaReserveFraction = 8

// maxEndBytes is the size up to which a write that ends something is never refused.
const maxEndBytes = 64 << 10

// New returns a quota for d. It takes effect with d.SetQuota, and measures while Run is active.
func New(d *db.DB, o Options) *Quota {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Quota{database: d, options: o, tenants: map[db.ID]*tenantUsage{}, wakeup: make(chan struct{}, 1)}
}

// AllowWrite implements [db.Quota]: it counts a write or returns an error with [agentsvc.StorageUse]. It does no I/O.
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
		return agentsvc.StorageUse{StoredBytes: t.totalBytes(), MaxBytes: q.tenantLimit()}.NewError(q.options.Advice, refusedMeasureInterval)
	}
	t.added += bytes
	q.total += bytes
	if q.isDue(t) {
		q.requestMeasurement()
	}
	return nil
}

// tenantLimit returns how much a tenant may store. The caller holds q.mu.
func (q *Quota) tenantLimit() int64 {
	if q.options.Shared > 0 {
		return max(q.options.Shared-q.total, 0)
	}
	return q.options.PerTenant
}

// isDue reports whether a tenant needs a measurement, as soon as nextMeasurement allows it. The caller holds q.mu.
func (q *Quota) isDue(t *tenantUsage) bool {
	if !t.isMeasured {
		return t.added > q.tenantLimit()/firstMeasureFraction
	}
	return t.added > max(q.tenantLimit()-t.measured, 0)/remeasureFraction
}

// requestMeasurement signals Run.
func (q *Quota) requestMeasurement() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// Run measures the tenants that are due until ctx ends.
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
				q.options.Log.Warn("the stored bytes of an app could not be measured", "tenant", id, "error", err)
			}
		}
	}
}

// dueTenants returns the tenants to measure now, and forgets those that have not written for quotaIdleTime.
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
		case now.Sub(t.measuredAt) >= quotaIdleTime: // other processes may have written or deleted
			ids = append(ids, id)
		}
	}
	return ids
}

// MeasureTenant measures how much a tenant stores. Bytes that are written during the measurement are counted twice
// until the next one.
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
	n, err := sumSizes(ctx, q.database.Tenant(tenant), tenant, quotaTables, rowOverhead)
	took := time.Since(began)
	q.mu.Lock()
	defer q.mu.Unlock()
	t.nextMeasurement = time.Now().Add(max(minMeasureInterval, measureCostRatio*took))
	// Forgotten during the measurement: the entry is not in total any more.
	if err != nil || q.tenants[tenant] != t {
		return err
	}
	if t.refused > 0 {
		q.options.Log.Warn("an app has reached its bound of stored bytes, and a write was refused", "tenant", tenant, "bytes", n, "most", q.tenantLimit(), "refused", t.refused)
	}
	q.total += n - t.measured - before
	t.measured, t.added, t.refused, t.isMeasured, t.measuredAt = n, t.added-before, 0, true, began
	return nil
}

// ForgetTenant removes a tenant whose rows were deleted.
func (q *Quota) ForgetTenant(tenant db.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeTenant(tenant)
}

// removeTenant removes a tenant's entry and its part of total. The caller holds q.mu.
func (q *Quota) removeTenant(tenant db.ID) {
	if t := q.tenants[tenant]; t != nil {
		q.total -= t.totalBytes()
		delete(q.tenants, tenant)
	}
}

// IsNearLimit reports whether a tenant stores more than three quarters of its limit.
func (q *Quota) IsNearLimit(tenant db.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenants[tenant]
	return t != nil && t.totalBytes() > q.tenantLimit()/4*3
}

// StoredBytes returns the estimates of the tenants that have written in this process recently.
func (q *Quota) StoredBytes() map[db.ID]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[db.ID]int64, len(q.tenants))
	for id, t := range maps.All(q.tenants) {
		all[id] = t.totalBytes()
	}
	return all
}

// RefusedWrites returns how many writes were refused since the process started.
func (q *Quota) RefusedWrites() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}
