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
	runs     *store.RunQueue
	handle   Handler
	options  Options
	workerID string

	claimSignal     chan struct{}
	returnSignal    chan struct{} // a run waits to be given back
	watchSignal     chan struct{} // somebody said something about a run at work here
	workers         workerPool    // do the runs
	ring            tenantRing    // only for claim
	moreWaiting     bool          // the last claim left runs waiting; only for claim
	noneForLastSlot bool          // it found none for the one free place, which an app has that has no other; only for claim
	depths          queueDepths

	unrecordedLog logLimit // of runs that ended without their end being recorded

	acceptedHere atomic.Bool // a run was accepted here since the queue was last looked at

	mu              sync.Mutex
	liveSlots       *slotPool        // of runs that somebody waits for, which are handed over in memory
	queueSlots      *slotPool        // of runs claimed from the queue: the workers, and one more for an app that has none of them
	backgroundSlots *slotPool        // of runs whose caller is gone, and of those that have borrowed a place
	borrowers       map[db.ID]bool   // apps whose run has begun although all workers were busy
	lastSlotChange  time.Time        // when a worker was last taken or left
	detached        map[taskKey]bool // tasks without a run here whose caller is gone

	running     map[taskKey]*activeRun
	awaitedApps map[db.ID]int64 // apps, with their limits, whose runs may be claimed when a place for live runs comes free
	unfinished  []unfinishedRun
	stopping    bool
	baseContext context.Context // of all runs
	cancel      context.CancelCauseFunc
	wg          sync.WaitGroup

	suspects      atomic.Int64 // at work here
	lastRenewal   atomic.Int64 // when it was sent, by the local monotonic clock
	started       time.Time
	orphans       map[orphanRun]time.Time // when first seen; only for sweep
	renewing      chan struct{}           // a place for who renews the lease, and for what follows
	renewedBefore bool                    // the lease was renewed before
	released      bool                    // the lease was given back
	lostRuns      bool                    // others have runs that are at work here, and these are not ended yet
	configDiffers bool                    // another process has another configuration file
}

// activeRun is a run at work.
type activeRun struct {
	turn, attempts int64
	cancel         context.CancelCauseFunc
	slots          *slotPool // where it counts; Detach changes it, under Pool.mu
	borrowed       bool
}

type taskKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

// New returns a pool whose runs are handled by handle. It starts nothing; [Pool.Run] does.
func New(runs *store.RunQueue, handle Handler, o Options) *Pool {
	o = o.withDefaults()
	base, cancel := context.WithCancelCause(context.Background())
	worker := agentsvc.NewID()
	return &Pool{
		runs: runs, handle: handle, options: o, workerID: worker,
		claimSignal: make(chan struct{}, 1), returnSignal: make(chan struct{}, 1), watchSignal: make(chan struct{}, 1),
		liveSlots: newSlotPool(o.MaxInflight, o.liveRule()), queueSlots: newSlotPool(o.Workers+1, exceptLast), backgroundSlots: newSlotPool(o.MaxInflight, asManyAsFree),
		borrowers: map[db.ID]bool{}, detached: map[taskKey]bool{},
		renewing: make(chan struct{}, 1), workers: make(workerPool),
		ring: tenantRing{runs: runs, worker: worker}, depths: queueDepths{count: runs.CountWaiting, apps: map[db.ID]*tenantDepth{}},
		running: map[taskKey]*activeRun{}, awaitedApps: map[db.ID]int64{}, baseContext: base, cancel: cancel, started: time.Now(),
	}
}

// Open takes this process's first lease. Where alone is set no other process can hold one (a SQLite file's lock
// proves it), so every leased run found is an orphan and is rescued at once.
func (p *Pool) Open(ctx context.Context, alone bool) error {
	if alone {
		if _, err := p.runs.RescueRuns(ctx, 0); err != nil {
			return err
		}
	}
	return p.renewLease(ctx)
}

// Run claims, renews and rescues until ctx ends. Runs under way go on: [Pool.Drain] ends them.
func (p *Pool) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.runLeaseLoop(ctx) })
	wg.Go(func() { p.runClaimLoop(ctx) })
	wg.Go(func() { p.runWatchLoop(ctx) })
	defer p.options.Bus.WatchTopic(queueTopic, func(string) { signalChannel(p.claimSignal) })()
	defer p.options.Bus.WatchTopic(runTopic, p.receiveRunSignal)()
	wg.Wait()
	return nil
}

// drainGrace is how long Drain waits for runs whose context it has ended.
const drainGrace = 5 * time.Second

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
		case <-time.After(drainGrace):
			p.options.Log.Warn("runs go on after their end", "runs", p.Inflight())
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	p.renewing <- struct{}{}
	err := p.runs.ReleaseRuns(ctx, p.workerID)
	p.released = true
	<-p.renewing
	p.options.Bus.Publish(queueTopic, "")
	return err
}

// Inflight returns how many runs are at work in this process.
func (p *Pool) Inflight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running)
}

// beginWork has Drain wait for its caller, until p.wg.Done. It reports whether the pool takes work: not while it stops, nor
// while others may take its lease for expired.
func (p *Pool) beginWork() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.acceptsWork() {
		return false
	}
	p.wg.Add(1)
	return true
}

// acceptsWork is what enter reports. p.mu is held.
func (p *Pool) acceptsWork() bool { return !p.stopping && !p.isLeaseStale() }

func (p *Pool) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}
