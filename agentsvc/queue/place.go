package queue

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/processor"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Reserve takes a place for a run of an app that somebody waits for and returns the worker it is to be leased to.
func (p *Pool) Reserve(app db.ID) (worker string, ok bool) {
	if p.o.Idle {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.takesWork() || !p.live.take(app) {
		return "", false
	}
	p.wg.Add(1)
	return p.worker, true
}

// Release gives a reserved place back.
func (p *Pool) Release(app db.ID) {
	p.leave(app)
	if len(p.awaiting()) > 0 {
		rouse(p.wake)
	}
}

func (p *Pool) leave(app db.ID) {
	p.mu.Lock()
	p.live.leave(app)
	p.mu.Unlock()
	p.wg.Done()
}

// Start runs a run in the place reserved for it.
func (p *Pool) Start(run store.Run) { p.start(run, p.live, false) }

// start runs a run that has a place, which it may have borrowed.
func (p *Pool) start(run store.Run, in *places, borrowed bool) {
	ctx, w := p.register(run, in)
	w.borrowed = borrowed
	p.crew.run(func() {
		defer p.wg.Done()
		defer p.end(run, w)
		p.do(ctx, run, w)
	})
}

// end gives the place of a run back, and has the queue looked at where somebody may want it.
func (p *Pool) end(run store.Run, w *work) {
	w.cancel(nil)
	p.mu.Lock()
	w.in.leave(run.Tenant)
	wanted := w.in != p.live || len(p.awaited) > 0
	if w.in == p.queued {
		p.moved = time.Now()
	}
	if w.borrowed {
		delete(p.borrowers, run.Tenant)
	}
	p.mu.Unlock()
	if wanted {
		rouse(p.wake)
	}
}

// register notes that a run is at work here. One that was at work for the same task before has lost its lease.
func (p *Pool) register(run store.Run, in *places) (context.Context, *work) {
	ctx, cancel := context.WithCancelCause(processor.WithApp(agentsvc.WithLease(p.base, p.renew), string(run.Tenant)))
	at, w := place{run.Tenant, run.Task}, &work{turn: run.Turn, attempts: run.Attempts, cancel: cancel, in: in}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.at[at]; before != nil {
		before.cancel(agentsvc.ErrLost)
	}
	p.at[at] = w
	return ctx, w
}

// maxDetached bounds how many tasks are remembered whose callers are gone and whose runs are to be told so.
const maxDetached = 4096

// Detach says that the caller who waited for a task is gone before its end. A run at work goes on, but in another place
// than those for live runs, if its app may have one of them; a run in the queue no longer goes before others.
func (p *Pool) Detach(app db.ID, task agentsvc.TaskID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.toBackground(place{app, task}) && len(p.detached) < maxDetached {
		p.detached[place{app, task}] = true
		rouse(p.wake)
	}
}

// toBackground moves the run of a task to another place if it has one of those for live runs. It reports whether there is such a
// run. p.mu is held.
func (p *Pool) toBackground(at place) bool {
	w := p.at[at]
	if w == nil {
		return false
	}
	if w.in == p.live && p.background.take(at.tenant) {
		p.live.leave(at.tenant)
		w.in = p.background
		if len(p.awaited) > 0 {
			rouse(p.wake)
		}
	}
	return true
}

// demote has the runs in the queue whose callers are gone wait as those do that nobody waits for.
func (p *Pool) demote(ctx context.Context) error {
	p.mu.Lock()
	gone := make([]store.Run, 0, len(p.detached))
	for at := range p.detached {
		if p.toBackground(at) { // it was claimed when its caller left
			continue
		}
		gone = append(gone, store.Run{Tenant: at.tenant, Task: at.task})
	}
	clear(p.detached)
	p.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	return p.runs.Demote(ctx, gone)
}

// Admit makes room in the queue of an app for a run that is about to be written, and returns what is to be told whether
// it was. It returns a [ratelimit.ErrExhausted] where as many runs wait as may.
func (p *Pool) Admit(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	return p.depths.admit(ctx, tenant, most)
}

// Queued says that a pending run was written.
func (p *Pool) Queued(run store.Run) {
	if run.Priority == store.Awaited || run.Limit > 0 {
		p.await(run.Tenant, run.Limit)
	}
	p.Wake()
}

// Wake has the queue looked at now, in this process or where there is no place in another.
func (p *Pool) Wake() {
	p.accepted.Store(true)
	rouse(p.wake)
}

// StopTenant ends all runs of a tenant at work here; they are tried again when the tenant may work again.
func (p *Pool) StopTenant(tenant db.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, w := range p.at {
		if at.tenant == tenant {
			w.cancel(ErrPostponed)
		}
	}
}

// Resume has the runs of a tenant that were postponed go on now instead of later.
func (p *Pool) Resume(tenant db.ID) {
	ctx, cancel := context.WithTimeout(p.base, 5*time.Second)
	defer cancel()
	if err := p.runs.Advance(ctx, tenant); err != nil {
		p.o.Log.Warn("the postponed runs of a tenant could not be advanced; they go on by themselves", "tenant", tenant, "error", err)
		return
	}
	p.Wake()
}
