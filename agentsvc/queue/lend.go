package queue

import (
	"context"
	"time"

	"stoa/tenancy/db"
)

// lend begins one run of an app that has none at work here, although all workers are busy, when none of them has come free
// for [Options.Turn]: runs that take long, of however many apps, do not keep an app from its turn. The run has one of the
// places of runs that nobody waits for, which an app never has all of. It is called once a second.
func (p *Pool) lend(ctx context.Context) error {
	if p.o.Idle || !p.isStuck() || !p.enter() {
		return nil
	}
	defer p.wg.Done()
	runs, err := p.turns.claimOne(ctx, p.mayBorrow)
	if p.isStopping() {
		return err // Drain gives it back
	}
	for _, run := range runs {
		p.mu.Lock()
		p.background.add(run.Tenant)
		p.borrowers[run.Tenant] = true
		p.wg.Add(1)
		p.mu.Unlock()
		p.start(run, p.background, true)
	}
	return err
}

// isStuck reports whether all workers are busy and none has come free for a turn's time.
func (p *Pool) isStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queued.free() == 0 && time.Since(p.moved) >= p.o.Turn
}

func (p *Pool) mayBorrow(app db.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queued.apps[app] == 0 && !p.borrowers[app] && p.background.hasRoom(app)
}
