package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// ErrStopping is the cause by which a run's context ends when its process stops: the run is given back, not failed.
var ErrStopping = errors.New("the process is stopping")

// ErrStale is the cause by which a run's context ends when its process could not renew its lease in time.
var ErrStale = errors.New("the lease could not be renewed in time")

// ErrPostponed says that a run cannot go on for a reason that is not its own, such as a suspended app: it is given
// back to be tried later, and the attempt does not count. It is also the cause by which such a run's context ends.
var ErrPostponed = errors.New("the run is postponed")

// Handler runs one run to its end and records that end. An error it returns means that no end is recorded.
type Handler func(ctx context.Context, run store.Run) error

// Pool is the workers of one process.
type Pool struct {
	runs   *store.Runs
	handle Handler
	o      Options
	worker string

	wake   chan struct{}
	back   chan struct{} // a run waits to be given back
	mind   chan struct{} // somebody said something about a run at work here
	crew   crew          // do the runs
	turns  turns         // only for claim
	more   bool          // the last claim left runs waiting; only for claim
	full   bool          // it found none for the one free place, which an app has that has no other; only for claim
	depths depths

	unrecorded logLimit // of runs that ended without their end being recorded

	accepted atomic.Bool // a run was accepted here since the queue was last looked at

	mu         sync.Mutex
	live       *places        // of runs that somebody waits for, which are handed over in memory
	queued     *places        // of runs claimed from the queue: the workers, and one more for an app that has none of them
	background *places        // of runs whose caller is gone, and of those that have borrowed a place
	borrowers  map[db.ID]bool // apps whose run has begun although all workers were busy
	moved      time.Time      // when a worker was last taken or left
	detached   map[place]bool // tasks without a run here whose caller is gone

	at       map[place]*work
	awaited  map[db.ID]int64 // apps, with their limits, whose runs may be claimed when a place for live runs comes free
	undone   []undone
	stopping bool
	base     context.Context // of all runs
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup

	suspects atomic.Int64 // at work here
	lastBeat atomic.Int64 // when it was sent, by the local monotonic clock
	started  time.Time
	strays   map[stray]time.Time // when first seen; only for sweep
	beat     chan struct{}       // a place for who renews the lease, and for what follows
	beaten   bool                // the lease was renewed before
	gone     bool                // the lease was given back
	lost     bool                // others have runs that are at work here, and these are not ended yet
	differs  bool                // another process has another configuration file
}

// work is a run at work.
type work struct {
	turn, attempts int64
	cancel         context.CancelCauseFunc
	in             *places // where it counts; Detach changes it, under Pool.mu
	borrowed       bool
}

type place struct {
	tenant db.ID
	task   agentsvc.TaskID
}

// New returns a pool whose runs are handled by handle. It starts nothing; [Pool.Run] does.
func New(runs *store.Runs, handle Handler, o Options) *Pool {
	o = o.withDefaults()
	base, cancel := context.WithCancelCause(context.Background())
	worker := agentsvc.NewID()
	return &Pool{
		runs: runs, handle: handle, o: o, worker: worker,
		wake: make(chan struct{}, 1), back: make(chan struct{}, 1), mind: make(chan struct{}, 1),
		live: newPlaces(o.MaxInflight, o.liveRule()), queued: newPlaces(o.Workers+1, allButLast), background: newPlaces(o.MaxInflight, asManyAsFree),
		borrowers: map[db.ID]bool{}, detached: map[place]bool{},
		beat: make(chan struct{}, 1), crew: make(crew),
		turns: turns{runs: runs, worker: worker}, depths: depths{count: runs.Waiting, apps: map[db.ID]*depth{}},
		at: map[place]*work{}, awaited: map[db.ID]int64{}, base: base, cancel: cancel, started: time.Now(),
	}
}

// Open takes this process's first lease. Where alone is set no other process can hold one (a SQLite file's lock
// proves it), so every leased run found is an orphan and is rescued at once.
func (p *Pool) Open(ctx context.Context, alone bool) error {
	if alone {
		if _, err := p.runs.Rescue(ctx, 0); err != nil {
			return err
		}
	}
	return p.confirm(ctx)
}

// Run claims, renews and rescues until ctx ends. Runs under way go on: [Pool.Drain] ends them.
func (p *Pool) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.beating(ctx) })
	wg.Go(func() { p.claiming(ctx) })
	wg.Go(func() { p.minding(ctx) })
	defer p.o.Bus.Watch(topicQueue, func(string) { rouse(p.wake) })()
	defer p.o.Bus.Watch(topicRun, p.said)()
	wg.Wait()
	return nil
}

// grace is how long Drain waits for runs whose context it has ended.
const grace = 5 * time.Second

// Drain accepts no more runs, waits for those under way as long as ctx lasts, stops the rest and gives their leases
// back: no attempt of theirs counts. Run goes on meanwhile, for the leases.
func (p *Pool) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { p.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		p.cancel(ErrStopping)
		select {
		case <-done:
		case <-time.After(grace):
			p.o.Log.Warn("runs go on after their end", "runs", p.Inflight())
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	p.beat <- struct{}{}
	err := p.runs.Release(ctx, p.worker)
	p.gone = true
	<-p.beat
	p.o.Bus.Publish(topicQueue, "")
	return err
}

// Inflight returns how many runs are at work in this process.
func (p *Pool) Inflight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// enter has Drain wait for its caller, until p.wg.Done. It reports whether the pool takes work: not while it stops, nor
// while others may take its lease for expired.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.takesWork() {
		return false
	}
	p.wg.Add(1)
	return true
}

// takesWork is what enter reports. p.mu is held.
func (p *Pool) takesWork() bool { return !p.stopping && !p.stale() }

func (p *Pool) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}
