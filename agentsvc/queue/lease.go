package queue

import (
	"context"
	"time"

	"stoa/agentsvc/store"
)

// postponeDelay is the delay of a postponed run. [Pool.ResumeTenant] ends it early.
const postponeDelay = 30 * time.Second

// runLeaseLoop renews the lease and rescues the runs of dead processes, every third of StaleAfter and at least every
// 10 s: two renewals may fail before the lease is stale.
func (p *Pool) runLeaseLoop(ctx context.Context) {
	every := p.options.StaleAfter / 3
	tick := time.NewTicker(min(every, 10*time.Second))
	defer tick.Stop()
	for {
		if err := p.maintainLeases(ctx); err != nil && ctx.Err() == nil {
			p.options.Log.Warn("the leases cannot be renewed", "error", err)
		}
		p.waitForNextRenewal(ctx, tick.C)
		if ctx.Err() != nil {
			return
		}
	}
}

// waitForNextRenewal waits for the next tick and returns unfinished runs meanwhile.
func (p *Pool) waitForNextRenewal(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			return
		case <-p.returnSignal:
			if err := p.returnRuns(ctx); err != nil && ctx.Err() == nil {
				p.options.Log.Warn("a run cannot be returned yet", "error", err)
			}
		}
	}
}

// maintainLeases is one round of the lease loop: renew the own lease first, then return unfinished runs, rescue the
// runs of dead processes and release orphans.
func (p *Pool) maintainLeases(ctx context.Context) error {
	if err := p.renewBeforeExpiry(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.renewalTimeout())
	defer cancel()
	if err := p.returnRuns(ctx); err != nil {
		return err
	}
	n, err := p.runs.RescueRuns(ctx, p.options.StaleAfter)
	if err != nil {
		return err
	}
	if n > 0 {
		p.options.Log.Warn("rescued the runs of workers that died", "runs", n)
		p.WakeClaimers()
	}
	return p.releaseOrphans(ctx)
}

// renewBeforeExpiry renews the lease. If the renewal is not done when half of StaleAfter has passed since the last
// one (but at least a sixth after this call), all runs are cancelled with [ErrStale]: they end before another process
// may rescue them.
func (p *Pool) renewBeforeExpiry(ctx context.Context) error {
	late := time.AfterFunc(max(p.options.StaleAfter/2-p.leaseAge(), p.options.StaleAfter/6), func() {
		if p.leaseAge() > p.options.StaleAfter/2 {
			p.stopAllRuns()
		}
	})
	within, cancel := context.WithTimeout(ctx, p.renewalTimeout())
	defer cancel()
	// Semaphore: see Pool.renewing.
	p.renewing <- struct{}{}
	defer func() { <-p.renewing }()
	var err error
	if !p.released {
		err = p.renewLease(within)
	}
	// After a failed renewal the timer stays: it cancels the runs unless a later renewal succeeds first.
	if err == nil || ctx.Err() != nil {
		late.Stop()
	}
	return err
}

// orphanRun identifies a run that is leased to this process but does not execute here.
type orphanRun struct {
	taskKey
	turn, attempts int64
}

// releaseOrphans returns runs that are leased to this process but were never started: the transaction that leased
// them committed although its caller saw an error. The process renews its lease, so no other process would ever
// rescue them. A run is released after it was an orphan for StaleAfter: a run that is just being started looks the
// same.
func (p *Pool) releaseOrphans(ctx context.Context) error {
	leased, err := p.runs.ListLeasedRuns(ctx, p.workerID)
	if err != nil {
		return err
	}
	seen := map[orphanRun]time.Time{}
	for _, run := range leased {
		key := orphanRun{taskKey{run.Tenant, run.Task}, run.Turn, run.Attempts}
		if p.isRunning(key) {
			continue
		}
		since, ok := p.orphans[key]
		if !ok {
			since = time.Now()
		}
		if seen[key] = since; time.Since(since) < p.options.StaleAfter {
			continue
		}
		p.options.Log.Warn("returned a run that had not been started", "tenant", run.Tenant, "task", run.Task)
		if err := p.runs.ReturnRun(ctx, run, store.ReturnOptions{Error: "not started"}); err != nil {
			return err
		}
		p.WakeClaimers()
	}
	p.orphans = seen
	return nil
}

// isRunning reports whether exactly this attempt executes here.
func (p *Pool) isRunning(key orphanRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.running[key.taskKey]
	return w != nil && w.turn == key.turn && w.attempts == key.attempts
}

// leaseAge returns an upper bound of the lease's age: the time since the last successful renewal was sent. It uses
// the monotonic clock, so a changed wall clock does not matter.
func (p *Pool) leaseAge() time.Duration {
	return time.Since(p.started) - time.Duration(p.lastRenewal.Load())
}

// isLeaseStale reports whether other processes may consider this lease expired. Three quarters of StaleAfter leave
// time for a transaction under way. A process that was suspended finds its lease stale when it continues, until it
// has renewed it.
func (p *Pool) isLeaseStale() bool { return p.leaseAge() > p.options.StaleAfter*3/4 }

// confirmLease makes sure that this process still holds its lease before a run has an external effect;
// [agentsvc.CheckLease] calls it. If the lease is stale it is renewed first. Runs that other processes took are
// cancelled with [agentsvc.ErrLeaseLost]; if the renewal fails, all runs are cancelled with [ErrStale]. The caller
// checks its context afterwards.
func (p *Pool) confirmLease(ctx context.Context) {
	if !p.isLeaseStale() {
		return
	}
	select {
	case p.renewing <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.renewing }()
	if !p.isLeaseStale() || ctx.Err() != nil {
		return // another run has renewed it meanwhile
	}
	ctx, cancel := context.WithTimeout(p.baseContext, p.renewalTimeout())
	defer cancel()
	if err := p.renewLease(ctx); err != nil {
		p.options.Log.Warn("the leases cannot be renewed", "error", err)
		p.stopAllRuns()
	}
}

// renewalTimeout bounds one renewal. A renewal that is broken off loses its connection, and the time must suffice to
// open a new one: with a shorter bound a slow database would never see a successful renewal.
func (p *Pool) renewalTimeout() time.Duration { return min(p.options.StaleAfter/2, 10*time.Second) }

// renewLease writes the heartbeat. The caller holds p.renewing, or no loop runs yet (Open). If the worker row was
// deleted, the process counted as dead: the renewal counts only once the runs that other processes took are cancelled
// here, and lostRuns keeps that duty across failed attempts.
func (p *Pool) renewLease(ctx context.Context) error {
	// Measured before the statement: the database may set the heartbeat at any time after it.
	sent := time.Since(p.started)
	beats, differs, err := p.runs.RenewLeases(ctx, p.workerID, p.options.ConfigHash())
	if err != nil {
		return err
	}
	// beats is 1 for a new worker row: a rescue had deleted the old one.
	if beats == 1 && p.renewedBefore {
		p.options.Log.Warn("this process counted as dead: others have its runs")
		p.lostRuns = true
	}
	p.renewedBefore = true
	if p.lostRuns {
		if err := p.stopLostRuns(ctx, p.copyRunning()); err != nil {
			return err
		}
		p.lostRuns = false
	}
	p.lastRenewal.Store(int64(sent))
	if differs && !p.configDiffers {
		p.options.Log.Warn("another process on this database has another configuration file: the app default answers differently from process to process")
	}
	p.configDiffers = differs
	return nil
}

// stopAllRuns cancels every run here with [ErrStale].
func (p *Pool) stopAllRuns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.running {
		w.cancel(ErrStale)
	}
}
