package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// postponeDelay is the delay of a postponed run. [Pool.ResumeTenant] ends it early.
const postponeDelay = 30 * time.Second

// unfinishedRun is a run whose handler returned without a recorded end.
type unfinishedRun struct {
	run           store.Run
	returnOptions store.ReturnOptions
	exhausted     bool // the run has used its attempts: give it up
	lastBegun     bool // the last attempt was executed, so Attempts counts it
}

// unfinishedRuns are the runs that are to be returned to the queue or given up. The executor adds them, the lease
// loop works them off.
type unfinishedRuns struct {
	runs    *store.RunQueue
	options Options
	signal  chan struct{} // capacity 1: list is not empty
	failure logLimit      // limits log lines about runs whose end was not recorded

	mu   sync.Mutex // guards list
	list []unfinishedRun
}

// add adds a run and signals the heartbeat loop.
func (r *unfinishedRuns) add(u unfinishedRun) {
	r.mu.Lock()
	r.list = append(r.list, u)
	r.mu.Unlock()
	signalChannel(r.signal)
}

// addFailed adds a run that ended with err and no recorded end.
func (r *unfinishedRuns) addFailed(run store.Run, err error) { r.add(r.classifyFailure(run, err)) }

// classifyFailure decides what becomes of a run that ended with err and no recorded end: postponed and failed by an
// unavailable database are returned uncounted; exhausted ones are given up, except after [ErrStale], where the
// database could not be asked; the rest is returned with the retry delay.
func (r *unfinishedRuns) classifyFailure(run store.Run, err error) unfinishedRun {
	if errors.Is(err, ErrPostponed) {
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: postponeDelay, Uncounted: true}}
	}
	// The delay of the last allowed attempt is used beyond it too, for errors that never exhaust a run.
	_, again := r.options.Retry.NextDelay(run.Attempts)
	delay, _ := r.options.Retry.NextDelay(min(run.Attempts, int64(r.options.Retry.MaxRetries)))
	u := unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: delay, Error: err.Error()}}
	next := "the task continues after the delay, here or in another process"
	switch {
	case db.IsUnavailable(err):
		u.returnOptions = store.ReturnOptions{Delay: delay, Uncounted: true}
		next = "the task continues when the database answers, here or in another process"
	case errors.Is(err, ErrStale):
		next = "the task continues in another process, or here when the lease is renewed"
	case !again && r.options.GiveUp != nil:
		u = unfinishedRun{run: run, returnOptions: store.ReturnOptions{Error: err.Error()}, exhausted: true, lastBegun: true}
		next = "the task ends as failed: it has had all its attempts"
	}
	if omitted, ok := r.failure.allowEntry(run.Tenant, time.Now()); ok {
		r.options.Log.Error("a run ended without its end being recorded", "next", next, "tenant", run.Tenant, "task", run.Task, "attempt", run.Attempts,
			"delay", u.returnOptions.Delay.Seconds(), "omitted", omitted, "error", err)
	}
	return u
}

// returnRuns works off the list. Runs for which the database fails stay for the next call.
func (r *unfinishedRuns) returnRuns(ctx context.Context) error {
	r.mu.Lock()
	unfinished := r.list
	r.list = nil
	r.mu.Unlock()
	var errs []error
	for _, u := range unfinished {
		if err := r.returnOrGiveUp(ctx, u); err != nil {
			errs = append(errs, err)
			r.mu.Lock()
			r.list = append(r.list, u)
			r.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// returnOrGiveUp returns one run to the queue, or ends its task through [Options].GiveUp.
func (r *unfinishedRuns) returnOrGiveUp(ctx context.Context, u unfinishedRun) error {
	if !u.exhausted {
		return r.runs.ReturnRun(ctx, u.run, u.returnOptions)
	}
	// The claim counted an attempt that was not executed.
	run := u.run
	if !u.lastBegun {
		run.Attempts--
	}
	err := r.options.GiveUp(ctx, run, u.returnOptions.Error)
	if errors.Is(err, agentsvc.ErrLeaseLost) {
		return r.runs.DropRun(ctx, u.run)
	}
	return err
}
