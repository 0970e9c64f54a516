package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// claimInterval is how often the queue is read without a signal: for runs of other processes whose signal was lost,
// and for retries whose delay has ended.
const claimInterval = time.Second

// claimTimeout bounds one claim. If the claim commits after its timeout, its runs are leased but not started;
// releaseOrphans returns them.
const claimTimeout = 10 * time.Second

// runClaimLoop claims runs when signalled and once per claimInterval. It is the only goroutine that acquires queue
// slots.
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

// wakeOtherProcesses signals the other processes if a run was accepted here that this process is unlikely to claim
// soon.
func (p *Pool) wakeOtherProcesses() {
	if p.acceptedHere.Swap(false) && (p.options.AcceptOnly || p.countFreeWorkers() <= 1 || p.isStopping()) {
		p.options.Bus.Publish(queueTopic, "")
	}
}

// runPeriodicChecks handles what no signal announces: approvals that have expired, sessions whose next run was not
// promoted because the process that ended the previous run failed in between, awaited runs that another process has
// claimed, and tenants without a slot.
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

// claimRuns fills the free queue slots with pending runs, after the awaited runs that found no live slot.
func (p *Pool) claimRuns(ctx context.Context) error {
	p.waitForFreeWorkers(ctx)
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if err := p.demoteDetached(ctx); err != nil {
		return err
	}
	// beginWork makes Drain wait for this claim, so that runs leased by it are released with the rest.
	if p.options.AcceptOnly || !p.beginWork() {
		return nil
	}
	defer p.wg.Done()
	if err := p.claimAwaitedRuns(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	// Free slots cannot decrease between here and acquireSlot: only this goroutine acquires them.
	free, has := p.queueSlots.countFree(), p.queueSlots.countByApp()
	p.mu.Unlock()
	if free == 0 {
		return nil // endRun signals the claim loop
	}
	// While a suspect executes here no second one is claimed: if the process dies, the rescue must blame one run.
	runs, err := p.ring.claimRuns(ctx, free, has, p.suspects.Load() == 0)
	p.moreWaiting, p.noneForLastSlot = len(runs) > 0 && len(runs) >= free-1, len(runs) == 0 && free == 1
	if p.isStopping() {
		return err // Drain returns the runs
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

// countFreeWorkers returns the number of free queue slots.
func (p *Pool) countFreeWorkers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queueSlots.countFree()
}

// A claim for many runs costs the database little more than a claim for one. So where the last claim left runs
// waiting, the next one waits until Workers/batchDivisor workers are free, but at most batchWait.
const (
	batchDivisor = 8
	batchWait    = 5 * time.Millisecond
)

// waitForFreeWorkers delays the next claim where a larger one will soon be possible. If only the slot that busy
// tenants may not take is free and no other tenant had a run, the queue is read at most once per batchWait, however
// often a busy tenant signals new runs.
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

// maxAwaitedPerApp bounds how many awaited runs of one tenant are claimed in one statement.
const maxAwaitedPerApp = 8

// claimAwaitedRuns gives free live slots to awaited runs that were queued because none was free when they were
// accepted. It acquires the slots first and releases those for which no run was found.
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
			continue
		}
		// Before the query: a run that is written after it calls NotifyQueued, which adds the tenant again.
		p.dropAwaitedApp(app)
		runs, err := p.runs.ClaimRuns(ctx, p.workerID, []store.Share{{Tenant: app, MaxRunning: limit, ClaimCount: int64(n), AwaitedOnly: true}})
		for range n - len(runs) {
			p.releaseLiveSlot(app)
		}
		for _, run := range runs {
			p.StartRun(run)
		}
		// The tenant may have more such runs, or its limit of running tasks held them back.
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

// dropServedApps removes the tenants that have no awaited run in the queue any more, because other processes claimed
// them.
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

// copyAwaitedApps returns a copy of awaitedApps, which callers may range over without p.mu.
func (p *Pool) copyAwaitedApps() map[db.ID]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.awaitedApps)
}

// addAwaitedApp makes the claim loop look for awaited runs of the tenant when a live slot is free.
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
