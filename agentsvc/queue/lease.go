package queue

import (
	"context"
	"time"

	"stoa/agentsvc/store"
)

// postponeDelay is how long a run that could not go on rests.
const postponeDelay = 30 * time.Second

// runLeaseLoop renews the lease every third of its time and rescues the runs of others as often.
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

// waitForNextRenewal waits for the next renewal. Runs that ended without a recorded end are given back meanwhile.
func (p *Pool) waitForNextRenewal(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			return
		case <-p.returnSignal:
			if err := p.returnRuns(ctx); err != nil && ctx.Err() == nil {
				p.options.Log.Warn("a run cannot be given back yet", "error", err)
			}
		}
	}
}

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

// renewBeforeExpiry renews the lease. When half of its time has passed since the last renewal and this one has had a while, the
// process stops its own runs: somebody else may soon have them.
func (p *Pool) renewBeforeExpiry(ctx context.Context) error {
	late := time.AfterFunc(max(p.options.StaleAfter/2-p.leaseAge(), p.options.StaleAfter/6), func() {
		if p.leaseAge() > p.options.StaleAfter/2 {
			p.stopAllRuns()
		}
	})
	within, cancel := context.WithTimeout(ctx, p.renewalTimeout())
	defer cancel()
	p.renewing <- struct{}{}
	defer func() { <-p.renewing }()
	var err error
	if !p.released {
		err = p.renewLease(within)
	}
	if err == nil || ctx.Err() != nil {
		late.Stop()
	}
	return err
}

// orphanRun is a run that is leased to this process and at work nowhere in it.
type orphanRun struct {
	taskKey
	turn, attempts int64
}

// releaseOrphans gives strays back a lease's time after it first saw them: runs whose acceptance or claim took effect although
// it could not be answered. Their worker would seem alive for ever.
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
		p.options.Log.Warn("gave back a run that nobody had started", "tenant", run.Tenant, "task", run.Task)
		if err := p.runs.ReturnRun(ctx, run, store.ReturnOptions{Error: "nobody started it"}); err != nil {
			return err
		}
		p.WakeClaimers()
	}
	p.orphans = seen
	return nil
}

func (p *Pool) isRunning(key orphanRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.running[key.taskKey]
	return w != nil && w.turn == key.turn && w.attempts == key.attempts
}

// leaseAge is how old this process's lease may be: since it last set out to renew it and did.
func (p *Pool) leaseAge() time.Duration {
	return time.Since(p.started) - time.Duration(p.lastRenewal.Load())
}

// isLeaseStale reports whether others may take this process's lease for expired by the time that they hear of something new
// under it. A process that was stopped and goes on finds itself so, until it has renewed its lease.
func (p *Pool) isLeaseStale() bool { return p.leaseAge() > p.options.StaleAfter*3/4 }

// confirmLease has the lease confirmed before a run of this process does what cannot be taken back, where others may take it
// for expired. It ends the runs that others have, and all of them where it cannot be known.
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
		return // somebody has done it meanwhile
	}
	ctx, cancel := context.WithTimeout(p.baseContext, p.renewalTimeout())
	defer cancel()
	if err := p.renewLease(ctx); err != nil {
		p.options.Log.Warn("the leases cannot be renewed", "error", err)
		p.stopAllRuns()
	}
}

// renewalTimeout is how long a renewal may take. One that is broken off takes its connection with it, and what a new one needs
// first must fit into the time as well, or a slow database would never see a renewal again.
func (p *Pool) renewalTimeout() time.Duration { return min(p.options.StaleAfter/2, 10*time.Second) }

// renewLease renews the lease. Where this process counted as dead, the lease is confirmed only when the runs that others
// took meanwhile are ended here.
func (p *Pool) renewLease(ctx context.Context) error {
	sent := time.Since(p.started)
	beats, differs, err := p.runs.RenewLeases(ctx, p.workerID, p.options.ConfigHash())
	if err != nil {
		return err
	}
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

func (p *Pool) stopAllRuns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.running {
		w.cancel(ErrStale)
	}
}
