package queue

import (
	"context"
	"time"

	"stoa/agentsvc/store"
)

// postponement is how long a run that could not go on rests.
const postponement = 30 * time.Second

// beating renews the lease every third of its time and rescues the runs of others as often.
func (p *Pool) beating(ctx context.Context) {
	every := p.o.Stale / 3
	tick := time.NewTicker(min(every, 10*time.Second))
	defer tick.Stop()
	for {
		if err := p.keep(ctx); err != nil && ctx.Err() == nil {
			p.o.Log.Warn("the leases cannot be renewed", "error", err)
		}
		p.rest(ctx, tick.C)
		if ctx.Err() != nil {
			return
		}
	}
}

// rest waits for the next renewal. Runs that ended without a recorded end are given back meanwhile.
func (p *Pool) rest(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			return
		case <-p.back:
			if err := p.giveBack(ctx); err != nil && ctx.Err() == nil {
				p.o.Log.Warn("a run cannot be given back yet", "error", err)
			}
		}
	}
}

func (p *Pool) keep(ctx context.Context) error {
	if err := p.extend(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience())
	defer cancel()
	if err := p.giveBack(ctx); err != nil {
		return err
	}
	n, err := p.runs.Rescue(ctx, p.o.Stale)
	if err != nil {
		return err
	}
	if n > 0 {
		p.o.Log.Warn("rescued the runs of workers that died", "runs", n)
		p.Wake()
	}
	return p.sweep(ctx)
}

// extend renews the lease. When half of its time has passed since the last renewal and this one has had a while, the
// process stops its own runs: somebody else may soon have them.
func (p *Pool) extend(ctx context.Context) error {
	late := time.AfterFunc(max(p.o.Stale/2-p.age(), p.o.Stale/6), func() {
		if p.age() > p.o.Stale/2 {
			p.stopAll()
		}
	})
	within, cancel := context.WithTimeout(ctx, p.patience())
	defer cancel()
	p.beat <- struct{}{}
	defer func() { <-p.beat }()
	var err error
	if !p.gone {
		err = p.confirm(within)
	}
	if err == nil || ctx.Err() != nil {
		late.Stop()
	}
	return err
}

// stray is a run that is leased to this process and at work nowhere in it.
type stray struct {
	place
	turn, attempts int64
}

// sweep gives strays back a lease's time after it first saw them: runs whose acceptance or claim took effect although
// it could not be answered. Their worker would seem alive for ever.
func (p *Pool) sweep(ctx context.Context) error {
	held, err := p.runs.Held(ctx, p.worker)
	if err != nil {
		return err
	}
	seen := map[stray]time.Time{}
	for _, run := range held {
		key := stray{place{run.Tenant, run.Task}, run.Turn, run.Attempts}
		if p.works(key) {
			continue
		}
		since, ok := p.strays[key]
		if !ok {
			since = time.Now()
		}
		if seen[key] = since; time.Since(since) < p.o.Stale {
			continue
		}
		p.o.Log.Warn("gave back a run that nobody had started", "tenant", run.Tenant, "task", run.Task)
		if err := p.runs.GiveBack(ctx, run, store.Back{Error: "nobody started it"}); err != nil {
			return err
		}
		p.Wake()
	}
	p.strays = seen
	return nil
}

func (p *Pool) works(key stray) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.at[key.place]
	return w != nil && w.turn == key.turn && w.attempts == key.attempts
}

// age is how old this process's lease may be: since it last set out to renew it and did.
func (p *Pool) age() time.Duration { return time.Since(p.started) - time.Duration(p.lastBeat.Load()) }

// stale reports whether others may take this process's lease for expired by the time that they hear of something new
// under it. A process that was stopped and goes on finds itself so, until it has renewed its lease.
func (p *Pool) stale() bool { return p.age() > p.o.Stale*3/4 }

// renew has the lease confirmed before a run of this process does what cannot be taken back, where others may take it
// for expired. It ends the runs that others have, and all of them where it cannot be known.
func (p *Pool) renew(ctx context.Context) {
	if !p.stale() {
		return
	}
	select {
	case p.beat <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.beat }()
	if !p.stale() || ctx.Err() != nil {
		return // somebody has done it meanwhile
	}
	ctx, cancel := context.WithTimeout(p.base, p.patience())
	defer cancel()
	if err := p.confirm(ctx); err != nil {
		p.o.Log.Warn("the leases cannot be renewed", "error", err)
		p.stopAll()
	}
}

// patience is how long a renewal may take. One that is broken off takes its connection with it, and what a new one needs
// first must fit into the time as well, or a slow database would never see a renewal again.
func (p *Pool) patience() time.Duration { return min(p.o.Stale/2, 10*time.Second) }

// confirm renews the lease. Where this process counted as dead, the lease is confirmed only when the runs that others
// took meanwhile are ended here.
func (p *Pool) confirm(ctx context.Context) error {
	sent := time.Since(p.started)
	beats, differs, err := p.runs.Beat(ctx, p.worker, p.o.Config())
	if err != nil {
		return err
	}
	if beats == 1 && p.beaten {
		p.o.Log.Warn("this process counted as dead: others have its runs")
		p.lost = true
	}
	p.beaten = true
	if p.lost {
		if err := p.stopLost(ctx, p.atWork()); err != nil {
			return err
		}
		p.lost = false
	}
	p.lastBeat.Store(int64(sent))
	if differs && !p.differs {
		p.o.Log.Warn("another process on this database has another configuration file: the app default answers differently from process to process")
	}
	p.differs = differs
	return nil
}

func (p *Pool) stopAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.at {
		w.cancel(ErrStale)
	}
}
