package queue

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Topics of signals between the pools of different processes. queueTopic (no key) means that a run waits in the
// queue; runTopic (key "tenant/task") means that something about the task's run was written: its lease was taken, or
// a call is to be cancelled.
const (
	queueTopic = "queue"
	runTopic   = "run"
)

// errCancelled is the cause of a run's context when its task was cancelled. It is an [agentsvc.ErrLeaseLost], so the
// run writes nothing more, and a [agentsvc.CallCancelledError], so that tools can distinguish it from other stops.
var errCancelled = fmt.Errorf("%w: %w", agentsvc.ErrLeaseLost, &agentsvc.CallCancelledError{})

// StopRun cancels the run of a cancelled task: at once if it executes here, else by a signal to the other processes.
// The cancellation has already raised the task's epoch, so this only saves work.
func (p *Pool) StopRun(tenant db.ID, task agentsvc.TaskID) {
	p.mu.Lock()
	w := p.running[taskKey{tenant, task}]
	p.mu.Unlock()
	if w != nil {
		w.cancel(errCancelled)
		return
	}
	p.NotifyRunChanged(tenant, task)
}

// NotifyRunChanged makes the process that executes the task's run check what was written about it.
func (p *Pool) NotifyRunChanged(tenant db.ID, task agentsvc.TaskID) {
	p.options.Bus.Publish(runTopic, string(tenant)+"/"+string(task))
}

// receiveRunSignal handles a signal of runTopic. The empty key means that signals may have been lost and every run is
// to be checked.
func (p *Pool) receiveRunSignal(key string) {
	tenant, task, _ := strings.Cut(key, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" || p.running[taskKey{db.ID(tenant), agentsvc.TaskID(task)}] != nil {
		signalChannel(p.watchSignal)
	}
}

// runWatchLoop checks the runs here when signalled and once per claimInterval, since signals may be lost.
func (p *Pool) runWatchLoop(ctx context.Context) {
	tick := time.NewTicker(claimInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.watchSignal:
		case <-tick.C:
		}
		if err := p.reconcileRuns(ctx); err != nil && ctx.Err() == nil {
			p.options.Log.Warn("the owners of this process's runs cannot be read", "error", err)
		}
	}
}

// reconcileRuns cancels the runs whose lease this process has lost and the tool calls that were requested to be
// cancelled.
func (p *Pool) reconcileRuns(ctx context.Context) error {
	running := p.copyRunning() // before the query: a run that starts later is not in the copy
	if len(running) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := p.stopLostRuns(ctx, running); err != nil {
		return err
	}
	return p.stopCancelledCalls(ctx)
}

// stopLostRuns cancels those of running that are not leased to this process any more, because their task was
// cancelled, decided or rescued elsewhere. It removes the others from the map.
func (p *Pool) stopLostRuns(ctx context.Context, running map[taskKey]*activeRun) error {
	leased, err := p.runs.ListLeasedRuns(ctx, p.workerID)
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
		if !p.isCurrent(at, w) {
			continue // the run has ended meanwhile
		}
		cause := agentsvc.ErrLeaseLost
		// A failed query leaves the general cause: either one stops the run.
		if cancelled, err := p.runs.IsTaskCancelled(ctx, at.tenant, at.task); err == nil && cancelled {
			cause = errCancelled
		}
		w.cancel(cause)
	}
	return nil
}

func (p *Pool) copyRunning() map[taskKey]*activeRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.running)
}

// isCurrent reports whether w still is the task's run here.
func (p *Pool) isCurrent(at taskKey, w *activeRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[at] == w
}

// stopCancelledCalls cancels the tool calls whose cancellation was requested. The request is marked before the call
// ends: a caller that waits for the call's result reads the mark to distinguish a cancelled call from a finished one.
// Requests for calls that have not begun stay and are read again.
func (p *Pool) stopCancelledCalls(ctx context.Context) error {
	if p.options.Calls == nil {
		return nil
	}
	requests, err := p.runs.ListCallCancels(ctx, p.workerID)
	if err != nil {
		return err
	}
	for _, c := range requests {
		if !p.options.Calls.HasCall(c.Tenant, c.Task, c.Call) {
			continue
		}
		if err := p.runs.MarkCallCancelled(ctx, c); err != nil {
			return err
		}
		p.options.Calls.StopCall(c.Tenant, c.Task, c.Call, c.Reason)
	}
	return nil
}

// signalChannel sends a signal to a channel of capacity 1, unless one is pending already.
func signalChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
