package db

import (
	"cmp"
	"context"
	"sync"
	"time"
)

func (p *postgresEngine) runGroup(calls []*pendingBatch) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	if len(calls) == 1 {
		p.runAloneAndReply(ctx, calls[0])
		return
	}
	steps, shares := buildPipeline(p.begin.group, p.begin.shared, p.isBackedOff, calls)
	err := p.executeSteps(ctx, steps, calls)
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
	// One of them failed and took the others with it: nothing has happened, so each goes alone.
	var alone sync.WaitGroup
	for _, c := range calls {
		alone.Go(func() { p.runAloneAndReply(ctx, c) })
	}
	alone.Wait()
}

// isBackedOff reports whether the batches of id are to go by their own statements.
func (p *postgresEngine) isBackedOff(id ID) bool {
	at, ok := p.sharedBackoff.Load(id)
	if !ok || time.Since(at.(time.Time)) < p.sharedBackoffTime {
		return ok
	}
	p.sharedBackoff.CompareAndDelete(id, at)
	return false
}

// runAloneAndReply executes c alone and sends its outcome. Where a row is locked it leaves c to a goroutine of its own, so that
// nobody waits behind it.
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
