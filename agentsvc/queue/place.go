package queue

import (
	"context"
	"time"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Reserve takes a place for a run that somebody waits for and returns the worker it is to be leased to.
func (p *Pool) Reserve() (worker string, ok bool) {
	if p.o.Idle || !p.enter() {
		return "", false
	}
	select {
	case p.live <- struct{}{}:
		return p.worker, true
	default:
		p.wg.Done()
		return "", false
	}
}

// Release gives a reserved place back.
func (p *Pool) Release() {
	p.leave()
	if len(p.awaiting()) > 0 {
		rouse(p.wake)
	}
}

func (p *Pool) leave() {
	<-p.live
	p.wg.Done()
}

// Start runs a run in the place reserved for it.
func (p *Pool) Start(run store.Run) {
	p.crew.run(func() {
		defer p.Release()
		p.do(run)
	})
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
