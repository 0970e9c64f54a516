package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc/store"
)

// claimInterval is how often the queue is read without a signal: for runs of other processes whose signal was lost,
// and for retries whose delay has ended.
const claimInterval = time.Second

// claimTimeout bounds one claim. If the claim commits after its timeout, its runs are leased but not started;
// returnUnexecuted returns them.
const claimTimeout = 10 * time.Second

// claimer claims runs from the queue for the slots that are free here. Its loop is the only goroutine that acquires
// queue slots and borrowed ones.
type claimer struct {
	runs     *store.RunQueue
	options  Options
	worker   string
	executor *executor
	slots    *slots
	awaited  *awaitedApps
	wake     *claimSignal

	// rounds is the number of rounds of the claim loop that have ended: their runs are started.
	rounds atomic.Int64

	// Used only by the claim loop.
	ring        tenantRing
	moreWaiting bool // the last claim filled all slots, so more runs wait
	// noneForLastSlot reports that the last claim had one free slot, which only a tenant without a run here may take,
	// and found no such tenant.
	noneForLastSlot bool

	mu       sync.Mutex       // guards detached
	detached map[taskKey]bool // tasks whose caller has disconnected and that have no run here yet
}

// runLoop claims runs when signalled and once per claimInterval.
func (c *claimer) runLoop(ctx context.Context) {
	tick := time.NewTicker(claimInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake.c:
		case <-tick.C:
			c.runPeriodicChecks(ctx)
		}
		if err := c.claimRuns(ctx); err != nil && ctx.Err() == nil {
			c.options.Log.Warn("the queue cannot be read", "error", err)
		}
		c.wakeOtherProcesses()
		c.rounds.Add(1)
	}
}

// wakeOtherProcesses signals the other processes if a run was accepted here that this process is unlikely to claim
// soon.
func (c *claimer) wakeOtherProcesses() {
	if c.wake.accepted.Swap(false) && (c.options.AcceptOnly || c.slots.countFreeQueue() <= 1 || c.executor.work.isStopping()) {
		c.options.Bus.Publish(queueTopic, "")
	}
}

// runPeriodicChecks handles what no signal announces: approvals that have expired, sessions whose next run was not
// promoted because the process that ended the previous run failed in between, awaited runs that another process has
// claimed, and tenants without a slot.
func (c *claimer) runPeriodicChecks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.runs.WakeOverdueRuns(ctx)
	if err == nil {
		_, err = c.runs.PromoteStalledRuns(ctx)
	}
	if err == nil {
		err = c.dropServedApps(ctx)
	}
	if err == nil {
		err = c.lendSlot(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.options.Log.Warn("the queue cannot be read", "error", err)
	}
}

// claimRuns fills the free queue slots with pending runs, after the awaited runs that found no live slot.
func (c *claimer) claimRuns(ctx context.Context) error {
	c.waitForFreeWorkers(ctx)
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if err := c.demoteDetached(ctx); err != nil {
		return err
	}
	// beginWork makes Drain wait for this claim, so that runs leased by it are released with the rest.
	if c.options.AcceptOnly || !c.executor.beginWork() {
		return nil
	}
	defer c.executor.endWork()
	if err := c.claimAwaitedRuns(ctx); err != nil {
		return err
	}
	// Free slots cannot decrease between here and startClaimed: only this goroutine acquires them.
	free, has := c.slots.countQueueByApp()
	if free == 0 {
		return nil // the end of a run signals the claim loop
	}
	// While a suspect executes here no second one is claimed: if the process dies, the rescue must blame one run.
	runs, err := c.ring.claimRuns(ctx, free, has, c.executor.suspects.Load() == 0)
	c.moreWaiting, c.noneForLastSlot = len(runs) > 0 && len(runs) >= free-1, len(runs) == 0 && free == 1
	if c.executor.work.isStopping() {
		return err // Drain returns the runs
	}
	for _, run := range runs {
		c.executor.startClaimed(run, queueSlot)
	}
	return err
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
func (c *claimer) waitForFreeWorkers(ctx context.Context) {
	enough := 0
	switch {
	case c.moreWaiting:
		enough = c.options.Workers / batchDivisor
	case c.noneForLastSlot:
		enough = 2
	}
	if enough == 0 {
		return
	}
	over := time.NewTimer(batchWait)
	defer over.Stop()
	for c.slots.countFreeQueue() < enough {
		select {
		case <-c.wake.c:
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
func (c *claimer) claimAwaitedRuns(ctx context.Context) error {
	for app, limit := range c.awaited.copyApps() {
		n := 0
		for n < maxAwaitedPerApp {
			if !c.executor.acquireLiveSlot(app) {
				break
			}
			n++
		}
		if n == 0 {
			continue
		}
		// Before the query: a run that is written after it calls NotifyQueued, which adds the tenant again.
		c.awaited.drop(app)
		runs, err := c.runs.ClaimRuns(ctx, c.worker, []store.Share{{Tenant: app, MaxRunning: limit, ClaimCount: int64(n), AwaitedOnly: true}})
		for range n - len(runs) {
			c.executor.releaseLiveSlot(app)
		}
		for _, run := range runs {
			c.executor.startRun(run, liveSlot)
		}
		// The tenant may have more such runs, or its limit of running tasks held them back.
		if err != nil || limit > 0 || len(runs) == n {
			c.awaited.add(app, limit)
		}
		if err != nil {
			return err
		}
		if len(runs) == n {
			c.wake.signal()
		}
	}
	return nil
}

// dropServedApps removes the tenants that have no awaited run in the queue any more, because other processes claimed
// them.
func (c *claimer) dropServedApps(ctx context.Context) error {
	apps := c.awaited.copyApps()
	if len(apps) == 0 {
		return nil
	}
	still, err := c.runs.FindAwaitedApps(ctx, apps)
	if err != nil {
		return err
	}
	for app := range apps {
		if !slices.Contains(still, app) {
			c.awaited.drop(app)
		}
	}
	return nil
}
