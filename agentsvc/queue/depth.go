package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stoa/ratelimit"
	"stoa/tenancy/db"
)

// How old a count of an app's waiting runs may be: where there seems to be room, and where there seems to be none.
const (
	belowLimitTTL = time.Second
	atLimitTTL    = 100 * time.Millisecond
)

// maxTenantDepths is how many apps' counts are kept before those that nobody needs are dropped.
const maxTenantDepths = 4096

// queueDepths knows about how many runs of each app wait, without counting them for each new one: what was counted last and
// what this process has added since. Other processes' runs, and those that found a worker, show at the next count.
type queueDepths struct {
	count func(ctx context.Context, tenant db.ID, limit int64) (int64, error)
	mu    sync.Mutex
	apps  map[db.ID]*tenantDepth
}

// tenantDepth is what is known of one app.
type tenantDepth struct {
	counting chan struct{} // one counts, the others wait for it

	mu        sync.Mutex
	waiting   int64
	reserved  int64 // admitted, and not yet known to be written
	countedAt time.Time
}

// reserveEntry counts a run in, or returns a [ratelimit.ExhaustedError] where most are there already. A count that began after
// the run came is good enough for it, however long it took.
func (d *queueDepths) reserveEntry(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	a, arrivedAt := d.ensureTenantDepth(tenant), time.Now()
	done, known := a.tryReserveEntry(most, arrivedAt)
	if known {
		return done, checkReserved(done, most)
	}
	select {
	case a.counting <- struct{}{}:
		defer func() { <-a.counting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if done, known = a.tryReserveEntry(most, arrivedAt); !known { // nobody has counted meanwhile
		began := time.Now()
		n, err := d.count(ctx, tenant, most)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.waiting, a.countedAt = n, began
		a.mu.Unlock()
		done, _ = a.tryReserveEntry(most, arrivedAt)
	}
	return done, checkReserved(done, most)
}

func checkReserved(done func(bool), most int64) error {
	if done != nil {
		return nil
	}
	return fmt.Errorf("%d tasks of this app are waiting, as many as may: %w", most, &ratelimit.ExhaustedError{RetryAfter: time.Second})
}

// tryReserveEntry counts in a run that came then if there is room for it. known is false where what was counted last is too old to
// say.
func (a *tenantDepth) tryReserveEntry(most int64, arrivedAt time.Time) (done func(written bool), known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	belowLimit, enough := a.waiting+a.reserved < most, atLimitTTL
	if belowLimit {
		enough = belowLimitTTL
	}
	if known = !a.countedAt.Before(arrivedAt) || time.Since(a.countedAt) < enough; !known || !belowLimit {
		return nil, known
	}
	a.reserved++
	return func(written bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reserved--
		if written {
			a.waiting++
		}
	}, true
}

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

// dropStale drops what is too old to be of use. d.mu is held.
func (d *queueDepths) dropStale() {
	for tenant, a := range d.apps {
		a.mu.Lock()
		if a.reserved == 0 && time.Since(a.countedAt) > belowLimitTTL {
			delete(d.apps, tenant)
		}
		a.mu.Unlock()
	}
}
