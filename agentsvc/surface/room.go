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
	appRoom   = 128 << 20        // bytes of bodies, of one app; as all that they have announced
	allRoom   = 256 << 20        // of all
	appValues = 150_000          // JSON values in bodies, of one app; more than one body may have
	allValues = 300_000          // of all
	roomWait  = 10 * time.Second // for room

	// A small body takes its room from one counter for all apps, without waiting. When that is used up it is treated as the
	// others are.
	smallBody   = 64 << 10 // bytes
	smallValues = 1000
	smallRoom   = 16 << 20 // bytes of memory
	valueSize   = 256      // bytes of memory that a JSON value takes, about

	// appReceiving is how many messages of one app come in at a time where nobody can say how large they are. There is no bound for
	// all apps: one that is slow would keep others out. While another of the app waits, receivingGrace is how long one may take.
	appReceiving   = 16
	receivingGrace = 5 * time.Second

	// Deliveries to webhooks that have not proven who sent them have a room of their own, which no tenant needs for
	// anything else. No tenant's fill more than half of it.
	appUnproven = 8 << 20 // bytes
	allUnproven = 16 << 20
)

// rooms is where bodies are taken in.
type rooms struct {
	bytes, values, unproven *pool
	receiving               *pool             // messages of unknown size
	rates, unprovenRates    *bodyRates        // at which the bytes of large bodies arrive
	small                   atomic.Int64      // bytes of memory that small bodies take
	large                   atomic.Int64      // bytes of memory that the others take, about
	watch                   func(large int64) // is told of each change of large, nil = nobody wants to know
}

func newRooms(watch func(large int64), rate int64) *rooms {
	r := &rooms{
		bytes: newPool(appRoom, allRoom), values: newPool(appValues, allValues), unproven: newPool(appUnproven, allUnproven),
		receiving: newPool(appReceiving, math.MaxInt64), rates: newBodyRates(rate), unprovenRates: newBodyRates(rate), watch: watch,
	}
	r.receiving.grace = receivingGrace
	return r
}

// weigh adds to what large bodies take.
func (r *rooms) weigh(n int64) {
	now := r.large.Add(n)
	if r.watch != nil {
		r.watch(now)
	}
}

// hold is the room that one body has. The zero value has none; it belongs to one goroutine at a time.
type hold struct {
	rooms  *rooms
	small  int64 // of the counter of small bodies
	large  int64 // that was weighed
	body   *part // of the bytes, nil = none
	values *part
}

// weigh adds to what the body takes.
func (h *hold) weigh(r *rooms, n int64) {
	h.rooms, h.large = r, h.large+n
	r.weigh(n)
}

// takeValues waits for room for what a body of an app's that is read takes once it is decoded.
func (h *hold) takeValues(ctx context.Context, r *rooms, app db.ID, size, values int) (err error) {
	if h.small > 0 || h.values != nil {
		return nil // the same body was read before
	}
	h.rooms = r
	if h.body == nil && size <= smallBody && values <= smallValues {
		weight := int64(size + values*valueSize)
		if r.small.Add(weight) <= smallRoom {
			h.small = weight
			return nil
		}
		r.small.Add(-weight)
	}
	cost := int64(values) * valueCost
	if h.body == nil {
		cost += int64(size)
		if err = r.rates.wait(ctx, app); err != nil { // who waits for the app's debt has no room meanwhile
			return err
		}
		if h.body, err = r.bytes.take(ctx, app, int64(size), int64(size), nil); err != nil {
			return err
		}
		h.weigh(r, int64(size))
	}
	r.rates.charge(app, cost) // the next body waits for it
	if h.values, err = r.values.take(ctx, app, int64(values), int64(values), nil); err != nil {
		return err
	}
	h.weigh(r, int64(values)*valueSize)
	return nil
}

// release gives everything back. It may be called again.
func (h *hold) release() {
	if h.rooms == nil {
		return
	}
	if h.small > 0 {
		h.rooms.small.Add(-h.small)
	}
	for _, t := range []*part{h.body, h.values} {
		if t != nil {
			t.leave()
		}
	}
	if h.large > 0 {
		h.rooms.weigh(-h.large)
	}
	*h = hold{}
}
