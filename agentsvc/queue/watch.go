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

// The topics of signals between pools: a run waits in the queue (without a key), and something was said about the run
// of a task (tenant and task with a slash between them).
const (
	queueTopic = "queue"
	runTopic   = "run"
)

// errCancelled is the cause by which a run ends whose task somebody has cancelled.
var errCancelled = fmt.Errorf("%w: %w", agentsvc.ErrLeaseLost, &agentsvc.CallCancelledError{})

// StopRun ends the run of a task that has been taken from it because it was cancelled, in whichever process it is at work:
// here at once.
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

// NotifyRunChanged has the process where the run of a task is at work look what was written about it.
func (p *Pool) NotifyRunChanged(tenant db.ID, task agentsvc.TaskID) {
	p.options.Bus.Publish(runTopic, string(tenant)+"/"+string(task))
}

// receiveRunSignal hears that something was said about the run of a task, or where key is "" of any.
func (p *Pool) receiveRunSignal(key string) {
	tenant, task, _ := strings.Cut(key, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" || p.running[taskKey{db.ID(tenant), agentsvc.TaskID(task)}] != nil {
		signalChannel(p.watchSignal)
	}
}

// runWatchLoop looks after the runs at work here: when somebody says so, and every now and then since that may be lost.
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
			p.options.Log.Warn("it cannot be read who else has the runs at work here", "error", err)
		}
	}
}

// reconcileRuns ends the runs that were taken from this process and the tool calls that somebody wants to end.
func (p *Pool) reconcileRuns(ctx context.Context) error {
	running := p.copyRunning() // before the look: what begins later cannot be missing
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

// stopLostRuns ends those of mine whose lease is not this process's any more: their task was cancelled, decided or taken
// elsewhere.
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
			continue // it has ended meanwhile
		}
		cause := agentsvc.ErrLeaseLost
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

func (p *Pool) isCurrent(at taskKey, w *activeRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[at] == w
}

// stopCancelledCalls ends the calls that somebody wants to end. That it does is on record before it is, so that whoever sees the
// call's result knows where it comes from. A call that has not begun yet is looked for again.
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

func signalChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
