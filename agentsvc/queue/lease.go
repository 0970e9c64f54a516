package queue

import (
	"context"
	"sync/atomic"
	"time"

	"stoa/agentsvc/store"
)

// leaseKeeper keeps the leases of the runs of this process. They are all as old as the process's heartbeat, a row of
// table worker: the keeper renews it, rescues the runs of processes without one, returns runs that are leased to this
// process but do not execute, and stops the runs here when the heartbeat is late or was deleted.
type leaseKeeper struct {
	runs       *store.RunQueue
	options    Options
	worker     string
	base       context.Context // parent of the runs' contexts
	active     *activeRuns
	unfinished *unfinishedRuns
	wake       *claimSignal

	started     time.Time     // base of the monotonic clock
	lastRenewal atomic.Int64  // when the last successful renewal was sent, as nanoseconds since started
	claimRounds *atomic.Int64 // written by the claim loop, see claimer.rounds

	// renewing is a semaphore of capacity 1, not a mutex, so that waiting can end with a context. It guards the
	// fields below.
	renewing      chan struct{}
	renewedBefore bool // a renewal has succeeded
	released      bool // releaseLease has released the lease; it is not renewed any more
	lostRuns      bool // the process counted as dead and its runs are not checked yet
	configDiffers bool // a difference of configuration files was logged
}

// runLoop renews the lease and rescues the runs of dead processes, every third of StaleAfter and at least every
// 10 s: two renewals may fail before the lease is stale.
func (k *leaseKeeper) runLoop(ctx context.Context) {
	every := k.options.StaleAfter / 3
	tick := time.NewTicker(min(every, 10*time.Second))
	defer tick.Stop()
	for {
		if err := k.maintainLeases(ctx); err != nil && ctx.Err() == nil {
			k.options.Log.Warn("the leases cannot be renewed", "error", err)
		}
		k.waitForNextRenewal(ctx, tick.C)
		if ctx.Err() != nil {
			return
		}
	}
}

// waitForNextRenewal waits for the next tick and returns unfinished runs meanwhile.
func (k *leaseKeeper) waitForNextRenewal(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			return
		case <-k.unfinished.signal:
			if err := k.unfinished.returnRuns(ctx); err != nil && ctx.Err() == nil {
				k.options.Log.Warn("a run could not be returned to the queue yet", "error", err)
			}
		}
	}
}

// maintainLeases is one round of the lease loop: renew the own lease first, then return unfinished runs, rescue the
// runs of dead processes and return those that do not execute here.
func (k *leaseKeeper) maintainLeases(ctx context.Context) error {
	if err := k.renewBeforeExpiry(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, k.renewalTimeout())
	defer cancel()
	if err := k.unfinished.returnRuns(ctx); err != nil {
		return err
	}
	n, workers, err := k.runs.RescueRuns(ctx, k.options.StaleAfter)
	if err != nil {
		return err
	}
	if n > 0 {
		k.options.Log.Warn("rescued the runs of workers that died", "runs", n, "workers", workers)
		k.wake.signalAccepted()
	}
	return k.returnUnexecuted(ctx)
}

// renewBeforeExpiry renews the lease. If the renewal is not done when half of StaleAfter has passed since the last
// one (but at least a sixth after this call), all runs are cancelled with [ErrStale]: they end before another process
// may rescue them.
func (k *leaseKeeper) renewBeforeExpiry(ctx context.Context) error {
	late := time.AfterFunc(max(k.options.StaleAfter/2-k.leaseAge(), k.options.StaleAfter/6), func() {
		if k.leaseAge() > k.options.StaleAfter/2 {
			k.active.stopAll(ErrStale)
		}
	})
	within, cancel := context.WithTimeout(ctx, k.renewalTimeout())
	defer cancel()
	// Semaphore: see leaseKeeper.renewing.
	k.renewing <- struct{}{}
	defer func() { <-k.renewing }()
	var err error
	if !k.released {
		err = k.writeHeartbeat(within)
	}
	// After a failed renewal the timer stays: it cancels the runs unless a later renewal succeeds first.
	if err == nil || ctx.Err() != nil {
		late.Stop()
	}
	return err
}

// leaseAge returns an upper bound of the lease's age: the time since the last successful renewal was sent. It uses
// the monotonic clock, so a changed wall clock does not matter.
func (k *leaseKeeper) leaseAge() time.Duration {
	return time.Since(k.started) - time.Duration(k.lastRenewal.Load())
}

// isStale reports whether other processes may consider this lease expired. Three quarters of StaleAfter leave
// time for a transaction under way. A process that was suspended finds its lease stale when it continues, until it
// has renewed it.
func (k *leaseKeeper) isStale() bool { return k.leaseAge() > k.options.StaleAfter*3/4 }

// confirmHeartbeat makes sure that this process still holds its lease before a run has an external effect;
// [agentsvc.LeaseCheck.Check] calls it. If the lease is stale it is renewed first. Runs that other processes took are
// cancelled with [agentsvc.ErrLeaseLost]; if the renewal fails, all runs are cancelled with [ErrStale]. The caller
// checks its context afterwards.
func (k *leaseKeeper) confirmHeartbeat(ctx context.Context) {
	if !k.isStale() {
		return
	}
	select {
	case k.renewing <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-k.renewing }()
	if !k.isStale() || ctx.Err() != nil {
		return // another run has renewed it meanwhile
	}
	ctx, cancel := context.WithTimeout(k.base, k.renewalTimeout())
	defer cancel()
	if err := k.writeHeartbeat(ctx); err != nil {
		k.options.Log.Warn("the leases cannot be renewed", "error", err)
		k.active.stopAll(ErrStale)
	}
}

// renewalTimeout bounds one renewal. A renewal that is broken off loses its connection, and the time must suffice to
// open a new one: with a shorter bound a slow database would never see a successful renewal.
func (k *leaseKeeper) renewalTimeout() time.Duration {
	return min(k.options.StaleAfter/2, 10*time.Second)
}

// writeHeartbeat writes the heartbeat. The caller holds k.renewing, or no loop runs yet (Open). If the worker row was
// deleted, the process counted as dead: the renewal counts only once the runs that other processes took are cancelled
// here, and lostRuns keeps that duty across failed attempts.
func (k *leaseKeeper) writeHeartbeat(ctx context.Context) error {
	// Measured before the statement: the database may set the heartbeat at any time after it.
	sent := time.Since(k.started)
	beats, differs, err := k.runs.WriteHeartbeat(ctx, k.worker, k.options.ConfigHash())
	if err != nil {
		return err
	}
	// beats is 1 for a new worker row: a rescue had deleted the old one.
	if beats == 1 && k.renewedBefore {
		k.options.Log.Warn("this process was taken for dead: other processes have its runs")
		k.lostRuns = true
	}
	k.renewedBefore = true
	if k.lostRuns {
		if err := k.active.stopLost(ctx, k.active.copyRunning()); err != nil {
			return err
		}
		k.lostRuns = false
	}
	k.lastRenewal.Store(int64(sent))
	if differs && !k.configDiffers {
		k.options.Log.Warn("another process on this database has another configuration file: the app default answers differently from process to process")
	}
	k.configDiffers = differs
	return nil
}

// releaseLease returns the runs that are still leased to this process to the queue, and deletes its heartbeat. No renewal
// can create the lease again afterwards: it would look like a process that died and came back. It returns the number of
// the runs.
func (k *leaseKeeper) releaseLease(ctx context.Context) (int64, error) {
	k.renewing <- struct{}{}
	defer func() { <-k.renewing }()
	k.released = true
	return k.runs.ReleaseRuns(ctx, k.worker)
}
