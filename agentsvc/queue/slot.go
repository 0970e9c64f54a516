package queue

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/processor"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// AcquireSlot takes a place for a run of an app that somebody waits for and returns the worker it is to be leased to.
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

// ReleaseSlot gives a reserved place back.
func (p *Pool) ReleaseSlot(app db.ID) {
	p.releaseLiveSlot(app)
	if len(p.copyAwaitedApps()) > 0 {
		signalChannel(p.claimSignal)
	}
}

func (p *Pool) releaseLiveSlot(app db.ID) {
	p.mu.Lock()
	p.liveSlots.releaseSlot(app)
	p.mu.Unlock()
	p.wg.Done()
}

// StartRun runs a run in the place reserved for it.
func (p *Pool) StartRun(run store.Run) { p.startInSlot(run, p.liveSlots, false) }

// startInSlot runs a run that has a place, which it may have borrowed.
func (p *Pool) startInSlot(run store.Run, in *slotPool, borrowed bool) {
	ctx, w := p.registerRun(run, in)
	w.borrowed = borrowed
	p.workers.runFunc(func() {
		defer p.wg.Done()
		defer p.endRun(run, w)
		p.executeRun(ctx, run, w)
	})
}

// endRun gives the place of a run back, and has the queue looked at where somebody may want it.
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

// registerRun notes that a run is at work here. One that was at work for the same task before has lost its lease.
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

// maxDetached bounds how many tasks are remembered whose callers are gone and whose runs are to be told so.
const maxDetached = 4096

// DetachCaller says that the caller who waited for a task is gone before its end. A run at work goes on, but in another place
// than those for live runs, if its app may have one of them; a run in the queue no longer goes before others.
func (p *Pool) DetachCaller(app db.ID, task agentsvc.TaskID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moveToBackground(taskKey{app, task}) && len(p.detached) < maxDetached {
		p.detached[taskKey{app, task}] = true
		signalChannel(p.claimSignal)
	}
}

// moveToBackground moves the run of a task to another place if it has one of those for live runs. It reports whether there is such a
// run. p.mu is held.
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

// demoteDetached has the runs in the queue whose callers are gone wait as those do that nobody waits for.
func (p *Pool) demoteDetached(ctx context.Context) error {
	p.mu.Lock()
	gone := make([]store.Run, 0, len(p.detached))
	for at := range p.detached {
		if p.moveToBackground(at) { // it was claimed when its caller left
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

// ReserveQueueDepth makes room in the queue of an app for a run that is about to be written, and returns what is to be told whether
// it was. It returns a [ratelimit.ErrExhausted] where as many runs wait as may.
func (p *Pool) ReserveQueueDepth(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	return p.depths.reserveEntry(ctx, tenant, most)
}

// NotifyQueued says that a pending run was written.
func (p *Pool) NotifyQueued(run store.Run) {
	if run.Priority == store.PriorityAwaited || run.MaxRunning > 0 {
		p.addAwaitedApp(run.Tenant, run.MaxRunning)
	}
	p.WakeClaimers()
}

// WakeClaimers has the queue looked at now, in this process or where there is no place in another.
func (p *Pool) WakeClaimers() {
	p.acceptedHere.Store(true)
	signalChannel(p.claimSignal)
}

// StopTenant ends all runs of a tenant at work here; they are tried again when the tenant may work again.
func (p *Pool) StopTenant(tenant db.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, w := range p.running {
		if at.tenant == tenant {
			w.cancel(ErrPostponed)
		}
	}
}

// ResumeTenant has the runs of a tenant that were postponed go on now instead of later.
func (p *Pool) ResumeTenant(tenant db.ID) {
	ctx, cancel := context.WithTimeout(p.baseContext, 5*time.Second)
	defer cancel()
	if err := p.runs.ExpediteRuns(ctx, tenant); err != nil {
		p.options.Log.Warn("the postponed runs of a tenant could not be advanced; they go on by themselves", "tenant", tenant, "error", err)
		return
	}
	p.WakeClaimers()
}
