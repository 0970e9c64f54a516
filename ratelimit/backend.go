package ratelimit

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// Backend stores counters. [NewMemory], [NewRedis], [NewSQL] and [NewFallback] return one. It is safe for concurrent
// use.
type Backend interface {
	// addCounters adds the amounts to all counters of a tenant, or to none if one of them would exceed its limit; both
	// are one atomic step. at returns the counters of the windows that contain a time, which the backend takes from its
	// own clock. at may be called several times.
	addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error)
}

// counter is one count within one window, and the change to apply to it.
type counter struct {
	// key identifies the counter within its tenant: the rule, what it counts, and the start of the window.
	key        string
	start, end time.Time
	// amount is added; if it is negative the count does not fall below 0.
	amount int64
	// limit bounds the count after adding, or is unlimited.
	limit int64
}

// unlimited is the limit of a counter that accepts every amount.
const unlimited = math.MaxInt64

// outcome is the result of addCounters.
type outcome struct {
	counters []counter
	// used has the count of each counter before adding.
	used []int64
	// fits reports whether the amounts were added.
	fits bool
	// now is the time of the backend's clock.
	now time.Time
}

// areWithinLimits reports whether every counter can take its amount.
func areWithinLimits(cs []counter, used []int64) bool {
	for i, c := range cs {
		if c.limit != unlimited && used[i]+c.amount > c.limit {
			return false
		}
	}
	return true
}

// clock estimates the clock of a remote backend, by which the windows of all processes are computed although their own
// clocks may differ. The zero value starts with this process's clock. offset is in nanoseconds.
type clock struct {
	offset atomic.Int64
}

// errClockUnstable reports that five attempts met five different windows.
var errClockUnstable = errors.New("the clock of the backend that counts limits keeps changing")

// addByClock calls try with the counters of the estimated time. try adds nothing if the backend's time is outside of
// their windows; then the estimate is corrected and try is called again.
func (c *clock) addByClock(at func(now time.Time) []counter, try func(cs []counter) (outcome, error)) (outcome, error) {
	for range 5 {
		cs := at(time.Now().Add(time.Duration(c.offset.Load())))
		out, err := try(cs)
		if err != nil {
			return outcome{}, err
		}
		if areInWindows(cs, out.now) {
			out.counters = cs
			return out, nil
		}
		c.offset.Store(int64(time.Until(out.now)))
	}
	return outcome{}, errClockUnstable
}

// areInWindows reports whether now is in the windows of all counters.
func areInWindows(cs []counter, now time.Time) bool {
	from, till := commonWindow(cs)
	return !now.Before(from) && now.Before(till)
}

// commonWindow returns the intersection of the windows of all counters; till is exclusive.
func commonWindow(cs []counter) (from, till time.Time) {
	from, till = cs[0].start, cs[0].end
	for _, c := range cs[1:] {
		if c.start.After(from) {
			from = c.start
		}
		if c.end.Before(till) {
			till = c.end
		}
	}
	return from, till
}
