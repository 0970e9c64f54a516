package queue

import (
	"context"
	"time"

	"stoa/tenancy/db"
)

// lendSlot begins one run of an app that has none at work here, although all workers are busy, when none of them has come free
// for [Options.LendAfter]: runs that take long, of however many apps, do not keep an app from its turn. The run has one of the
// places of runs that nobody waits for, which an app never has all of. It is called once a second.
func (p *Pool) lendSlot(ctx context.Context) error {
	if p.options.AcceptOnly || !p.isStuck() || !p.beginWork() {
		return nil
	}
	defer p.wg.Done()
	runs, err := p.ring.claimOneRun(ctx, p.canBorrow)
	if p.isStopping() {
		return err // Drain gives it back
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

// isStuck reports whether all workers are busy and none has come free for a turn's time.
func (p *Pool) isStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queueSlots.countFree() == 0 && time.Since(p.lastSlotChange) >= p.options.LendAfter
}

func (p *Pool) canBorrow(app db.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queueSlots.apps[app] == 0 && !p.borrowers[app] && p.backgroundSlots.hasFreeSlot(app)
}
