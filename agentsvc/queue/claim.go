package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// claimEvery is how often the queue is looked at when nobody calls: other processes' runs, and retries come due.
const claimEvery = time.Second

// claimTime is how long a claim may take. What it claims after that is a stray.
const claimTime = 10 * time.Second

func (p *Pool) claiming(ctx context.Context) {
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			p.look(ctx)
		}
		if err := p.claim(ctx); err != nil && ctx.Err() == nil {
			p.o.Log.Warn("the queue cannot be read", "error", err)
		}
		p.passOn()
	}
}

// passOn wakes the workers of other processes where a run was accepted and there is no place for another here.
func (p *Pool) passOn() {
	if p.accepted.Swap(false) && (p.o.Idle || p.freeWorkers() <= 1 || p.isStopping()) {
		p.o.Bus.Publish(topicQueue, "")
	}
}

// look finds what is to be done that nobody calls for: runs that wait for a decision that comes too late, and runs that
// wait for others of their session which are gone. It forgets runs that were waited for and have found a place elsewhere.
func (p *Pool) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := p.runs.Overdue(ctx)
	if err == nil {
		_, err = p.runs.CallUp(ctx)
	}
	if err == nil {
		err = p.stillAwaited(ctx)
	}
	if err == nil {
		err = p.lend(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.o.Log.Warn("the queue cannot be read", "error", err)
	}
}

// claim fills the free places with pending runs.
func (p *Pool) claim(ctx context.Context) error {
	p.gather(ctx)
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if err := p.demote(ctx); err != nil {
		return err
	}
	if p.o.Idle || !p.enter() {
		return nil
	}
	defer p.wg.Done()
	if err := p.claimAwaited(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	free, has := p.queued.free(), p.queued.byApp() // only this goroutine takes places
	p.mu.Unlock()
	if free == 0 {
		return nil // whoever leaves a place wakes us
	}
	runs, err := p.turns.claim(ctx, free, has, p.suspects.Load() == 0)
	p.more, p.full = len(runs) > 0 && len(runs) >= free-1, len(runs) == 0 && free == 1
	if p.isStopping() {
		return err // Drain gives them back
	}
	for _, run := range runs {
		p.mu.Lock()
		p.queued.add(run.Tenant)
		p.moved = time.Now()
		p.wg.Add(1)
		p.mu.Unlock()
		p.start(run, p.queued, false)
	}
	return err
}

func (p *Pool) freeWorkers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queued.free()
}

// How many workers, as a part of all, are to be free for a claim where more runs wait than the last one took, and how
// long that is waited for.
const (
	gatherPart = 8
	gatherFor  = 5 * time.Millisecond
)

// gather waits for a few free workers where there is enough for all: a claim for many costs the database little more
// than a claim for one. Where only the place is free that the busy apps may not have, it is looked for others at most once in
// that time, however fast a busy app fills its queue.
func (p *Pool) gather(ctx context.Context) {
	enough := 0
	switch {
	case p.more:
		enough = p.o.Workers / gatherPart
	case p.full:
		enough = 2
	}
	if enough == 0 {
		return
	}
	over := time.NewTimer(gatherFor)
	defer over.Stop()
	for p.freeWorkers() < enough {
		select {
		case <-p.wake:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// perApp is how many runs that somebody waits for are claimed of an app at a time.
const perApp = 8

// claimAwaited gives the places for live runs that have become free to those that found none.
func (p *Pool) claimAwaited(ctx context.Context) error {
	for app, limit := range p.awaiting() {
		n := 0
		for n < perApp {
			if _, ok := p.Reserve(app); !ok {
				break
			}
			n++
		}
		if n == 0 {
			continue // others may have room
		}
		p.forget(app) // before the look: what is written later is told again
		runs, err := p.runs.Claim(ctx, p.worker, []store.Share{{Tenant: app, Limit: limit, Take: int64(n), Awaited: true}})
		for range n - len(runs) {
			p.leave(app)
		}
		for _, run := range runs {
			p.Start(run)
		}
		if err != nil || limit > 0 || len(runs) == n {
			p.await(app, limit)
		}
		if err != nil {
			return err
		}
		if len(runs) == n {
			rouse(p.wake)
		}
	}
	return nil
}

// stillAwaited forgets the apps that need no more looking after when a place comes free.
func (p *Pool) stillAwaited(ctx context.Context) error {
	apps := p.awaiting()
	if len(apps) == 0 {
		return nil
	}
	still, err := p.runs.Awaited(ctx, apps)
	if err != nil {
		return err
	}
	for app := range apps {
		if !slices.Contains(still, app) {
			p.forget(app)
		}
	}
	return nil
}

func (p *Pool) awaiting() map[db.ID]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.awaited)
}

func (p *Pool) await(app db.ID, limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited[app] = limit
}

func (p *Pool) forget(app db.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.awaited, app)
}
