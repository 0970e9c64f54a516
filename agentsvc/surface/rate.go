package surface

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

const (
	defaultBodyRate = 16 << 20 // bytes a second
	bodyBurst       = 2        // seconds of the rate that arrive at once after a pause
	// valueCost is what a JSON value of a large body costs as if it were so many bytes: reading, counting and decoding one of
	// two bytes takes as long as 16 bytes of a text.
	valueCost = 16
	// refusedCost is what a large body costs at least that is refused for what it holds, however little of it was read: the next one
	// needs a connection of its own.
	refusedCost = 256 << 10
)

// bodyRates bound how fast large bodies of each app are taken in: their sender waits, nothing is refused. Otherwise the processor
// time that one app's bodies take is bounded only by its connections, and small requests of others wait for it.
type bodyRates struct {
	rate float64      // bytes a second, of each app
	debt atomic.Int64 // until when some app has a debt, at most, in Unix nanoseconds

	mu    sync.Mutex
	apps  map[db.ID]*bodyRate
	sweep int // with so many apps those that have paid everything are forgotten
}

// bodyRate is a token bucket. The mu of its bodyRates guards it.
type bodyRate struct {
	tokens float64 // bytes, less than 0 = a debt
	at     time.Time
}

func newBodyRates(rate int64) *bodyRates {
	return &bodyRates{rate: float64(rate), apps: map[db.ID]*bodyRate{}, sweep: 64}
}

// charge takes cost from the app's tokens and returns how long it will take until it has no debt.
func (r *bodyRates) charge(app db.ID, cost int64) time.Duration {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.apps[app]
	if b == nil {
		if len(r.apps) >= r.sweep {
			r.forget(now)
		}
		b = &bodyRate{tokens: r.rate * bodyBurst, at: now}
		r.apps[app] = b
	}
	b.tokens = r.at(b, now) - float64(cost)
	b.at = now
	wait := max(0, time.Duration(-b.tokens/r.rate*float64(time.Second)))
	if until := now.Add(wait).UnixNano(); wait > 0 && until > r.debt.Load() {
		r.debt.Store(until)
	}
	return wait
}

// owed returns how long it will take until the app has no debt. Where no app has one it takes no lock.
func (r *bodyRates) owed(app db.ID) time.Duration {
	if time.Now().UnixNano() >= r.debt.Load() {
		return 0
	}
	return r.charge(app, 0)
}

// at returns the tokens that b has by now.
func (r *bodyRates) at(b *bodyRate, now time.Time) float64 {
	return min(r.rate*bodyBurst, b.tokens+now.Sub(b.at).Seconds()*r.rate)
}

func (r *bodyRates) forget(now time.Time) {
	for app, b := range r.apps {
		if r.at(b, now) >= r.rate*bodyBurst {
			delete(r.apps, app)
		}
	}
	r.sweep = max(64, 2*len(r.apps))
}

// wait waits until the app has no debt.
func (r *bodyRates) wait(ctx context.Context, app db.ID) error {
	owed := r.owed(app)
	if owed == 0 {
		return nil
	}
	timer := time.NewTimer(owed)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errNoRoom
	}
}
