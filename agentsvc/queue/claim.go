package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// claimInterval is how often the queue is looked at when nobody calls: other processes' runs, and retries come due.
const claimInterval = time.Second

// claimTimeout is how long a claim may take. What it claims after that is a stray.
const claimTimeout = 10 * time.Second

func (p *Pool) runClaimLoop(ctx context.Context) {
	tick := time.NewTicker(claimInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.claimSignal:
		case <-tick.C:
			p.runPeriodicChecks(ctx)
		}
		if err := p.claimRuns(ctx); err != nil && ctx.Err() == nil {
			p.options.Log.Warn("the queue cannot be read", "error", err)
		}
		p.wakeOtherProcesses()
	}
}

// wakeOtherProcesses wakes the workers of other processes where a run was accepted and there is no place for another here.
func (p *Pool) wakeOtherProcesses() {
	if p.acceptedHere.Swap(false) && (p.options.AcceptOnly || p.countFreeWorkers() <= 1 || p.isStopping()) {
		p.options.Bus.Publish(queueTopic, "")
	}
}

// runPeriodicChecks finds what is to be done that nobody calls for: runs that wait for a decision that comes too late, and runs that
// wait for others of their session which are gone. It forgets runs that were waited for and have found a place elsewhere.
func (p *Pool) runPeriodicChecks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := p.runs.WakeOverdueRuns(ctx)
	if err == nil {
		_, err = p.runs.PromoteStalledRuns(ctx)
	}
	if err == nil {
		err = p.dropServedApps(ctx)
	}
	if err == nil {
		err = p.lendSlot(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.options.Log.Warn("the queue cannot be read", "error", err)
	}
}

// claimRuns fills the free places with pending runs.
func (p *Pool) claimRuns(ctx context.Context) error {
	p.waitForFreeWorkers(ctx)
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if err := p.demoteDetached(ctx); err != nil {
		return err
	}
	if p.options.AcceptOnly || !p.beginWork() {
		return nil
	}
	defer p.wg.Done()
	if err := p.claimAwaitedRuns(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	free, has := p.queueSlots.countFree(), p.queueSlots.countByApp() // only this goroutine takes places
	p.mu.Unlock()
	if free == 0 {
		return nil // whoever leaves a place wakes us
	}
	runs, err := p.ring.claimRuns(ctx, free, has, p.suspects.Load() == 0)
	p.moreWaiting, p.noneForLastSlot = len(runs) > 0 && len(runs) >= free-1, len(runs) == 0 && free == 1
	if p.isStopping() {
		return err // Drain gives them back
	}
	for _, run := range runs {
		p.mu.Lock()
		p.queueSlots.acquireSlot(run.Tenant)
		p.lastSlotChange = time.Now()
		p.wg.Add(1)
		p.mu.Unlock()
		p.startInSlot(run, p.queueSlots, false)
	}
	return err
}

func (p *Pool) countFreeWorkers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queueSlots.countFree()
}

// How many workers, as a part of all, are to be free for a claim where more runs wait than the last one took, and how
// long that is waited for.
const (
	batchDivisor = 8
	batchWait    = 5 * time.Millisecond
)

// waitForFreeWorkers waits for a few free workers where there is enough for all: a claim for many costs the database little more
// than a claim for one. Where only the place is free that the busy apps may not have, it is looked for others at most once in
// that time, however fast a busy app fills its queue.
func (p *Pool) waitForFreeWorkers(ctx context.Context) {
	enough := 0
	switch {
	case p.moreWaiting:
		enough = p.options.Workers / batchDivisor
	case p.noneForLastSlot:
		enough = 2
	}
	if enough == 0 {
		return
	}
	over := time.NewTimer(batchWait)
	defer over.Stop()
	for p.countFreeWorkers() < enough {
		select {
		case <-p.claimSignal:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// maxAwaitedPerApp is how many runs that somebody waits for are claimed of an app at a time.
const maxAwaitedPerApp = 8

// claimAwaitedRuns gives the places for live runs that have become free to those that found none.
func (p *Pool) claimAwaitedRuns(ctx context.Context) error {
	for app, limit := range p.copyAwaitedApps() {
		n := 0
		for n < maxAwaitedPerApp {
			if _, ok := p.AcquireSlot(app); !ok {
				break
			}
			n++
		}
		if n == 0 {
			continue // others may have room
		}
		p.dropAwaitedApp(app) // before the look: what is written later is told again
		runs, err := p.runs.ClaimRuns(ctx, p.workerID, []store.Share{{Tenant: app, MaxRunning: limit, ClaimCount: int64(n), AwaitedOnly: true}})
		for range n - len(runs) {
			p.releaseLiveSlot(app)
		}
		for _, run := range runs {
			p.StartRun(run)
		}
		if err != nil || limit > 0 || len(runs) == n {
			p.addAwaitedApp(app, limit)
		}
		if err != nil {
			return err
		}
		if len(runs) == n {
			signalChannel(p.claimSignal)
		}
	}
	return nil
}

// dropServedApps forgets the apps that need no more looking after when a place comes free.
func (p *Pool) dropServedApps(ctx context.Context) error {
	apps := p.copyAwaitedApps()
	if len(apps) == 0 {
		return nil
	}
	still, err := p.runs.FindAwaitedApps(ctx, apps)
	if err != nil {
		return err
	}
	for app := range apps {
		if !slices.Contains(still, app) {
			p.dropAwaitedApp(app)
		}
	}
	return nil
}

func (p *Pool) copyAwaitedApps() map[db.ID]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.awaitedApps)
}

func (p *Pool) addAwaitedApp(app db.ID, limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitedApps[app] = limit
}

func (p *Pool) dropAwaitedApp(app db.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.awaitedApps, app)
}
