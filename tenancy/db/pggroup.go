package db

import (
	"cmp"
	"context"
	"sync"
	"time"
)

func (p *postgres) runGroup(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	if len(calls) == 1 {
		p.deliver(ctx, calls[0])
		return
	}
	steps, shares := pipeline(p.enter.group, p.enter.shared, p.isWary, calls)
	err := p.execute(ctx, steps, calls)
	if shares && (otherwise(err) || IsDuplicate(err)) {
		for _, c := range calls {
			if c.batch.Shared != nil {
				p.wary.Store(c.tenant, time.Now())
				c.untell()
			}
		}
		err = p.send(ctx, p.enter.group, calls...)
	}
	if !undone(err) {
		for _, c := range calls {
			c.done <- cmp.Or(err, c.readErr)
		}
		return
	}
	// One of them failed and took the others with it: nothing has happened, so each goes alone.
	var alone sync.WaitGroup
	for _, c := range calls {
		alone.Go(func() { p.deliver(ctx, c) })
	}
	alone.Wait()
}

// isWary reports whether the batches of id are to go by their own statements.
func (p *postgres) isWary(id ID) bool {
	at, ok := p.wary.Load(id)
	if !ok || time.Since(at.(time.Time)) < p.wariness {
		return ok
	}
	p.wary.CompareAndDelete(id, at)
	return false
}

// deliver executes c alone and sends its outcome. Where a row is locked it leaves c to a goroutine of its own, so that
// nobody waits behind it.
func (p *postgres) deliver(ctx context.Context, c *call) {
	err := p.alone(ctx, p.enter.group, c)
	if !locked(err) {
		c.done <- err
		return
	}
	p.wait.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lateTimeout)
		defer cancel()
		select {
		case p.late <- struct{}{}:
			defer func() { <-p.late }()
			c.done <- p.alone(ctx, p.enter.late, c)
		case <-ctx.Done():
			c.done <- err
		}
	})
}
