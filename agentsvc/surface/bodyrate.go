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
	rate      float64      // bytes a second, of each app
	debtUntil atomic.Int64 // until when some app has a debt, at most, in Unix nanoseconds

	mu        sync.Mutex
	apps      map[db.ID]*tokenBucket
	sweepSize int // with so many apps those that have paid everything are forgotten
}

// tokenBucket is a token bucket. The mu of its bodyRates guards it.
type tokenBucket struct {
	tokens    float64 // bytes, less than 0 = a debt
	updatedAt time.Time
}

func newBodyRates(rate int64) *bodyRates {
	return &bodyRates{rate: float64(rate), apps: map[db.ID]*tokenBucket{}, sweepSize: 64}
}

// chargeApp takes cost from the app's tokens and returns how long it will take until it has no debt.
func (r *bodyRates) chargeApp(app db.ID, cost int64) time.Duration {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.apps[app]
	if b == nil {
		if len(r.apps) >= r.sweepSize {
			r.forgetIdle(now)
		}
		b = &tokenBucket{tokens: r.rate * bodyBurst, updatedAt: now}
		r.apps[app] = b
	}
	b.tokens = r.tokensAt(b, now) - float64(cost)
	b.updatedAt = now
	wait := max(0, time.Duration(-b.tokens/r.rate*float64(time.Second)))
	if until := now.Add(wait).UnixNano(); wait > 0 && until > r.debtUntil.Load() {
		r.debtUntil.Store(until)
	}
	return wait
}

// debtDuration returns how long it will take until the app has no debt. Where no app has one it takes no lock.
func (r *bodyRates) debtDuration(app db.ID) time.Duration {
	if time.Now().UnixNano() >= r.debtUntil.Load() {
		return 0
	}
	return r.chargeApp(app, 0)
}

// tokensAt returns the tokens that b has by now.
func (r *bodyRates) tokensAt(b *tokenBucket, now time.Time) float64 {
	return min(r.rate*bodyBurst, b.tokens+now.Sub(b.updatedAt).Seconds()*r.rate)
}

func (r *bodyRates) forgetIdle(now time.Time) {
	for app, b := range r.apps {
		if r.tokensAt(b, now) >= r.rate*bodyBurst {
			delete(r.apps, app)
		}
	}
	r.sweepSize = max(64, 2*len(r.apps))
}

// waitForDebt waits until the app has no debt.
func (r *bodyRates) waitForDebt(ctx context.Context, app db.ID) error {
	owed := r.debtDuration(app)
	if owed == 0 {
		return nil
	}
	timer := time.NewTimer(owed)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errBodyBudgetExhausted
	}
}
