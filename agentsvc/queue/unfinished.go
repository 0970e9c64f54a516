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

// add adds a run and signals the lease loop.
func (l *unfinishedRuns) add(u unfinishedRun) {
	l.mu.Lock()
	l.list = append(l.list, u)
	l.mu.Unlock()
	signalChannel(l.signal)
}

// addFailed adds a run that ended with err and no recorded end.
func (l *unfinishedRuns) addFailed(run store.Run, err error) { l.add(l.classifyFailure(run, err)) }

// classifyFailure decides what becomes of a run that ended with err and no recorded end: postponed and failed by an
// unavailable database are returned uncounted; exhausted ones are given up, except after [ErrStale], where the
// database could not be asked; the rest is returned with the retry delay.
func (l *unfinishedRuns) classifyFailure(run store.Run, err error) unfinishedRun {
	if errors.Is(err, ErrPostponed) {
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: postponeDelay, Uncounted: true}}
	}
	if omitted, ok := l.failure.allowEntry(run.Tenant, time.Now()); ok {
		l.options.Log.Error("a run ended without its end being recorded", "tenant", run.Tenant, "task", run.Task, "attempt", run.Attempts,
			"omitted", omitted, "error", err)
	}
	// The delay of the last allowed attempt is used beyond it too, for errors that never exhaust a run.
	_, again := l.options.Retry.NextDelay(run.Attempts)
	delay, _ := l.options.Retry.NextDelay(min(run.Attempts, int64(l.options.Retry.MaxRetries)))
	switch {
	case db.IsUnavailable(err):
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: delay, Uncounted: true}}
	case !again && !errors.Is(err, ErrStale) && l.options.GiveUp != nil:
		return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Error: err.Error()}, exhausted: true, lastBegun: true}
	}
	return unfinishedRun{run: run, returnOptions: store.ReturnOptions{Delay: delay, Error: err.Error()}}
}

// returnRuns works off the list. Runs for which the database fails stay for the next call.
func (l *unfinishedRuns) returnRuns(ctx context.Context) error {
	l.mu.Lock()
	unfinished := l.list
	l.list = nil
	l.mu.Unlock()
	var errs []error
	for _, u := range unfinished {
		if err := l.returnOrGiveUp(ctx, u); err != nil {
			errs = append(errs, err)
			l.mu.Lock()
			l.list = append(l.list, u)
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// returnOrGiveUp returns one run to the queue, or ends its task through [Options].GiveUp.
func (l *unfinishedRuns) returnOrGiveUp(ctx context.Context, u unfinishedRun) error {
	if !u.exhausted {
		return l.runs.ReturnRun(ctx, u.run, u.returnOptions)
	}
	// The claim counted an attempt that was not executed.
	run := u.run
	if !u.lastBegun {
		run.Attempts--
	}
	switch err := l.options.GiveUp(ctx, run, u.returnOptions.Error); {
	case err == nil:
		l.options.Log.Error("a run was given up", "tenant", run.Tenant, "task", run.Task, "attempts", run.Attempts, "error", u.returnOptions.Error)
		return nil
	case errors.Is(err, agentsvc.ErrLeaseLost):
		return l.runs.DropRun(ctx, u.run)
	default:
		return err
	}
}
