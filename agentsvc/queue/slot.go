package queue

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/processor"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// AcquireSlot reserves a live slot for a run of the tenant whose caller waits, and returns the worker id to lease the
// run to. ok is false where no slot is free for the tenant, while the pool stops and while the lease is stale. The
// caller must then call StartRun or ReleaseSlot.
func (p *Pool) AcquireSlot(app db.ID) (worker string, ok bool) {
	if p.options.AcceptOnly {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.acceptsWork() || !p.liveSlots.tryAcquireSlot(app) {
		return "", false
	}
	p.wg.Add(1)
	return p.workerID, true
}

// ReleaseSlot releases a slot that AcquireSlot reserved and no run was started in.
func (p *Pool) ReleaseSlot(app db.ID) {
	p.releaseLiveSlot(app)
	if len(p.copyAwaitedApps()) > 0 {
		signalChannel(p.claimSignal)
	}
}

// releaseLiveSlot is ReleaseSlot without the signal to the claim loop, for the claim loop itself.
func (p *Pool) releaseLiveSlot(app db.ID) {
	p.mu.Lock()
	p.liveSlots.releaseSlot(app)
	p.mu.Unlock()
	p.wg.Done()
}

// StartRun executes a run in the slot that AcquireSlot reserved. It does not wait for it.
func (p *Pool) StartRun(run store.Run) { p.startInSlot(run, p.liveSlots, false) }

// startInSlot executes a run that already occupies a slot of the given pool.
func (p *Pool) startInSlot(run store.Run, in *slotPool, borrowed bool) {
	ctx, w := p.registerRun(run, in)
	w.borrowed = borrowed
	p.workers.runFunc(func() {
		defer p.wg.Done()
		defer p.endRun(run, w)
		p.executeRun(ctx, run, w)
	})
}

// endRun releases a run's slot and signals the claim loop if a queued run may want it.
func (p *Pool) endRun(run store.Run, w *activeRun) {
	w.cancel(nil)
	p.mu.Lock()
	w.slots.releaseSlot(run.Tenant)
	wanted := w.slots != p.liveSlots || len(p.awaitedApps) > 0
	if w.slots == p.queueSlots {
		p.lastSlotChange = time.Now()
	}
	if w.borrowed {
		delete(p.borrowers, run.Tenant)
	}
	p.mu.Unlock()
	if wanted {
		signalChannel(p.claimSignal)
	}
}

// registerRun records that a run executes here and returns its context, which carries the tenant (for processor
// accounting) and the lease confirmation (see [agentsvc.CheckLease]). An earlier execution for the same task is
// cancelled: it must have lost its lease, or this one could not exist.
func (p *Pool) registerRun(run store.Run, in *slotPool) (context.Context, *activeRun) {
	ctx, cancel := context.WithCancelCause(processor.WithApp(agentsvc.WithLeaseRenewal(p.baseContext, p.confirmLease), string(run.Tenant)))
	at, w := taskKey{run.Tenant, run.Task}, &activeRun{turn: run.Turn, attempts: run.Attempts, cancel: cancel, slots: in}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.running[at]; before != nil {
		before.cancel(agentsvc.ErrLeaseLost)
	}
	p.running[at] = w
	return ctx, w
}

// maxDetached bounds the tasks whose callers have disconnected and whose queued runs are still to be demoted. Above
// it runs keep their priority, which costs fairness, not correctness.
const maxDetached = 4096

// DetachCaller reports that the caller who waited for a task disconnected before its end. The run continues: one that
// executes moves to a background slot if the tenant may have one, so that the live slot is free for a waiting caller;
// a queued one loses its priority.
func (p *Pool) DetachCaller(app db.ID, task agentsvc.TaskID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moveToBackground(taskKey{app, task}) && len(p.detached) < maxDetached {
		p.detached[taskKey{app, task}] = true
		signalChannel(p.claimSignal)
	}
}

// moveToBackground moves the task's run from a live to a background slot, where it has a live one and the tenant may
// have the other. It reports whether the task has a run here. The caller holds p.mu.
func (p *Pool) moveToBackground(at taskKey) bool {
	w := p.running[at]
	if w == nil {
		return false
	}
	if w.slots == p.liveSlots && p.backgroundSlots.tryAcquireSlot(at.tenant) {
		p.liveSlots.releaseSlot(at.tenant)
		w.slots = p.backgroundSlots
		if len(p.awaitedApps) > 0 {
			signalChannel(p.claimSignal)
		}
	}
	return true
}

// demoteDetached lowers the priority of queued runs whose callers have disconnected. The claim loop calls it before
// each claim.
func (p *Pool) demoteDetached(ctx context.Context) error {
	p.mu.Lock()
	gone := make([]store.Run, 0, len(p.detached))
	for at := range p.detached {
		if p.moveToBackground(at) { // the run was claimed between DetachCaller and now
			continue
		}
		gone = append(gone, store.Run{Tenant: at.tenant, Task: at.task})
	}
	clear(p.detached)
	p.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	return p.runs.DemoteRuns(ctx, gone)
}

// ReserveQueueDepth reserves an entry of the tenant's queue, whose limit is most, for a run that is about to be
// written. done must be called with whether it was written. It returns a [ratelimit.ExhaustedError] where the queue
// is full.
func (p *Pool) ReserveQueueDepth(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	return p.depths.reserveEntry(ctx, tenant, most)
}

// NotifyQueued reports that a turn was written whose run is pending. An awaited run, or one of a tenant with a limit of
// running tasks, gets the next live slot that becomes free.
func (p *Pool) NotifyQueued(turn store.NewTurn) {
	if turn.Priority == store.PriorityAwaited || turn.MaxRunning > 0 {
		p.addAwaitedApp(turn.Tenant, turn.MaxRunning)
	}
	p.WakeClaimers()
}

// WakeClaimers makes the claim loop read the queue now; where no worker is free here, the other processes read it
// too.
func (p *Pool) WakeClaimers() {
	p.acceptedHere.Store(true)
	signalChannel(p.claimSignal)
}

// StopTenant cancels all runs of a tenant here with [ErrPostponed]. They return to the queue and continue when the
// tenant is active again.
func (p *Pool) StopTenant(tenant db.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, w := range p.running {
		if at.tenant == tenant {
			w.cancel(ErrPostponed)
		}
	}
}

// ResumeTenant makes the postponed runs of a tenant claimable now instead of after postponeDelay.
func (p *Pool) ResumeTenant(tenant db.ID) {
	ctx, cancel := context.WithTimeout(p.baseContext, 5*time.Second)
	defer cancel()
	if err := p.runs.ExpediteRuns(ctx, tenant); err != nil {
		p.options.Log.Warn("the postponed runs of a tenant could not be advanced; they continue when their delay is over", "tenant", tenant, "error", err)
		return
	}
	p.WakeClaimers()
}
