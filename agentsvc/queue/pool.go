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

// ErrStopping is the cause of a run's context when its process stops. The run is returned to the queue and its
// attempt does not count.
var ErrStopping = errors.New("the process is stopping")

// ErrStale is the cause of a run's context when its process could not renew its lease in time: another process may
// take the run.
var ErrStale = errors.New("the lease could not be renewed in time")

// ErrPostponed reports that a run cannot continue for a reason outside it, such as a suspended tenant. The run is
// returned to be tried later and the attempt does not count. It is also the cause with which [Pool.StopTenant]
// cancels a run's context.
var ErrPostponed = errors.New("the run is postponed")

// Handler executes one run and records its end. An error means that no end was recorded; the pool then decides
// between retry and giving up. [agentsvc.ErrLeaseLost] means that the run belongs to this process no longer.
type Handler func(ctx context.Context, run store.Run) error

// Pool is the set of workers of one process. Three goroutines of [Pool.Run] operate it: the claim loop (claim.go),
// the lease loop (lease.go) and the watch loop (watch.go). Runs execute on goroutines of workers.
type Pool struct {
	// Set by New, then read-only.
	runs     *store.RunQueue
	handle   Handler
	options  Options
	workerID string // identifies the process in lease rows; new for each start

	// The signal channels have capacity 1: a pending signal covers all that happened before it is received.
	claimSignal  chan struct{} // the queue should be read now
	returnSignal chan struct{} // unfinished is not empty
	watchSignal  chan struct{} // the leases of the runs here should be checked now
	workers      workerPool    // goroutines that execute runs
	ring         tenantRing    // used only by the claim loop
	moreWaiting  bool          // the last claim filled all slots, so more runs wait; used only by the claim loop
	// noneForLastSlot reports that the last claim had one free slot, which only a tenant without a run here may take,
	// and found no such tenant. Used only by the claim loop.
	noneForLastSlot bool
	depths          queueDepths // counts of waiting runs by tenant; has its own locks

	unrecordedLog logLimit // limits log lines about runs whose end was not recorded

	acceptedHere atomic.Bool // a run was accepted here since the queue was last read

	// mu guards the fields down to stopping, and the field slots of each activeRun.
	mu              sync.Mutex
	liveSlots       *slotPool        // runs handed over in memory, whose callers wait
	queueSlots      *slotPool        // runs claimed from the queue; Workers+1 slots, see exceptLast
	backgroundSlots *slotPool        // runs whose caller has disconnected, and borrowed ones
	borrowers       map[db.ID]bool   // tenants with a run that lendSlot started
	lastSlotChange  time.Time        // when a queue slot was last acquired or released
	detached        map[taskKey]bool // tasks whose caller has disconnected and that have no run here yet

	running map[taskKey]*activeRun // the runs executing here, at most one for a task
	// awaitedApps are the tenants, with their limits of running tasks, that may have an awaited run in the queue
	// which found no live slot. The claim loop looks for these runs when a live slot is released.
	awaitedApps map[db.ID]int64
	unfinished  []unfinishedRun // runs to return or to give up; the lease loop works them off
	stopping    bool            // set by Drain
	// baseContext is the parent of every run's context. cancel ends it with a cause. wg counts reserved slots and
	// work that Drain waits for.
	baseContext context.Context
	cancel      context.CancelCauseFunc
	wg          sync.WaitGroup

	// suspects is the number of runs here with which workers died before. While it is not 0 no other suspect is
	// claimed.
	suspects    atomic.Int64
	lastRenewal atomic.Int64            // when the last successful renewal was sent, as nanoseconds since started
	started     time.Time               // base of the monotonic clock
	orphans     map[orphanRun]time.Time // when first seen; used only by the lease loop
	// renewing is a semaphore of capacity 1, not a mutex, so that waiting can end with a context. It guards the
	// fields below.
	renewing      chan struct{}
	renewedBefore bool // a renewal has succeeded
	released      bool // Drain has released the lease; it is not renewed any more
	lostRuns      bool // the process counted as dead and its runs are not checked yet
	configDiffers bool // a difference of configuration files was logged
}

// activeRun is a run that executes in this process.
type activeRun struct {
	// turn and attempts identify the execution: a later attempt of the same task has other values.
	turn, attempts int64
	cancel         context.CancelCauseFunc
	slots          *slotPool // the pool whose slot the run occupies; DetachCaller may change it
	borrowed       bool      // started by lendSlot; set before the run's goroutine starts
}

// taskKey identifies a task across tenants.
type taskKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

// New returns a pool whose runs are executed by handle. It starts nothing; [Pool.Open] acquires the lease and
// [Pool.Run] operates it.
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

// Open acquires this process's first lease. With alone, no other process can hold a lease (the lock on the SQLite
// file proves it): every leased run in the database is an orphan and is rescued at once instead of after StaleAfter.
func (p *Pool) Open(ctx context.Context, alone bool) error {
	if alone {
		if _, err := p.runs.RescueRuns(ctx, 0); err != nil {
			return err
		}
	}
	return p.renewLease(ctx)
}

// Run operates the claim, lease and watch loops until ctx ends. It does not stop the runs in progress; [Pool.Drain]
// does.
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

// drainGrace is how long Drain waits for runs after it has cancelled their contexts.
const drainGrace = 5 * time.Second

// Drain stops the pool: it accepts no more runs, waits until ctx ends for those in progress, cancels the rest with
// [ErrStopping] and releases the lease, which returns remaining runs to the queue without counting the attempt.
// [Pool.Run] must still be active, so that the lease is renewed meanwhile.
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
			p.options.Log.Warn("runs have not stopped after their end", "runs", p.Inflight())
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// After released is set no renewal can create the lease again: it would look like a process that died and came
	// back.
	p.renewing <- struct{}{}
	err := p.runs.ReleaseRuns(ctx, p.workerID)
	p.released = true
	<-p.renewing
	p.options.Bus.Publish(queueTopic, "")
	return err
}

// Inflight returns how many runs execute in this process.
func (p *Pool) Inflight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running)
}

// beginWork reports whether the pool accepts work, and if so makes Drain wait until p.wg.Done. It reports false while
// the pool stops and while other processes may consider its lease expired.
func (p *Pool) beginWork() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.acceptsWork() {
		return false
	}
	p.wg.Add(1)
	return true
}

// acceptsWork reports whether new runs may start. The caller holds p.mu.
func (p *Pool) acceptsWork() bool { return !p.stopping && !p.isLeaseStale() }

func (p *Pool) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}
