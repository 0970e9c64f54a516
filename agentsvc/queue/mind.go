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
	topicQueue = "queue"
	topicRun   = "run"
)

// errCancelled is the cause by which a run ends whose task somebody has cancelled.
var errCancelled = fmt.Errorf("%w: %w", agentsvc.ErrLost, &agentsvc.CancelledError{})

// Stop ends the run of a task that has been taken from it because it was cancelled, in whichever process it is at work:
// here at once.
func (p *Pool) Stop(tenant db.ID, task agentsvc.TaskID) {
	p.mu.Lock()
	w := p.at[place{tenant, task}]
	p.mu.Unlock()
	if w != nil {
		w.cancel(errCancelled)
		return
	}
	p.Mind(tenant, task)
}

// Mind has the process where the run of a task is at work look what was written about it.
func (p *Pool) Mind(tenant db.ID, task agentsvc.TaskID) {
	p.o.Bus.Publish(topicRun, string(tenant)+"/"+string(task))
}

// said hears that something was said about the run of a task, or where key is "" of any.
func (p *Pool) said(key string) {
	tenant, task, _ := strings.Cut(key, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" || p.at[place{db.ID(tenant), agentsvc.TaskID(task)}] != nil {
		rouse(p.mind)
	}
}

// minding looks after the runs at work here: when somebody says so, and every now and then since that may be lost.
func (p *Pool) minding(ctx context.Context) {
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.mind:
		case <-tick.C:
		}
		if err := p.lookAfter(ctx); err != nil && ctx.Err() == nil {
			p.o.Log.Warn("it cannot be read who else has the runs at work here", "error", err)
		}
	}
}

// lookAfter ends the runs that were taken from this process and the tool calls that somebody wants to end.
func (p *Pool) lookAfter(ctx context.Context) error {
	mine := p.atWork() // before the look: what begins later cannot be missing
	if len(mine) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := p.stopLost(ctx, mine); err != nil {
		return err
	}
	return p.stopCalls(ctx)
}

// stopLost ends those of mine whose lease is not this process's any more: their task was cancelled, decided or taken
// elsewhere.
func (p *Pool) stopLost(ctx context.Context, mine map[place]*work) error {
	held, err := p.runs.Held(ctx, p.worker)
	if err != nil {
		return err
	}
	for _, run := range held {
		at := place{run.Tenant, run.Task}
		if w := mine[at]; w != nil && w.turn == run.Turn && w.attempts == run.Attempts {
			delete(mine, at)
		}
	}
	for at, w := range mine {
		if !p.has(at, w) {
			continue // it has ended meanwhile
		}
		cause := agentsvc.ErrLost
		if cancelled, err := p.runs.Cancelled(ctx, at.tenant, at.task); err == nil && cancelled {
			cause = errCancelled
		}
		w.cancel(cause)
	}
	return nil
}

func (p *Pool) atWork() map[place]*work {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.at)
}

func (p *Pool) has(at place, w *work) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[at] == w
}

// stopCalls ends the calls that somebody wants to end. That it does is on record before it is, so that whoever sees the
// call's result knows where it comes from. A call that has not begun yet is looked for again.
func (p *Pool) stopCalls(ctx context.Context) error {
	if p.o.Calls == nil {
		return nil
	}
	asked, err := p.runs.AskedCancels(ctx, p.worker)
	if err != nil {
		return err
	}
	for _, c := range asked {
		if !p.o.Calls.HasCall(c.Tenant, c.Task, c.Call) {
			continue
		}
		if err := p.runs.TakeCancel(ctx, c); err != nil {
			return err
		}
		p.o.Calls.StopCall(c.Tenant, c.Task, c.Call, c.Reason)
	}
	return nil
}

func rouse(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
