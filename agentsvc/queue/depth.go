package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stoa/ratelimit"
	"stoa/tenancy/db"
)

// A count is trusted for belowLimitTTL while it leaves capacity, and for atLimitTTL while it does not: a full queue must
// be noticed as free again sooner.
const (
	belowLimitTTL = time.Second
	atLimitTTL    = 100 * time.Millisecond
)

// maxTenantDepths is how many tenants' counts are kept before stale ones are dropped.
const maxTenantDepths = 4096

// queueDepths keeps an approximate number of waiting runs for each tenant, so that accepting a run costs no count:
// the last count plus what this process has added since. Runs of other processes, and runs that have started since,
// show at the next count.
type queueDepths struct {
	// count counts a tenant's waiting runs in the database, up to limit. Set by New.
	count func(ctx context.Context, tenant db.ID, limit int64) (int64, error)
	mu    sync.Mutex // guards apps
	apps  map[db.ID]*tenantDepth
}

// tenantDepth is the count of one tenant.
type tenantDepth struct {
	counting chan struct{} // capacity 1: one goroutine counts, the others wait

	mu        sync.Mutex // guards the fields below
	waiting   int64      // runs at the last count, plus those written here since
	acquired  int64      // acquired entries whose run is not known to be written yet
	countedAt time.Time  // start of the last count
}

// acquireEntry acquires an entry of the tenant's queue, whose limit is most. done must be called with whether the run
// was written. It returns an error with [agentsvc.CodeExhausted] where the queue is full, and ctx's error. A count that
// began after this call is recent enough whatever its age: it includes all that was written before the call.
func (d *queueDepths) acquireEntry(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	a, arrivedAt := d.ensureTenantDepth(tenant), time.Now()
	done, known := a.tryAcquireEntry(most, arrivedAt)
	if known {
		return done, checkAcquired(done, most)
	}
	select {
	case a.counting <- struct{}{}:
		defer func() { <-a.counting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if done, known = a.tryAcquireEntry(most, arrivedAt); !known { // no other goroutine has counted meanwhile
		began := time.Now()
		n, err := d.count(ctx, tenant, most)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.waiting, a.countedAt = n, began
		a.mu.Unlock()
		done, _ = a.tryAcquireEntry(most, arrivedAt)
	}
	return done, checkAcquired(done, most)
}

// checkAcquired returns the error of a full queue, nil if done is set.
func checkAcquired(done func(bool), most int64) error {
	if done != nil {
		return nil
	}
	return fmt.Errorf("%d tasks of this app are waiting, which is the limit: %w", most, ratelimit.NewExhaustedError(time.Second))
}

// tryAcquireEntry acquires an entry if the stored count leaves capacity. known is false where that count is too old to
// decide; done is nil where there is no capacity.
func (d *tenantDepth) tryAcquireEntry(most int64, arrivedAt time.Time) (done func(written bool), known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	belowLimit, enough := d.waiting+d.acquired < most, atLimitTTL
	if belowLimit {
		enough = belowLimitTTL
	}
	if known = !d.countedAt.Before(arrivedAt) || time.Since(d.countedAt) < enough; !known || !belowLimit {
		return nil, known
	}
	d.acquired++
	return func(written bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.acquired--
		if written {
			d.waiting++
		}
	}, true
}

// ensureTenantDepth returns the depth of a tenant and creates it if it is missing.
func (d *queueDepths) ensureTenantDepth(tenant db.ID) *tenantDepth {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.apps[tenant]
	if a == nil {
		if len(d.apps) >= maxTenantDepths {
			d.dropStale()
		}
		a = &tenantDepth{counting: make(chan struct{}, 1)}
		d.apps[tenant] = a
	}
	return a
}

// dropStale drops counts that are too old to be used and have no acquired entry that is not done. The caller holds d.mu.
func (d *queueDepths) dropStale() {
	for tenant, a := range d.apps {
		a.mu.Lock()
		if a.acquired == 0 && time.Since(a.countedAt) > belowLimitTTL {
			delete(d.apps, tenant)
		}
		a.mu.Unlock()
	}
}
