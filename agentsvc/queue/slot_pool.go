package queue

import (
	"maps"

	"stoa/tenancy/db"
)

// slotPool counts the runs of one kind that execute in this process, by tenant. It starts nothing: a slot is a
// number. [slots].mu guards all fields but size and canTake, which are read-only.
type slotPool struct {
	size    int
	used    int
	apps    map[db.ID]int
	canTake shareRule
}

// shareRule reports whether a tenant that occupies has slots may acquire one of the free ones.
type shareRule func(has, free int) bool

func newSlotPool(size int, canTake shareRule) *slotPool {
	return &slotPool{size: size, apps: map[db.ID]int{}, canTake: canTake}
}

// asManyAsFree lets a tenant occupy at most as many slots as it leaves free: alone it gets half of them, and N
// tenants that take all they may leave a share of 1/(N+1). So a tenant without a slot finds one, however many others
// use theirs. This is the rule of shared buffers in switches (Choudhury and Hahne, Dynamic Queue Length Thresholds,
// 1998).
func asManyAsFree(has, free int) bool { return has < free }

// atMost lets a tenant occupy n slots.
func atMost(n int) shareRule { return func(has, free int) bool { return has < n && free > 0 } }

// exceptLast reserves the last free slot for a tenant that has none.
func exceptLast(has, free int) bool { return free > 1 || free == 1 && has == 0 }

func (p *slotPool) countFree() int { return p.size - p.used }

// hasFreeSlot reports whether the tenant may acquire a slot.
func (p *slotPool) hasFreeSlot(app db.ID) bool { return p.canTake(p.apps[app], p.countFree()) }

// tryAcquireSlot acquires a slot for the tenant and reports whether it may have one.
func (p *slotPool) tryAcquireSlot(app db.ID) bool {
	if !p.hasFreeSlot(app) {
		return false
	}
	p.acquireSlot(app)
	return true
}

// acquireSlot acquires a slot without asking the rule: the caller has applied it before (allotShares, canBorrow).
func (p *slotPool) acquireSlot(app db.ID) {
	p.used++
	p.apps[app]++
}

// releaseSlot releases a slot of the tenant. Tenants without slots leave the map, so its length is that of the active
// tenants.
func (p *slotPool) releaseSlot(app db.ID) {
	p.used--
	if p.apps[app]--; p.apps[app] == 0 {
		delete(p.apps, app)
	}
}

// countByApp returns a copy of how many slots each tenant occupies.
func (p *slotPool) countByApp() map[db.ID]int { return maps.Clone(p.apps) }
