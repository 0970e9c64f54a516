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
	roomFor = time.Second
	fullFor = 100 * time.Millisecond
)

// maxDepths is how many apps' counts are kept before those that nobody needs are dropped.
const maxDepths = 4096

// depths knows about how many runs of each app wait, without counting them for each new one: what was counted last and
// what this process has added since. Other processes' runs, and those that found a worker, show at the next count.
type depths struct {
	count func(ctx context.Context, tenant db.ID, limit int64) (int64, error)
	mu    sync.Mutex
	apps  map[db.ID]*depth
}

// depth is what is known of one app.
type depth struct {
	looking chan struct{} // one counts, the others wait for it

	mu      sync.Mutex
	waiting int64
	writing int64 // admitted, and not yet known to be written
	at      time.Time
}

// admit counts a run in, or returns a [ratelimit.ExhaustedError] where most are there already.
func (d *depths) admit(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	a := d.app(tenant)
	done, fresh := a.enter(most)
	if done != nil || fresh {
		return done, full(done, most)
	}
	select {
	case a.looking <- struct{}{}:
		defer func() { <-a.looking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if done, fresh = a.enter(most); done == nil && !fresh { // nobody has counted meanwhile
		began := time.Now()
		n, err := d.count(ctx, tenant, most)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.waiting, a.at = n, began
		a.mu.Unlock()
		done, _ = a.enter(most)
	}
	return done, full(done, most)
}

func full(done func(bool), most int64) error {
	if done != nil {
		return nil
	}
	return fmt.Errorf("%d tasks of this app are waiting, as many as may: %w", most, &ratelimit.ExhaustedError{RetryAfter: time.Second})
}

// enter counts a run in if there is room for it as far as is known. fresh says that what is known is good enough to say
// no.
func (a *depth) enter(most int64) (done func(written bool), fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	age := time.Since(a.at)
	if a.waiting+a.writing >= most {
		return nil, age < fullFor
	}
	if age > roomFor {
		return nil, false
	}
	a.writing++
	return func(written bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.writing--
		if written {
			a.waiting++
		}
	}, true
}

func (d *depths) app(tenant db.ID) *depth {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.apps[tenant]
	if a == nil {
		if len(d.apps) >= maxDepths {
			d.tidy()
		}
		a = &depth{looking: make(chan struct{}, 1)}
		d.apps[tenant] = a
	}
	return a
}

// tidy drops what is too old to be of use. d.mu is held.
func (d *depths) tidy() {
	for tenant, a := range d.apps {
		a.mu.Lock()
		if a.writing == 0 && time.Since(a.at) > roomFor {
			delete(d.apps, tenant)
		}
		a.mu.Unlock()
	}
}
