package surface

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// Bodies are in memory several times over while they become rows, and their JSON values at many times their size. Only so
// many bytes and so many values are taken in at a time, of one app and of all. Who sends more waits. Room is taken for what has
// arrived ([pool]): what a body says about its size takes none of others'.
const (
	appBodyBytes    = 128 << 20        // bytes of bodies, of one app; as all that they have announced
	totalBodyBytes  = 256 << 20        // of all
	appBodyValues   = 150_000          // JSON values in bodies, of one app; more than one body may have
	totalBodyValues = 300_000          // of all
	bodyBudgetWait  = 10 * time.Second // for room

	// A small body takes its room from one counter for all apps, without waiting. When that is used up it is treated as the
	// others are.
	smallBodyBytes  = 64 << 10 // bytes
	smallBodyValues = 1000
	smallBodyBudget = 16 << 20 // bytes of memory
	valueMemory     = 256      // bytes of memory that a JSON value takes, about

	// appMessageSlots is how many messages of one app come in at a time where nobody can say how large they are. There is no bound for
	// all apps: one that is slow would keep others out. While another of the app waits, slowMessageGrace is how long one may take.
	appMessageSlots  = 16
	slowMessageGrace = 5 * time.Second

	// Deliveries to webhooks that have not proven who sent them have a room of their own, which no tenant needs for
	// anything else. No tenant's fill more than half of it.
	appUnverifiedBytes   = 8 << 20 // bytes
	totalUnverifiedBytes = 16 << 20
)

// bodyBudget is where bodies are taken in.
type bodyBudget struct {
	bytes, values, unverified *quotaPool
	messageSlots              *quotaPool        // messages of unknown size
	rates, unverifiedRates    *bodyRates        // at which the bytes of large bodies arrive
	smallBytes                atomic.Int64      // bytes of memory that small bodies take
	largeBytes                atomic.Int64      // bytes of memory that the others take, about
	onLargeChange             func(large int64) // is told of each change of large, nil = nobody wants to know
}

func newBodyBudget(watch func(large int64), rate int64) *bodyBudget {
	r := &bodyBudget{
		bytes: newQuotaPool(appBodyBytes, totalBodyBytes), values: newQuotaPool(appBodyValues, totalBodyValues), unverified: newQuotaPool(appUnverifiedBytes, totalUnverifiedBytes),
		messageSlots: newQuotaPool(appMessageSlots, math.MaxInt64), rates: newBodyRates(rate), unverifiedRates: newBodyRates(rate), onLargeChange: watch,
	}
	r.messageSlots.grace = slowMessageGrace
	return r
}

// addLargeBytes adds to what large bodies take.
func (r *bodyBudget) addLargeBytes(n int64) {
	now := r.largeBytes.Add(n)
	if r.onLargeChange != nil {
		r.onLargeChange(now)
	}
}

// bodyReservation is the room that one body has. The zero value has none; it belongs to one goroutine at a time.
type bodyReservation struct {
	budget     *bodyBudget
	smallBytes int64            // of the counter of small bodies
	largeBytes int64            // that was weighed
	body       *poolReservation // of the bytes, nil = none
	values     *poolReservation
}

// addLargeBytes adds to what the body takes.
func (h *bodyReservation) addLargeBytes(r *bodyBudget, n int64) {
	h.budget, h.largeBytes = r, h.largeBytes+n
	r.addLargeBytes(n)
}

// reserveDecoded waits for room for what a body of an app's that is read takes once it is decoded.
func (h *bodyReservation) reserveDecoded(ctx context.Context, r *bodyBudget, app db.ID, size, values int) (err error) {
	if h.smallBytes > 0 || h.values != nil {
		return nil // the same body was read before
	}
	h.budget = r
	if h.body == nil && size <= smallBodyBytes && values <= smallBodyValues {
		weight := int64(size + values*valueMemory)
		if r.smallBytes.Add(weight) <= smallBodyBudget {
			h.smallBytes = weight
			return nil
		}
		r.smallBytes.Add(-weight)
	}
	cost := int64(values) * valueCost
	if h.body == nil {
		cost += int64(size)
		if err = r.rates.waitForDebt(ctx, app); err != nil { // who waits for the app's debt has no room meanwhile
			return err
		}
		if h.body, err = r.bytes.reserveBody(ctx, app, int64(size), int64(size), nil); err != nil {
			return err
		}
		h.addLargeBytes(r, int64(size))
	}
	r.rates.chargeApp(app, cost) // the next body waits for it
	if h.values, err = r.values.reserveBody(ctx, app, int64(values), int64(values), nil); err != nil {
		return err
	}
	h.addLargeBytes(r, int64(values)*valueMemory)
	return nil
}

// release gives everything back. It may be called again.
func (h *bodyReservation) release() {
	if h.budget == nil {
		return
	}
	if h.smallBytes > 0 {
		h.budget.smallBytes.Add(-h.smallBytes)
	}
	for _, t := range []*poolReservation{h.body, h.values} {
		if t != nil {
			t.release()
		}
	}
	if h.largeBytes > 0 {
		h.budget.addLargeBytes(-h.largeBytes)
	}
	*h = bodyReservation{}
}
