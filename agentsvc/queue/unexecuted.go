package queue

import (
	"context"
	"time"

	"stoa/agentsvc/store"
)

// unexecutedRun identifies an attempt that is leased to this process but does not execute here: it is just being
// started, or the transaction that leased it committed although its caller saw an error.
type unexecutedRun struct {
	taskKey
	turn, attempts int64
}

// returnedFor is how long activeRuns remembers a returned attempt: longer than any turn takes to be accepted.
const returnedFor = 5 * time.Minute

// returnUnexecuted returns the runs that are leased to this process and that no one starts. The process renews its
// heartbeat, so no other process would ever rescue them. A run is returned when two rounds of the heartbeat loop saw the same
// attempt and the claim that was in progress at the first one has ended. An acceptance may still be waiting for the
// answer to its commit; it then starts nothing (activeRuns.addAccepted). The attempt does not count.
func (h *heartbeater) returnUnexecuted(ctx context.Context) error {
	leased, err := h.runs.ListLeasedRuns(ctx, h.worker)
	// Once the runs are cancelled with ErrStopping, Drain returns them as interrupted.
	if err != nil || h.base.Err() != nil {
		return err
	}
	// Read after the query: each claim that the query saw has ended, or is the one in progress.
	for _, run := range h.active.findUnexecuted(leased, h.claimRounds.Load()) {
		h.options.Log.Warn("returned a run that is leased to this process and does not execute", "tenant", run.Tenant, "task", run.Task)
		if err := h.runs.ReturnRun(ctx, run, store.ReturnOptions{Uncounted: true}); err != nil {
			return err
		}
		h.wake.signalAccepted()
	}
	return nil
}

// findUnexecuted returns those of leased, the runs that are leased to this process, that are to be returned: they do
// not execute, and did not since an earlier call with a smaller claimRound. From now on addAccepted refuses them.
func (a *activeRuns) findUnexecuted(leased []store.Run, claimRound int64) (orphans []store.Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, at := range a.returned {
		if time.Since(at) > returnedFor {
			delete(a.returned, key)
		}
	}
	seen := map[unexecutedRun]int64{}
	for _, run := range leased {
		key := unexecutedRun{taskKey{run.Tenant, run.Task}, run.Turn, run.Attempts}
		if w := a.running[key.taskKey]; w != nil && w.turn == key.turn && w.attempts == key.attempts {
			continue
		}
		first, ok := a.unexecuted[key]
		if !ok {
			first = claimRound
		}
		if seen[key] = first; first < claimRound {
			a.returned[key] = time.Now()
			orphans = append(orphans, run)
		}
	}
	a.unexecuted = seen
	return orphans
}

// addAccepted is add for a run that was accepted in a slot. It reports false, and adds nothing, if findUnexecuted
// has returned the run to the queue meanwhile.
func (a *activeRuns) addAccepted(at taskKey, w *activeRun) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := unexecutedRun{at, w.turn, w.attempts}
	if _, returned := a.returned[key]; returned {
		delete(a.returned, key)
		return false
	}
	a.addLocked(at, w)
	return true
}
