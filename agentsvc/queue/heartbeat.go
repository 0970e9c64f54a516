package queue

import (
	"context"
	"sync/atomic"
	"time"

	"stoa/agentsvc/store"
)

// heartbeater renews the heartbeat of this process, a row of table worker, by which all leases of its runs live or
// expire. It also rescues the runs of processes without a heartbeat, returns runs that are leased to this process but do
// not execute, and stops the runs here when the heartbeat is late or was deleted.
type heartbeater struct {
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
	released      bool // releaseRuns has deleted the heartbeat; it is not renewed any more
	lostRuns      bool // the process counted as dead and its runs are not checked yet
	configDiffers bool // a difference of configuration files was logged
}

// runLoop renews the heartbeat and rescues the runs of dead processes, every third of StaleAfter and at least every
// 10 s: two renewals may fail before the heartbeat is stale.
func (h *heartbeater) runLoop(ctx context.Context) {
	every := h.options.StaleAfter / 3
	tick := time.NewTicker(min(every, 10*time.Second))
	defer tick.Stop()
	for {
		if err := h.runRound(ctx); err != nil && ctx.Err() == nil {
			h.options.Log.Warn("the leases cannot be renewed", "error", err)
		}
		h.waitForNextRenewal(ctx, tick.C)
		if ctx.Err() != nil {
			return
		}
	}
}

// waitForNextRenewal waits for the next tick and returns unfinished runs meanwhile.
func (h *heartbeater) waitForNextRenewal(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			return
		case <-h.unfinished.signal:
			if err := h.unfinished.returnRuns(ctx); err != nil && ctx.Err() == nil {
				h.options.Log.Warn("a run could not be returned to the queue yet", "error", err)
			}
		}
	}
}

// runRound is one round of the heartbeat loop: renew the own heartbeat first, then return unfinished runs, rescue the
// runs of dead processes and return those that do not execute here.
func (h *heartbeater) runRound(ctx context.Context) error {
	if err := h.renewBeforeExpiry(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.renewalTimeout())
	defer cancel()
	if err := h.unfinished.returnRuns(ctx); err != nil {
		return err
	}
	n, workers, err := h.runs.RescueRuns(ctx, h.options.StaleAfter)
	if err != nil {
		return err
	}
	if n > 0 {
		h.options.Log.Warn("rescued the runs of workers that died", "runs", n, "workers", workers)
		h.wake.signalAccepted()
	}
	return h.returnUnexecuted(ctx)
}

// renewBeforeExpiry renews the heartbeat. If the renewal is not done when half of StaleAfter has passed since the last
// one (but at least a sixth after this call), all runs are cancelled with [ErrStale]: they end before another process
// may rescue them.
func (h *heartbeater) renewBeforeExpiry(ctx context.Context) error {
	late := time.AfterFunc(max(h.options.StaleAfter/2-h.heartbeatAge(), h.options.StaleAfter/6), func() {
		if h.heartbeatAge() > h.options.StaleAfter/2 {
			h.active.stopAll(ErrStale)
		}
	})
	within, cancel := context.WithTimeout(ctx, h.renewalTimeout())
	defer cancel()
	// Semaphore: see heartbeater.renewing.
	h.renewing <- struct{}{}
	defer func() { <-h.renewing }()
	var err error
	if !h.released {
		err = h.writeHeartbeat(within)
	}
	// After a failed renewal the timer stays: it cancels the runs unless a later renewal succeeds first.
	if err == nil || ctx.Err() != nil {
		late.Stop()
	}
	return err
}

// heartbeatAge returns an upper bound of the heartbeat's age: the time since the last successful renewal was sent. It uses
// the monotonic clock, so a changed wall clock does not matter.
func (h *heartbeater) heartbeatAge() time.Duration {
	return time.Since(h.started) - time.Duration(h.lastRenewal.Load())
}

// isStale reports whether other processes may consider this process dead. Three quarters of StaleAfter leave time for a
// transaction under way. A process that was suspended finds its heartbeat stale when it continues, until it has renewed
// it.
func (h *heartbeater) isStale() bool { return h.heartbeatAge() > h.options.StaleAfter*3/4 }

// confirmHeartbeat makes sure that this process does not count as dead before a run has an external effect;
// [agentsvc.LeaseCheck.Check] calls it. If the heartbeat is stale it is renewed first. Runs that other processes took are
// cancelled with [agentsvc.ErrLeaseLost]; if the renewal fails, all runs are cancelled with [ErrStale]. The caller
// checks its context afterwards.
func (h *heartbeater) confirmHeartbeat(ctx context.Context) {
	if !h.isStale() {
		return
	}
	select {
	case h.renewing <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-h.renewing }()
	if !h.isStale() || ctx.Err() != nil {
		return // another run has renewed it meanwhile
	}
	ctx, cancel := context.WithTimeout(h.base, h.renewalTimeout())
	defer cancel()
	if err := h.writeHeartbeat(ctx); err != nil {
		h.options.Log.Warn("the leases cannot be renewed", "error", err)
		h.active.stopAll(ErrStale)
	}
}

// renewalTimeout bounds one renewal. A renewal that is broken off loses its connection, and the time must suffice to
// open a new one: with a shorter bound a slow database would never see a successful renewal.
func (h *heartbeater) renewalTimeout() time.Duration {
	return min(h.options.StaleAfter/2, 10*time.Second)
}

// writeHeartbeat writes the heartbeat. The caller holds h.renewing, or no loop runs yet (Open). If the worker row was
// deleted, the process counted as dead: the renewal counts only once the runs that other processes took are cancelled
// here, and lostRuns keeps that duty across failed attempts.
func (h *heartbeater) writeHeartbeat(ctx context.Context) error {
	// Measured before the statement: the database may set the heartbeat at any time after it.
	sent := time.Since(h.started)
	beats, differs, err := h.runs.WriteHeartbeat(ctx, h.worker, h.options.ConfigHash())
	if err != nil {
		return err
	}
	// beats is 1 for a new worker row: a rescue had deleted the old one.
	if beats == 1 && h.renewedBefore {
		h.options.Log.Warn("this process was taken for dead: other processes have its runs")
		h.lostRuns = true
	}
	h.renewedBefore = true
	if h.lostRuns {
		if err := h.active.stopLost(ctx, h.active.copyRunning()); err != nil {
			return err
		}
		h.lostRuns = false
	}
	h.lastRenewal.Store(int64(sent))
	if differs && !h.configDiffers {
		h.options.Log.Warn("another process on this database has another configuration file: the app default answers differently from process to process")
	}
	h.configDiffers = differs
	return nil
}

// releaseRuns returns the runs that are still leased to this process to the queue, and deletes its heartbeat. No renewal
// can create the row again afterwards: it would look like a process that died and came back. It returns the number of
// the runs.
func (h *heartbeater) releaseRuns(ctx context.Context) (int64, error) {
	h.renewing <- struct{}{}
	defer func() { <-h.renewing }()
	h.released = true
	return h.runs.ReleaseRuns(ctx, h.worker)
}
