package queue

import (
	"context"

	"stoa/agentsvc/store"
)

// maxDetached bounds the tasks whose callers have disconnected and whose queued runs are still to be demoted. Above
// it runs keep their priority, which costs fairness, not correctness.
const maxDetached = 4096

// detachCaller moves the task's run to a background slot where it executes here; else the claim loop demotes the
// queued run (see [Pool.DetachCaller]).
func (c *claimer) detachCaller(at taskKey) {
	if c.moveToBackground(at) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.detached) < maxDetached {
		c.detached[at] = true
		c.wake.signal()
	}
}

// moveToBackground moves the task's run from a live to a background slot, where it has a live one and the tenant may
// have the other. It reports whether the task has a run here.
func (c *claimer) moveToBackground(at taskKey) bool {
	w := c.executor.active.find(at)
	if w == nil {
		return false
	}
	if c.slots.moveToBackground(at.tenant, w) {
		c.executor.signalFreeSlot(true)
	}
	return true
}

// demoteDetached lowers the priority of queued runs whose callers have disconnected. The claim loop calls it before
// each claim.
func (c *claimer) demoteDetached(ctx context.Context) error {
	c.mu.Lock()
	detached := c.detached
	c.detached = map[taskKey]bool{}
	c.mu.Unlock()
	gone := make([]store.Run, 0, len(detached))
	for at := range detached {
		if c.moveToBackground(at) { // the run was claimed between detachCaller and now
			continue
		}
		gone = append(gone, store.Run{Tenant: at.tenant, Task: at.task})
	}
	if len(gone) == 0 {
		return nil
	}
	return c.runs.DemoteRuns(ctx, gone)
}
