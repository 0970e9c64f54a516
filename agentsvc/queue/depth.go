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

// admit counts a run in, or returns a [ratelimit.ExhaustedError] where most are there already. A count that began after
// the run came is good enough for it, however long it took.
func (d *depths) admit(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	a, came := d.app(tenant), time.Now()
	done, known := a.enter(most, came)
	if known {
		return done, full(done, most)
	}
	select {
	case a.looking <- struct{}{}:
		defer func() { <-a.looking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if done, known = a.enter(most, came); !known { // nobody has counted meanwhile
		began := time.Now()
		n, err := d.count(ctx, tenant, most)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.waiting, a.at = n, began
		a.mu.Unlock()
		done, _ = a.enter(most, came)
	}
	return done, full(done, most)
}

func full(done func(bool), most int64) error {
	if done != nil {
		return nil
	}
	return fmt.Errorf("%d tasks of this app are waiting, as many as may: %w", most, &ratelimit.ExhaustedError{RetryAfter: time.Second})
}

// enter counts in a run that came then if there is room for it. known is false where what was counted last is too old to
// say.
func (a *depth) enter(most int64, came time.Time) (done func(written bool), known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	room, enough := a.waiting+a.writing < most, fullFor
	if room {
		enough = roomFor
	}
	if known = !a.at.Before(came) || time.Since(a.at) < enough; !known || !room {
		return nil, known
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
