package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// executor executes runs that have a slot, each on a goroutine of its own, until it is stopped.
type executor struct {
	runs       *store.RunQueue
	handle     Handler
	options    Options
	worker     string
	active     *activeRuns
	slots      *slots
	heartbeat  *heartbeater
	unfinished *unfinishedRuns
	awaited    *awaitedApps
	wake       *claimSignal
	goroutines workerPool

	// base is the parent of every run's context. cancel ends it with a cause.
	base   context.Context
	cancel context.CancelCauseFunc

	work workGroup // reserved slots, runs, claims and turns being accepted, which stop waits for
	// draining is set by [Pool.BeginDrain] and never reset.
	draining atomic.Bool

	// suspects is the number of runs here with which workers died before. While it is not 0 no other suspect is
	// claimed.
	suspects atomic.Int64
}

// beginWork reports whether the executor accepts work, and if so makes stop wait until endWork. It reports false
// while the executor stops and while other processes may consider this one dead.
func (e *executor) beginWork() bool { return !e.heartbeat.isStale() && e.work.begin() }

// endWork must follow a beginWork that returned true.
func (e *executor) endWork() { e.work.wg.Done() }

// drainGrace is how long stop waits for runs after it has cancelled their contexts.
const drainGrace = 5 * time.Second

// stop accepts no more work, waits until ctx ends for the work in progress and cancels the rest with [ErrStopping].
func (e *executor) stop(ctx context.Context) {
	done := e.work.stop()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	e.cancel(ErrStopping)
	select {
	case <-done:
	case <-time.After(drainGrace):
		e.options.Log.Warn("runs have not stopped after they were cancelled", "runs", e.active.count())
	}
}

// acquireLiveSlot reserves a live slot for a run of the tenant and reports whether there is one. startRun,
// startAccepted or releaseLiveSlot must follow.
func (e *executor) acquireLiveSlot(app db.ID) bool {
	if e.options.AcceptOnly || !e.beginWork() {
		return false
	}
	if !e.slots.tryAcquireLive(app) {
		e.endWork()
		return false
	}
	return true
}

// releaseLiveSlot releases a slot of acquireLiveSlot in which no run was started.
func (e *executor) releaseLiveSlot(app db.ID) {
	e.slots.release(app, liveSlot)
	e.endWork()
}

// signalFreeSlot signals the claim loop that a slot became free, if a queued run may want it: a live slot only serves
// awaited runs.
func (e *executor) signalFreeSlot(live bool) {
	if !live || !e.awaited.isEmpty() {
		e.wake.signal()
	}
}

// startClaimed executes a run that the claim loop has claimed, in a slot of a kind that it found free. The caller is
// between beginWork and endWork.
func (e *executor) startClaimed(run store.Run, kind slotKind) {
	e.slots.acquire(run.Tenant, kind)
	e.work.wg.Add(1)
	e.startRun(run, kind)
}

// startRun executes a run that already occupies a slot. It does not wait for it.
func (e *executor) startRun(run store.Run, kind slotKind) {
	ctx, at, w := e.newActiveRun(run, kind)
	e.active.add(at, w)
	e.spawnAttempt(ctx, run, at, w)
}

// startAccepted executes a run in the slot of acquireLiveSlot that it was written with. It reports false if the
// heartbeat has returned the run to the queue meanwhile; nothing is started then.
func (e *executor) startAccepted(run store.Run) bool {
	ctx, at, w := e.newActiveRun(run, liveSlot)
	if !e.active.addAccepted(at, w) {
		w.cancel(nil)
		return false
	}
	e.spawnAttempt(ctx, run, at, w)
	return true
}

// newActiveRun returns the registration of a run and the context that it cancels.
func (e *executor) newActiveRun(run store.Run, kind slotKind) (context.Context, taskKey, *activeRun) {
	ctx, cancel := context.WithCancelCause(e.base)
	return ctx, taskKey{run.Tenant, run.Task}, &activeRun{turn: run.Turn, attempts: run.Attempts, cancel: cancel, slot: kind}
}

// spawnAttempt executes a run that is registered as w on a goroutine, by attemptRun.
func (e *executor) spawnAttempt(ctx context.Context, run store.Run, at taskKey, w *activeRun) {
	e.goroutines.runFunc(func() {
		defer e.endWork()
		defer func() {
			w.cancel(nil)
			e.signalFreeSlot(e.slots.releaseRun(run.Tenant, w) == liveSlot)
		}()
		e.attemptRun(ctx, run, at, w)
	})
}

// attemptRun executes a run that is registered as w, by callHandler, and decides what becomes of one without a recorded
// end: unfinishedRuns returns it to the queue or gives it up. After
// [agentsvc.ErrLeaseLost] the run belongs to another process, and after [ErrStopping] Drain returns it: nothing is
// left to do.
func (e *executor) attemptRun(ctx context.Context, run store.Run, at taskKey, w *activeRun) {
	err := e.callHandler(ctx, run)
	e.active.remove(at, w)
	if err == nil || errors.Is(err, agentsvc.ErrLeaseLost) || errors.Is(context.Cause(ctx), ErrStopping) {
		return
	}
	e.unfinished.addFailed(run, err)
}

// callHandler calls the handler, unless the run's attempts are used up: that happens when its workers died, since
// every attempt that ended by itself would have been given up at its end.
func (e *executor) callHandler(ctx context.Context, run store.Run) error {
	if e.options.GiveUp != nil && e.options.Retry.IsExhausted(run.Attempts) {
		e.unfinished.add(unfinishedRun{run: run, returnOptions: store.ReturnOptions{Error: fmt.Sprintf("its worker died in attempt %d, the last one", run.Attempts-1)}, exhausted: true})
		return nil
	}
	if run.IsSuspect() {
		e.suspects.Add(1)
		defer e.suspects.Add(-1)
	}
	err := e.handleSafely(ctx, run)
	if errors.Is(err, agentsvc.ErrLeaseLost) {
		e.dropRun(run)
	}
	return err
}

// handleSafely calls the handler and turns a panic into an error, so that one run cannot end the process.
func (e *executor) handleSafely(ctx context.Context, run store.Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			e.options.Log.Error("the handler of a run panicked", "tenant", run.Tenant, "task", run.Task, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic of type %T", v)
		}
	}()
	return e.handle(ctx, run, agentsvc.LeaseCheck{Confirm: e.heartbeat.confirmHeartbeat})
}

// dropRun ends the row of a run whose task no longer waits for it. The statement does nothing if the run is leased to
// another attempt by then, or if its task waits: the run then belongs to a later execution here, or returnUnexecuted
// returns it.
func (e *executor) dropRun(run store.Run) {
	// Not the run's context: it has ended with the lost lease.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	run.Worker = e.worker
	if err := e.runs.DropRun(ctx, run); err != nil {
		e.options.Log.Warn("a run that lost its task could not be dropped", "tenant", run.Tenant, "task", run.Task, "error", err)
	}
}
