package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// unfinishedRun is a run whose handler returned without a recorded end. The lease loop returns it to the queue or
// gives it up.
type unfinishedRun struct {
	run           store.Run
	returnOptions store.ReturnOptions
	exhausted     bool // the run has used its attempts: give it up
	lastBegun     bool // the last attempt was executed, so Attempts counts it
}

// executeRun executes a run that is registered as w and decides what becomes of one without a recorded end. After
// [agentsvc.ErrLeaseLost] the run belongs to another process, and after [ErrStopping] Drain returns it: nothing is
// left to do.
func (p *Pool) executeRun(ctx context.Context, run store.Run, w *activeRun) {
	err := p.attemptRun(ctx, run)
	// A later attempt of the same task may have registered itself meanwhile; its entry stays.
	p.mu.Lock()
	if at := (taskKey{run.Tenant, run.Task}); p.running[at] == w {
		delete(p.running, at)
	}
	p.mu.Unlock()
	if err == nil || errors.Is(err, agentsvc.ErrLeaseLost) || errors.Is(context.Cause(ctx), ErrStopping) {
		return
	}
	p.addUnfinished(p.classifyFailure(run, err))
}

// attemptRun calls the handler, unless the run's attempts are used up: that happens when its workers died, since
// every attempt that ended by itself would have been given up at its end.
func (p *Pool) attemptRun(ctx context.Context, run store.Run) error {
	if p.options.GiveUp != nil && p.options.Retry.IsExhausted(run.Attempts) {
		p.addUnfinished(unfinishedRun{run: run, returnOptions: store.ReturnOptions{Error: fmt.Sprintf("its worker died in attempt %d, the last one", run.Attempts-1)}, exhausted: true})
		return nil
	}
	if run.IsSuspect() {
		p.suspects.Add(1)
		defer p.suspects.Add(-1)
	}
	err := p.handleSafely(ctx, run)
	if errors.Is(err, agentsvc.ErrLeaseLost) {
		p.dropRun(run)
	}
	return err
}

// classifyFailure decides what becomes of a run that ended with err and no recorded end: postponed and failed by an
// unavailable database are returned uncounted; exhausted ones are given up, except after [ErrStale], where the
// database could not be asked; the rest is returned with the retry delay.
func (p *Pool) classifyFailure(run store.Run, err error) unfinishedRun {
	if errors.Is(err, ErrPostponed) {
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: postponeDelay, Uncounted: true}}
	}
	if omitted, ok := p.unrecordedLog.allowEntry(run.Tenant, time.Now()); ok {
		p.options.Log.Error("a run ended without its end being recorded", "tenant", run.Tenant, "task", run.Task, "attempt", run.Attempts,
			"omitted", omitted, "error", err)
	}
	// The delay of the last allowed attempt is used beyond it too, for errors that never exhaust a run.
	_, again := p.options.Retry.NextDelay(run.Attempts)
	delay, _ := p.options.Retry.NextDelay(min(run.Attempts, int64(p.options.Retry.MaxRetries)))
	switch {
	case db.IsUnavailable(err):
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: delay, Uncounted: true}}
	case !again && !errors.Is(err, ErrStale) && p.options.GiveUp != nil:
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Error: err.Error()}, exhausted: true, lastBegun: true}
	}
	return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: delay, Error: err.Error()}}
}

// addUnfinished queues a run for returnRuns and signals the lease loop.
func (p *Pool) addUnfinished(u unfinishedRun) {
	p.mu.Lock()
	p.unfinished = append(p.unfinished, u)
	p.mu.Unlock()
	select {
	case p.returnSignal <- struct{}{}:
	default:
	}
}

// handleSafely calls the handler and turns a panic into an error, so that one run cannot end the process.
func (p *Pool) handleSafely(ctx context.Context, run store.Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.options.Log.Error("the handler of a run panicked", "tenant", run.Tenant, "task", run.Task, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic of type %T", v)
		}
	}()
	return p.handle(ctx, run, agentsvc.Lease{Confirm: p.confirmLease})
}

// dropRun ends the row of a run whose task no longer waits for it. The statement does nothing if the run is leased to
// another attempt by then.
func (p *Pool) dropRun(run store.Run) {
	// Not the run's context: it has ended with the lost lease.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	run.Worker = p.workerID
	if err := p.runs.DropRun(ctx, run); err != nil {
		p.options.Log.Warn("a run that lost its task could not be dropped", "tenant", run.Tenant, "task", run.Task, "error", err)
	}
}

// returnRuns works off the unfinished runs. Runs for which the database fails stay for the next call.
func (p *Pool) returnRuns(ctx context.Context) error {
	p.mu.Lock()
	unfinished := p.unfinished
	p.unfinished = nil
	p.mu.Unlock()
	var errs []error
	for _, u := range unfinished {
		if err := p.returnOrGiveUp(ctx, u); err != nil {
			errs = append(errs, err)
			p.mu.Lock()
			p.unfinished = append(p.unfinished, u)
			p.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// returnOrGiveUp returns one run to the queue, or ends its task through [Options].GiveUp.
func (p *Pool) returnOrGiveUp(ctx context.Context, u unfinishedRun) error {
	if !u.exhausted {
		return p.runs.ReturnRun(ctx, u.run, u.returnOptions)
	}
	// The claim counted an attempt that was not executed.
	run := u.run
	if !u.lastBegun {
		run.Attempts--
	}
	switch err := p.options.GiveUp(ctx, run, u.returnOptions.Error); {
	case err == nil:
		p.options.Log.Error("a run was given up", "tenant", run.Tenant, "task", run.Task, "attempts", run.Attempts, "error", u.returnOptions.Error)
		return nil
	case errors.Is(err, agentsvc.ErrLeaseLost):
		return p.runs.DropRun(ctx, u.run)
	default:
		return err
	}
}
