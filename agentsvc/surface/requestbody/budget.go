package requestbody

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// Bounds of request bodies in memory. While a body becomes rows it is in memory several times, and its JSON values take
// many times their size. So only a limited number of bytes and of values are read at a time, by app and in total;
// bodies beyond that wait (quotaPool). Memory is reserved for what has arrived: what a body announces takes nothing
// from other apps. See "Bounds on what comes in" in docs/security.md.
const (
	// appBodyBytes is how many bytes the bodies of one app may announce, totalBodyBytes how many all bodies may use.
	appBodyBytes   = 128 << 20
	totalBodyBytes = 256 << 20
	// appBodyValues and totalBodyValues are the same for JSON values. One app may announce more than one body can have
	// (MaxValues), so that its small bodies do not wait for its largest.
	appBodyValues   = 150_000
	totalBodyValues = 300_000
	// maxWait is how long a body waits; then it is refused (429).
	maxWait = 10 * time.Second

	// A body of at most smallBodyBytes and smallBodyValues does not wait: it takes its memory from one atomic counter
	// for all apps, of smallBodyBudget bytes. If that is used up, it is treated as a large one.
	smallBodyBytes  = 64 << 10 // bytes
	smallBodyValues = 1000
	smallBodyBudget = 16 << 20
	valueMemory     = 256 // estimated bytes of memory for a decoded JSON value

	// appMessageSlots is how many messages of one app may be received at a time where their size is not known
	// beforehand, as in gRPC. There is no bound for all apps together: slow senders of one app would keep out the
	// others. slowMessageGrace is how long receiving one may take while another of the app waits.
	appMessageSlots  = 16
	slowMessageGrace = 5 * time.Second

	// Deliveries to webhooks whose signature is not verified yet take their bytes from a pool that nothing else uses,
	// so that unsigned deliveries cannot keep out an app's callers. Those to one app get at most half of it.
	appUnverifiedBytes   = 8 << 20 // bytes
	totalUnverifiedBytes = 16 << 20
)

// Budget is the quotas that all request bodies of a server share.
type Budget struct {
	// bytes and values are for large bodies, unverified for the bytes of deliveries whose signature is not verified
	// yet.
	bytes, values, unverified *quotaPool
	// messageSlots is for messages of unknown size, one for each.
	messageSlots *quotaPool
	// rates and unverifiedRates bound how fast the bytes of large bodies are read, by app.
	rates, unverifiedRates *rateLimits
	// smallBytes is how much memory small bodies take, in bytes.
	smallBytes atomic.Int64
	// largeBytes is an estimate of how much memory the others take, in bytes.
	largeBytes atomic.Int64
	// onLargeChange is called with largeBytes after each change; nil = not called.
	onLargeChange func(large int64)
}

// NewBudget returns an unused budget. watch becomes onLargeChange; rate is in bytes a second, for each app.
func NewBudget(watch func(large int64), rate int64) *Budget {
	r := &Budget{
		bytes: newQuotaPool(appBodyBytes, totalBodyBytes), values: newQuotaPool(appBodyValues, totalBodyValues), unverified: newQuotaPool(appUnverifiedBytes, totalUnverifiedBytes),
		messageSlots: newQuotaPool(appMessageSlots, math.MaxInt64), rates: newRateLimits(rate), unverifiedRates: newRateLimits(rate), onLargeChange: watch,
	}
	r.messageSlots.grace = slowMessageGrace
	return r
}

// addLargeBytes adds n, which may be negative, to the memory of large bodies.
func (b *Budget) addLargeBytes(n int64) {
	now := b.largeBytes.Add(n)
	if b.onLargeChange != nil {
		b.onLargeChange(now)
	}
}

// bodyReservation is what one body has reserved. The zero value has nothing. One goroutine uses it at a time.
type bodyReservation struct {
	// budget is what release returns to; nil = nothing is reserved.
	budget *Budget
	// smallBytes is its part of Budget.smallBytes, largeBytes of Budget.largeBytes.
	smallBytes int64
	largeBytes int64
	// body and values are its parts of the pools; nil = none.
	body   *poolReservation
	values *poolReservation
}

// addLargeBytes adds n to the memory that this body takes of r.
func (res *bodyReservation) addLargeBytes(r *Budget, n int64) {
	res.budget, res.largeBytes = r, res.largeBytes+n
	r.addLargeBytes(n)
}

// reserveDecoded waits until a body of size bytes that was read may be decoded to that many values, and charges its
// app's rate for the work. It does nothing for a body that it reserved before. It returns errBodyBudgetExhausted.
func (res *bodyReservation) reserveDecoded(ctx context.Context, r *Budget, app db.ID, size, values int) (err error) {
	if res.smallBytes > 0 || res.values != nil {
		return nil // the body is read a second time, as serveIdempotent does
	}
	res.budget = r
	if res.body == nil && size <= smallBodyBytes && values <= smallBodyValues {
		weight := int64(size + values*valueMemory)
		if r.smallBytes.Add(weight) <= smallBodyBudget {
			res.smallBytes = weight
			return nil
		}
		r.smallBytes.Add(-weight)
	}
	cost := int64(values) * valueCost
	if res.body == nil {
		cost += int64(size)
		// Nothing is reserved while the body waits for its app's rate, so it keeps out no other body meanwhile.
		if err = r.rates.waitForDebt(ctx, app); err != nil {
			return err
		}
		if res.body, err = r.bytes.reserveBody(ctx, app, int64(size), int64(size), nil); err != nil {
			return err
		}
		res.addLargeBytes(r, int64(size))
	}
	r.rates.chargeApp(app, cost) // the next body of the app waits for it
	if res.values, err = r.values.reserveBody(ctx, app, int64(values), int64(values), nil); err != nil {
		return err
	}
	res.addLargeBytes(r, int64(values)*valueMemory)
	return nil
}

// release returns everything that is reserved. It may be called more than once.
func (res *bodyReservation) release() {
	if res.budget == nil {
		return
	}
	if res.smallBytes > 0 {
		res.budget.smallBytes.Add(-res.smallBytes)
	}
	for _, t := range []*poolReservation{res.body, res.values} {
		if t != nil {
			t.release()
		}
	}
	if res.largeBytes > 0 {
		res.budget.addLargeBytes(-res.largeBytes)
	}
	*res = bodyReservation{}
}
