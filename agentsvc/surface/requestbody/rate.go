package requestbody

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

const (
	// DefaultRate is the default of surface.Options.BodyRate, in bytes a second.
	DefaultRate = 16 << 20
	// bodyBurst is how many seconds' worth of the rate an app may send at once after a pause.
	bodyBurst = 2
	// valueCost is how many bytes a JSON value of a large body counts for: reading, counting and decoding a value of
	// two bytes takes as much processor time as 16 bytes of a string.
	valueCost = 16
	// refusedCost is what a large body that is refused for its content counts for at least, in bytes, however little of
	// it was read: the next one needs a new connection.
	refusedCost = 256 << 10
)

// rateLimits bounds at which rate the large bodies of each app are read. A body beyond the rate waits; none is refused.
// Without it only the number of connections would bound the processor time that one app's bodies take, and small
// requests of other apps would wait for it.
type rateLimits struct {
	// rate is in bytes a second, for each app.
	rate float64
	// debtUntil is a time after which no app has a debt, in Unix nanoseconds. It only grows. It is written under mu and
	// read without it, so that requests take no lock as long as no app is in debt.
	debtUntil atomic.Int64

	// mu guards apps and the buckets in it, and sweepSize.
	mu sync.Mutex
	// apps are the apps that sent large bodies; one that is missing has a full bucket.
	apps map[db.ID]*tokenBucket
	// sweepSize is the number of apps at which forgetIdle runs before another one is added.
	sweepSize int
}

// tokenBucket is the token bucket of an app. A body is charged after it was read, so tokens may be negative.
type tokenBucket struct {
	// tokens is in bytes, as of updatedAt; less than 0 = a debt.
	tokens    float64
	updatedAt time.Time
}

// newRateLimits returns rates of rate bytes a second.
func newRateLimits(rate int64) *rateLimits {
	return &rateLimits{rate: float64(rate), apps: map[db.ID]*tokenBucket{}, sweepSize: 64}
}

// chargeApp takes cost bytes from the app's tokens and returns how long the app is in debt. The caller waits that long
// before it reads more.
func (r *rateLimits) chargeApp(app db.ID, cost int64) time.Duration {
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

// debtDuration returns how long the app is in debt. It takes no lock if no app is.
func (r *rateLimits) debtDuration(app db.ID) time.Duration {
	if time.Now().UnixNano() >= r.debtUntil.Load() {
		return 0
	}
	return r.chargeApp(app, 0)
}

// tokensAt returns the tokens of b at now. The caller holds r.mu.
func (r *rateLimits) tokensAt(b *tokenBucket, now time.Time) float64 {
	return min(r.rate*bodyBurst, b.tokens+now.Sub(b.updatedAt).Seconds()*r.rate)
}

// forgetIdle removes the apps whose buckets are full, which is what a missing one stands for. The caller holds r.mu.
func (r *rateLimits) forgetIdle(now time.Time) {
	for app, b := range r.apps {
		if r.tokensAt(b, now) >= r.rate*bodyBurst {
			delete(r.apps, app)
		}
	}
	r.sweepSize = max(64, 2*len(r.apps))
}

// waitForDebt waits until the app is not in debt. It returns errBodyBudgetExhausted if ctx ends before.
func (r *rateLimits) waitForDebt(ctx context.Context, app db.ID) error {
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
