package queue

import (
	"maps"

	"stoa/tenancy/db"
)

// slotPool counts the runs of one kind that are at work in this process, by app. [Pool.mu] guards it.
type slotPool struct {
	size    int
	used    int
	apps    map[db.ID]int
	canTake shareRule
}

// shareRule reports whether an app that has some of the places may take one of those that are free.
type shareRule func(has, free int) bool

func newSlotPool(size int, canTake shareRule) *slotPool {
	return &slotPool{size: size, apps: map[db.ID]int{}, canTake: canTake}
}

// asManyAsFree lets an app have at most as many places as it leaves free: alone it gets half of them, and N apps that take all
// they may leave a part of 1/(N+1). So an app that has none finds a place, however many others take theirs. It is the rule
// of shared buffers in switches (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998).
func asManyAsFree(has, free int) bool { return has < free }

// atMost lets an app have n places.
func atMost(n int) shareRule { return func(has, free int) bool { return has < n && free > 0 } }

// exceptLast keeps the last free place for an app that has none.
func exceptLast(has, free int) bool { return free > 1 || free == 1 && has == 0 }

func (p *slotPool) countFree() int { return p.size - p.used }

// hasFreeSlot reports whether the app may take a place.
func (p *slotPool) hasFreeSlot(app db.ID) bool { return p.canTake(p.apps[app], p.countFree()) }

// tryAcquireSlot takes a place for the app, if it may have one.
func (p *slotPool) tryAcquireSlot(app db.ID) bool {
	if !p.hasFreeSlot(app) {
		return false
	}
	p.acquireSlot(app)
	return true
}

// acquireSlot takes a place for the app that it may have, as was seen before.
func (p *slotPool) acquireSlot(app db.ID) {
	p.used++
	p.apps[app]++
}

func (p *slotPool) releaseSlot(app db.ID) {
	p.used--
	if p.apps[app]--; p.apps[app] == 0 {
		delete(p.apps, app)
	}
}

// countByApp returns how many places each app has.
func (p *slotPool) countByApp() map[db.ID]int { return maps.Clone(p.apps) }
