package queue

import (
	"maps"
	"sync"
	"sync/atomic"

	"stoa/tenancy/db"
)

// awaitedApps are the tenants, with their limits of running tasks, that may have an awaited run in the queue which
// found no live slot. The claim loop looks for these runs when a live slot is released.
type awaitedApps struct {
	mu   sync.Mutex // guards apps
	apps map[db.ID]int64
}

// add makes the claim loop look for awaited runs of the tenant when a live slot is free.
func (a *awaitedApps) add(app db.ID, limit int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.apps[app] = limit
}

func (a *awaitedApps) drop(app db.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.apps, app)
}

func (a *awaitedApps) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.apps) == 0
}

// copyApps returns a copy of the map.
func (a *awaitedApps) copyApps() map[db.ID]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.apps)
}

// claimSignal makes the claim loop read the queue.
type claimSignal struct {
	c        chan struct{} // capacity 1: a pending signal covers all that happened before it is received
	accepted atomic.Bool   // a run was accepted here since the queue was last read
}

func newClaimSignal() *claimSignal { return &claimSignal{c: make(chan struct{}, 1)} }

// signal makes the claim loop read the queue now.
func (s *claimSignal) signal() { signalChannel(s.c) }

// signalAccepted is signal for a run that became pending by this process: where no worker is free here, the claim loop
// signals the other processes.
func (s *claimSignal) signalAccepted() {
	s.accepted.Store(true)
	s.signal()
}

// signalChannel sends a signal to a channel of capacity 1, unless one is pending already.
func signalChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
