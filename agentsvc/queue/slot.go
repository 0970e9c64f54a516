package queue

import (
	"sync"
	"time"

	"stoa/tenancy/db"
)

// slotKind says which of the slot pools a run occupies a slot of.
type slotKind int

const (
	noSlot         slotKind = iota // the run has ended
	liveSlot                       // accepted with it; its caller waits
	queueSlot                      // claimed from the queue
	backgroundSlot                 // its caller has disconnected
	borrowedSlot                   // a background slot of a run that lendSlot claimed
)

// slots are the slots of a process: they bound how many runs of each kind execute, and what one tenant may occupy.
type slots struct {
	lendAfter time.Duration

	mu         sync.Mutex // guards all fields below and the field slot of each activeRun
	live       *slotPool
	queue      *slotPool // Workers+1 slots, see exceptLast
	background *slotPool
	borrowers  map[db.ID]bool // tenants with a borrowed slot
	lastChange time.Time      // when a queue slot was last acquired or released
}

func newSlots(o Options) *slots {
	return &slots{
		lendAfter: o.LendAfter, live: newSlotPool(o.MaxInflight, o.liveRule()), queue: newSlotPool(o.Workers+1, exceptLast),
		background: newSlotPool(o.MaxInflight, asManyAsFree), borrowers: map[db.ID]bool{},
	}
}

// poolOf returns the pool of a kind of slot, nil for noSlot.
func (s *slots) poolOf(kind slotKind) *slotPool {
	switch kind {
	case liveSlot:
		return s.live
	case queueSlot:
		return s.queue
	case backgroundSlot, borrowedSlot:
		return s.background
	}
	return nil
}

// tryAcquireLive acquires a live slot for the tenant and reports whether it may have one.
func (s *slots) tryAcquireLive(app db.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live.tryAcquireSlot(app)
}

// acquire acquires a slot of a kind that the claim loop has found free for the tenant: it is the only goroutine that
// acquires queue slots and borrowed ones.
func (s *slots) acquire(app db.ID, kind slotKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poolOf(kind).acquireSlot(app)
	switch kind {
	case queueSlot:
		s.lastChange = time.Now()
	case borrowedSlot:
		s.borrowers[app] = true
	}
}

// release releases a slot of the tenant.
func (s *slots) release(app db.ID, kind slotKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(app, kind)
}

// releaseRun releases the slot of a run that has ended and returns its kind.
func (s *slots) releaseRun(app db.ID, w *activeRun) (kind slotKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, w.slot = w.slot, noSlot
	s.releaseLocked(app, kind)
	return kind
}

// releaseLocked releases a slot. The caller holds s.mu.
func (s *slots) releaseLocked(app db.ID, kind slotKind) {
	s.poolOf(kind).releaseSlot(app)
	switch kind {
	case queueSlot:
		s.lastChange = time.Now()
	case borrowedSlot:
		delete(s.borrowers, app)
	}
}

// moveToBackground moves a run from a live to a background slot, where it has a live one and its tenant may have the
// other. It reports whether a live slot became free.
func (s *slots) moveToBackground(app db.ID, w *activeRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.slot != liveSlot || !s.background.tryAcquireSlot(app) {
		return false
	}
	s.live.releaseSlot(app)
	w.slot = backgroundSlot
	return true
}

// countFreeQueue returns the number of free queue slots.
func (s *slots) countFreeQueue() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.countFree()
}

// countQueueByApp returns the number of free queue slots and how many each tenant occupies.
func (s *slots) countQueueByApp() (free int, has map[db.ID]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.countFree(), s.queue.countByApp()
}

// isStuck reports whether all queue slots are occupied and none has become free for LendAfter.
func (s *slots) isStuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.countFree() == 0 && time.Since(s.lastChange) >= s.lendAfter
}

// canBorrow reports whether lendSlot may start a run of the app: it has no queue slot, no borrowed one, and a free
// background slot.
func (s *slots) canBorrow(app db.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.apps[app] == 0 && !s.borrowers[app] && s.background.hasFreeSlot(app)
}
