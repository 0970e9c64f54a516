package db

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// runGroup executes a group in up to three ways. First as one pipeline, with shared statements for tenants with several
// batches. If a shared statement failed, as one pipeline of the batches' own statements; the tenants concerned use no
// shared statements for sharedBackoffTime. If that fails too, one of the batches failed and undid the others: each is
// executed alone, so that only the bad one gets the error. After an error with an unknown outcome nothing is repeated.
func (p *postgresEngine) runGroup(calls []*pendingBatch) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	if len(calls) == 1 {
		p.runAloneAndReply(ctx, calls[0])
		return
	}
	steps, shares := buildPipeline(p.begin.group, p.begin.shared, p.isBackedOff, calls)
	err := p.executeSteps(ctx, steps, calls)
	// A shared statement failed and the pipeline was rolled back. Which batch was the reason is not known, so all
	// tenants with shared forms in this group are backed off.
	if shares && (isPreconditionFailed(err) || IsDuplicate(err)) {
		for _, c := range calls {
			if c.batch.Shared != nil {
				p.sharedBackoff.Store(c.tenant, time.Now())
				c.resetRowCounts()
			}
		}
		err = p.runPipeline(ctx, p.begin.group, calls...)
	}
	if !isRolledBack(err) {
		for _, c := range calls {
			c.done <- cmp.Or(err, c.readErr)
		}
		return
	}
	// One batch failed and the transaction was rolled back: nothing has happened, so each is executed alone.
	var alone sync.WaitGroup
	for _, c := range calls {
		alone.Go(func() { p.runAloneAndReply(ctx, c) })
	}
	alone.Wait()
}

// isBackedOff reports whether a shared statement of the tenant failed within the last sharedBackoffTime.
func (p *postgresEngine) isBackedOff(id ID) bool {
	at, ok := p.sharedBackoff.Load(id)
	if !ok || time.Since(at.(time.Time)) < p.sharedBackoffTime {
		return ok
	}
	p.sharedBackoff.CompareAndDelete(id, at)
	return false
}

// runAloneAndReply executes c alone and sends its outcome. If a row is locked for longer than the group's lock_timeout,
// it continues in a goroutine with a longer one, so that the group's writer does not wait. lockWaitSlots bounds these
// goroutines.
func (p *postgresEngine) runAloneAndReply(ctx context.Context, c *pendingBatch) {
	err := p.runAlone(ctx, p.begin.group, c)
	if !isLockTimeout(err) {
		c.done <- err
		return
	}
	p.lockWaits.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lockWaitTimeout)
		defer cancel()
		select {
		case p.lockWaitSlots <- struct{}{}:
			defer func() { <-p.lockWaitSlots }()
			c.done <- p.runAlone(ctx, p.begin.lockWait, c)
		case <-ctx.Done():
			c.done <- err
		}
	})
}
