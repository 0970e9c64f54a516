package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/callcancel"
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
// between retry and giving up. [agentsvc.ErrLeaseLost] means that the run belongs to this process no longer. That of a
// server is executeRun of server.Execution, which selects the app's runtime and calls runner.Runner.Run.
type Handler func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error

// Pool is the set of workers of one process. It only connects its parts (see the package comment); each of them
// guards its own state.
type Pool struct {
	runs       *store.RunQueue
	options    Options
	active     *activeRuns
	executor   *executor
	heartbeat  *heartbeater
	claimer    *claimer
	watcher    *watcher
	unfinished *unfinishedRuns
	depths     *queueDepths
	returned   atomic.Int64 // see Returned
}

// New returns a pool that executes the runs in d by handle. It starts nothing; [Pool.Open] writes the first heartbeat and
// [Pool.Run] renews it.
func New(d *db.DB, handle Handler, o Options) *Pool {
	o = o.withDefaults()
	runs := store.NewRunQueue(d)
	worker := o.Worker
	base, cancel := context.WithCancelCause(context.Background())
	wake, awaited := newClaimSignal(), &awaitedApps{apps: map[db.ID]int64{}}
	active := &activeRuns{runs: runs, worker: worker, running: map[taskKey]*activeRun{}, returned: map[unexecutedRun]time.Time{}}
	unfinished := &unfinishedRuns{runs: runs, options: o, signal: make(chan struct{}, 1)}
	heartbeat := &heartbeater{
		runs: runs, options: o, worker: worker, base: base, active: active, unfinished: unfinished, wake: wake,
		started: time.Now(), renewing: make(chan struct{}, 1),
	}
	executor := &executor{
		runs: runs, handle: handle, options: o, worker: worker, active: active, slots: newSlots(o), heartbeat: heartbeat, unfinished: unfinished,
		awaited: awaited, wake: wake, goroutines: make(workerPool), base: base, cancel: cancel,
	}
	claimer := &claimer{
		runs: runs, options: o, worker: worker, executor: executor, slots: executor.slots, awaited: awaited, wake: wake,
		ring: tenantRing{runs: runs, worker: worker}, detached: map[taskKey]bool{},
	}
	heartbeat.claimRounds = &claimer.rounds
	return &Pool{
		runs: runs, options: o, active: active, executor: executor, heartbeat: heartbeat, unfinished: unfinished, claimer: claimer,
		watcher: &watcher{requests: callcancel.NewQueue(d), options: o, worker: worker, active: active, signal: make(chan struct{}, 1)},
		depths:  &queueDepths{count: runs.CountWaiting, apps: map[db.ID]*tenantDepth{}},
	}
}

// Open writes this process's first heartbeat. With alone, no other process can hold a lease (the lock on the SQLite file
// proves it): every leased run in the database has no living worker and is rescued at once instead of after StaleAfter.
func (p *Pool) Open(ctx context.Context, alone bool) error {
	if alone {
		if _, _, err := p.runs.RescueRuns(ctx, 0); err != nil {
			return err
		}
	}
	return p.heartbeat.writeHeartbeat(ctx)
}

// Run operates the claim, heartbeat and watch loops until ctx ends. It does not stop the runs in progress; [Pool.Drain]
// does.
func (p *Pool) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.heartbeat.runLoop(ctx) })
	wg.Go(func() { p.claimer.runLoop(ctx) })
	wg.Go(func() { p.watcher.runLoop(ctx) })
	defer p.options.Bus.WatchTopic(queueTopic, func(string) { p.claimer.wake.signal() })()
	defer p.options.Bus.WatchTopic(runTopic, p.watcher.receiveRunSignal)()
	wg.Wait()
	return nil
}

// BeginDrain is the first step of a shutdown: from now on a turn is only accepted if its run starts here at once, see
// [Pool.BeginTurn]. A pool that only accepts continues to leave its turns to the other processes.
func (p *Pool) BeginDrain() { p.executor.draining.Store(true) }

// BeginTurn makes Drain wait for a turn that is being accepted, until end is called. mustStart reports that the pool
// drains: the turn's run needs a slot here, because the queue may not be read again before the next start. It returns
// [agentsvc.ErrStopping] once Drain has stopped the pool.
func (p *Pool) BeginTurn() (mustStart bool, end func(), err error) {
	if !p.executor.work.begin() {
		return false, nil, agentsvc.ErrStopping
	}
	return p.executor.draining.Load() && !p.options.AcceptOnly, p.executor.endWork, nil
}

// Drain stops the pool: it accepts no more turns and runs, waits until ctx ends for those in progress, cancels the rest with
// [ErrStopping] and deletes the heartbeat, which returns remaining runs to the queue without counting the attempt.
// [Pool.Run] must still be active, so that the heartbeat is renewed meanwhile.
func (p *Pool) Drain(ctx context.Context) error {
	p.executor.stop(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	n, err := p.heartbeat.releaseRuns(ctx)
	p.returned.Add(n)
	p.options.Bus.Publish(queueTopic, "")
	return err
}

// Returned returns how many runs Drain has returned to the queue.
func (p *Pool) Returned() int64 { return p.returned.Load() }

// Inflight returns how many runs execute in this process.
func (p *Pool) Inflight() int { return p.active.count() }

// AcquireSlot reserves a live slot for a run of the tenant whose caller waits, and returns the worker id to lease the
// run to. ok is false where no slot is free for the tenant, while the pool stops and while the heartbeat is stale. The
// caller must then call StartRun or ReleaseSlot.
func (p *Pool) AcquireSlot(app db.ID) (worker string, ok bool) {
	if !p.executor.acquireLiveSlot(app) {
		return "", false
	}
	return p.executor.worker, true
}

// ReleaseSlot releases a slot that AcquireSlot reserved and no run was started in.
func (p *Pool) ReleaseSlot(app db.ID) {
	p.executor.releaseLiveSlot(app)
	p.executor.signalFreeSlot(true)
}

// StartRun executes a run in the slot that AcquireSlot reserved. It does not wait for it. If the answer to the run's
// commit took so long that the run was returned to the queue, it is left there and the slot is released.
func (p *Pool) StartRun(run store.Run) {
	if !p.executor.startAccepted(run) {
		p.ReleaseSlot(run.Tenant)
	}
}

// DetachCaller reports that the caller who waited for a task disconnected before its end. The run continues: one that
// executes moves to a background slot if the tenant may have one, so that the live slot is free for a waiting caller;
// a queued one loses its priority.
func (p *Pool) DetachCaller(app db.ID, task agentsvc.TaskID) {
	p.claimer.detachCaller(taskKey{app, task})
}

// AcquireQueueEntry acquires an entry of the tenant's queue, whose limit is most, for a run that is about to be
// written. done must be called with whether it was written. It returns an error with [agentsvc.CodeExhausted] where the
// queue is full.
func (p *Pool) AcquireQueueEntry(ctx context.Context, tenant db.ID, most int64) (done func(written bool), err error) {
	return p.depths.acquireEntry(ctx, tenant, most)
}

// NotifyQueued reports that a turn was written whose run is pending. An awaited run, or one of a tenant with a limit of
// running tasks, gets the next live slot that becomes free.
func (p *Pool) NotifyQueued(turn store.NewTurn) {
	if turn.Priority == store.PriorityAwaited || turn.MaxRunning > 0 {
		p.claimer.awaited.add(turn.Tenant, turn.MaxRunning)
	}
	p.WakeClaimers()
}

// WakeClaimers makes the claim loop read the queue now; where no worker is free here, the other processes read it
// too.
func (p *Pool) WakeClaimers() { p.claimer.wake.signalAccepted() }

// StopRun cancels the run of a cancelled task: at once if it executes here, else by a signal to the other processes.
// The cancellation has already raised the task's epoch, so this only saves work.
func (p *Pool) StopRun(tenant db.ID, task agentsvc.TaskID) {
	if !p.active.stopRun(taskKey{tenant, task}, errCancelled) {
		p.NotifyRunChanged(tenant, task)
	}
}

// NotifyRunChanged makes the process that executes the task's run check what was written about it.
func (p *Pool) NotifyRunChanged(tenant db.ID, task agentsvc.TaskID) {
	p.options.Bus.Publish(runTopic, string(tenant)+"/"+string(task))
}

// StopTenant cancels all runs of a tenant here with [ErrPostponed]. They return to the queue and continue when the
// tenant is active again.
func (p *Pool) StopTenant(tenant db.ID) { p.active.stopTenant(tenant, ErrPostponed) }

// ResumeTenant makes the postponed runs of a tenant claimable now instead of after postponeDelay.
func (p *Pool) ResumeTenant(tenant db.ID) {
	ctx, cancel := context.WithTimeout(p.executor.base, 5*time.Second)
	defer cancel()
	if err := p.runs.ExpediteRuns(ctx, tenant); err != nil {
		p.options.Log.Warn("the postponed runs of a tenant could not be made claimable now; they continue after their delay", "tenant", tenant, "error", err)
		return
	}
	p.WakeClaimers()
}
