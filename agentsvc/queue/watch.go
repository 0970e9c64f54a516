package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store/callcancel"
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

// watcher checks what was written about the runs here: that a lease was taken, or that a call is to be cancelled.
type watcher struct {
	requests *callcancel.Queue
	options  Options
	worker   string
	active   *activeRuns
	signal   chan struct{} // capacity 1: the runs here should be checked now
}

// receiveRunSignal handles a signal of runTopic. The empty key means that signals may have been lost and every run is
// to be checked.
func (w *watcher) receiveRunSignal(key string) {
	tenant, task, _ := strings.Cut(key, "/")
	if key == "" || w.active.find(taskKey{db.ID(tenant), agentsvc.TaskID(task)}) != nil {
		signalChannel(w.signal)
	}
}

// runLoop checks the runs here when signalled and once per claimInterval, since signals may be lost.
func (w *watcher) runLoop(ctx context.Context) {
	tick := time.NewTicker(claimInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-tick.C:
		}
		if err := w.reconcileRuns(ctx); err != nil && ctx.Err() == nil {
			w.options.Log.Warn("the leases of the executing runs could not be read", "error", err)
		}
	}
}

// reconcileRuns cancels the runs whose lease this process has lost and the tool calls that were requested to be
// cancelled.
func (w *watcher) reconcileRuns(ctx context.Context) error {
	running := w.active.copyRunning()
	if len(running) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.active.stopLost(ctx, running); err != nil {
		return err
	}
	return w.stopCancelledCalls(ctx)
}

// stopCancelledCalls cancels the tool calls whose cancellation was requested. The request is marked before the call
// ends: a caller that waits for the call's result reads the mark to distinguish a cancelled call from a finished one.
// Requests for calls that have not begun stay and are read again.
func (w *watcher) stopCancelledCalls(ctx context.Context) error {
	if w.options.Calls == nil {
		return nil
	}
	requests, err := w.requests.ListOpen(ctx, w.worker)
	if err != nil {
		return err
	}
	for _, c := range requests {
		if !w.options.Calls.HasCall(c.Tenant, c.Task, c.Call) {
			continue
		}
		if err := w.requests.MarkCancelled(ctx, c); err != nil {
			return err
		}
		w.options.Calls.StopCall(c.Tenant, c.Task, c.Call, c.Reason)
	}
	return nil
}
