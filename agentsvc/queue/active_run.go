package queue

import (
	"context"
	"maps"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// taskKey identifies a task across tenants.
type taskKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

// activeRun is a run that executes in this process.
type activeRun struct {
	// turn and attempts identify the execution: a later attempt of the same task has other values.
	turn, attempts int64
	cancel         context.CancelCauseFunc
	// slot is the kind of slot that the run occupies. [slots].mu guards it: moveToBackground changes it, releaseRun
	// sets it to noSlot.
	slot slotKind
}

// activeRuns are the runs that execute in this process, at most one for a task. The executor adds and removes them;
// others cancel them.
type activeRuns struct {
	runs   *store.RunQueue
	worker string

	mu      sync.Mutex // guards the fields below
	running map[taskKey]*activeRun
	// unexecuted are the leased attempts that did not execute at the last round of the heartbeat loop, with the claim round
	// at which they were first seen. returned are those that it returned to the queue, with the time.
	unexecuted map[unexecutedRun]int64
	returned   map[unexecutedRun]time.Time
}

// add adds w as the task's run. An earlier execution for the same task is cancelled: it must have lost its lease, or
// this one could not exist.
func (a *activeRuns) add(at taskKey, w *activeRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(at, w)
}

// addLocked is add. The caller holds a.mu.
func (a *activeRuns) addLocked(at taskKey, w *activeRun) {
	if before := a.running[at]; before != nil {
		before.cancel(agentsvc.ErrLeaseLost)
	}
	a.running[at] = w
	// It may end before the next round looks, and is then in unfinishedRuns.
	delete(a.unexecuted, unexecutedRun{at, w.turn, w.attempts})
}

// remove removes w. A later attempt of the same task may have been added meanwhile; it stays.
func (a *activeRuns) remove(at taskKey, w *activeRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running[at] == w {
		delete(a.running, at)
	}
}

// find returns the task's run, nil if none executes here.
func (a *activeRuns) find(at taskKey) *activeRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running[at]
}

func (a *activeRuns) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.running)
}

// copyRunning returns a copy, over which a caller can iterate without mu.
func (a *activeRuns) copyRunning() map[taskKey]*activeRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.running)
}

// stopRun cancels the task's run and reports whether there is one.
func (a *activeRuns) stopRun(at taskKey, cause error) bool {
	w := a.find(at)
	if w != nil {
		w.cancel(cause)
	}
	return w != nil
}

// stopTenant cancels all runs of a tenant.
func (a *activeRuns) stopTenant(tenant db.ID, cause error) {
	for at, w := range a.copyRunning() {
		if at.tenant == tenant {
			w.cancel(cause)
		}
	}
}

func (a *activeRuns) stopAll(cause error) {
	for _, w := range a.copyRunning() {
		w.cancel(cause)
	}
}

// stopLost cancels those of running, a copy that was made before the call, that are not leased to this process any
// more, because their task was cancelled, decided or rescued elsewhere. A run that starts after the copy is not in it.
func (a *activeRuns) stopLost(ctx context.Context, running map[taskKey]*activeRun) error {
	leased, err := a.runs.ListLeasedRuns(ctx, a.worker)
	if err != nil {
		return err
	}
	for _, run := range leased {
		at := taskKey{run.Tenant, run.Task}
		if w := running[at]; w != nil && w.turn == run.Turn && w.attempts == run.Attempts {
			delete(running, at)
		}
	}
	for at, w := range running {
		if a.find(at) != w {
			continue // the run has ended meanwhile
		}
		cause := agentsvc.ErrLeaseLost
		// A failed query leaves the general cause: either one stops the run.
		if cancelled, err := a.runs.IsTaskCancelled(ctx, at.tenant, at.task); err == nil && cancelled {
			cause = errCancelled
		}
		w.cancel(cause)
	}
	return nil
}
