package queue

import (
	"context"
	"time"

	"stoa/tenancy/db"
)

// lendSlot starts one run of a tenant that has no run here, when all workers are busy and none became free for
// [Options].LendAfter. So long runs, of however many tenants, cannot block another tenant. The run occupies a
// background slot, of which no tenant can have all. The claim loop calls it once per claimInterval.
func (p *Pool) lendSlot(ctx context.Context) error {
	if p.options.AcceptOnly || !p.isStuck() || !p.beginWork() {
		return nil
	}
	defer p.wg.Done()
	runs, err := p.ring.claimOneRun(ctx, p.canBorrow)
	if p.isStopping() {
		return err // Drain returns the run
	}
	for _, run := range runs {
		p.mu.Lock()
		p.backgroundSlots.acquireSlot(run.Tenant)
		p.borrowers[run.Tenant] = true
		p.wg.Add(1)
		p.mu.Unlock()
		p.startInSlot(run, p.backgroundSlots, true)
	}
	return err
}

// isStuck reports whether all workers are busy and none has become free for LendAfter.
func (p *Pool) isStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queueSlots.countFree() == 0 && time.Since(p.lastSlotChange) >= p.options.LendAfter
}

// canBorrow reports whether lendSlot may start a run of the app: it has no queue slot, no borrowed one, and a free
// background slot.
func (p *Pool) canBorrow(app db.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queueSlots.apps[app] == 0 && !p.borrowers[app] && p.backgroundSlots.hasFreeSlot(app)
}
