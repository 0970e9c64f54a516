package ratelimit

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// Backend is where counts are kept: [NewMemory], [NewRedis], [NewSQL], or [NewFallback] of two. It is safe for concurrent use.
type Backend interface {
	// addCounters adds to counters of a tenant what each says, or to none if one would pass its limit. Counters are those of the
	// windows at a time, which is the place's own.
	addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error)
}

// counter is one count, of one window.
type counter struct {
	key        string // within its tenant: the rule, whose count it is, and the beginning of the window
	start, end time.Time
	amount     int64 // to add; what is taken away leaves at least nothing
	limit      int64 // of the sum, or unlimited
}

const unlimited = math.MaxInt64

// outcome is what came of adding.
type outcome struct {
	counters []counter
	used     []int64 // of each counter, before
	fits     bool
	now      time.Time
}

// areWithinLimits reports whether all counters may have what they say.
func areWithinLimits(cs []counter, used []int64) bool {
	for i, c := range cs {
		if c.limit != unlimited && used[i]+c.amount > c.limit {
			return false
		}
	}
	return true
}

// clock is that of a place elsewhere, as far as this process knows it: its windows are the same for all processes,
// whatever their own clocks say. The zero value believes this process's clock.
type clock struct {
	offset atomic.Int64
}

var errClockUnstable = errors.New("the clock of the place where limits are counted does not stand still")

// addByClock has try add counters, which adds nothing when the place's time is in none of their windows. Then it is tried again.
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

// commonWindow returns the time that is in the windows of all counters.
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
