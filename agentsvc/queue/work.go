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

// undone is a run whose handler recorded no end. It is to be given back, or given up.
type undone struct {
	run   store.Run
	back  store.Back
	over  bool // it has had its tries
	begun bool // the last of them included
}

// do runs a run that is registered as w in this process.
func (p *Pool) do(ctx context.Context, run store.Run, w *work) {
	err := p.attempt(ctx, run)
	p.mu.Lock()
	if at := (place{run.Tenant, run.Task}); p.at[at] == w {
		delete(p.at, at)
	}
	p.mu.Unlock()
	if err == nil || errors.Is(err, agentsvc.ErrLost) || errors.Is(context.Cause(ctx), ErrStopping) {
		return
	}
	p.hand(p.verdict(run, err))
}

// attempt begins a run, unless it has had its tries.
func (p *Pool) attempt(ctx context.Context, run store.Run) error {
	if p.o.GiveUp != nil && p.o.Retry.Exhausted(run.Attempts) {
		p.hand(undone{run: run, back: store.Back{Error: fmt.Sprintf("its worker died in attempt %d, the last one", run.Attempts-1)}, over: true})
		return nil
	}
	if run.Suspect() {
		p.suspects.Add(1)
		defer p.suspects.Add(-1)
	}
	err := p.guarded(ctx, run)
	if errors.Is(err, agentsvc.ErrLost) {
		p.drop(run)
	}
	return err
}

// verdict says what becomes of a run that ended with err and without a recorded end.
func (p *Pool) verdict(run store.Run, err error) undone {
	if errors.Is(err, ErrPostponed) {
		return undone{run: run, back: store.Back{Delay: postponement, Free: true}}
	}
	if omitted, ok := p.unrecorded.allow(run.Tenant, time.Now()); ok {
		p.o.Log.Error("a run ended without its end being recorded", "tenant", run.Tenant, "task", run.Task, "attempt", run.Attempts,
			"omitted", omitted, "error", err)
	}
	_, again := p.o.Retry.Next(run.Attempts)
	delay, _ := p.o.Retry.Next(min(run.Attempts, int64(p.o.Retry.Max)))
	switch {
	case db.Away(err):
		return undone{run: run, back: store.Back{Delay: delay, Free: true}}
	case !again && !errors.Is(err, ErrStale) && p.o.GiveUp != nil:
		return undone{run: run, back: store.Back{Error: err.Error()}, over: true, begun: true}
	}
	return undone{run: run, back: store.Back{Delay: delay, Error: err.Error()}}
}

// hand leaves a run to be given back.
func (p *Pool) hand(u undone) {
	p.mu.Lock()
	p.undone = append(p.undone, u)
	p.mu.Unlock()
	select {
	case p.back <- struct{}{}:
	default:
	}
}

// guarded handles run and turns a panic into an error.
func (p *Pool) guarded(ctx context.Context, run store.Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.o.Log.Error("the handler of a run panicked", "tenant", run.Tenant, "task", run.Task, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic of type %T", v)
		}
	}()
	return p.handle(ctx, run)
}

// drop ends a run that lost its task, unless somebody else has it by now.
func (p *Pool) drop(run store.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	run.Worker = p.worker
	if err := p.runs.Drop(ctx, run); err != nil {
		p.o.Log.Warn("a run that lost its task could not be dropped", "tenant", run.Tenant, "task", run.Task, "error", err)
	}
}

// giveBack returns the runs that ended without a recorded end, and gives up those that have had their tries.
func (p *Pool) giveBack(ctx context.Context) error {
	p.mu.Lock()
	back := p.undone
	p.undone = nil
	p.mu.Unlock()
	var errs []error
	for _, u := range back {
		if err := p.settle(ctx, u); err != nil {
			errs = append(errs, err)
			p.mu.Lock()
			p.undone = append(p.undone, u)
			p.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (p *Pool) settle(ctx context.Context, u undone) error {
	if !u.over {
		return p.runs.GiveBack(ctx, u.run, u.back)
	}
	run := u.run
	if !u.begun {
		run.Attempts--
	}
	switch err := p.o.GiveUp(ctx, run, u.back.Error); {
	case err == nil:
		p.o.Log.Error("a run was given up", "tenant", run.Tenant, "task", run.Task, "attempts", run.Attempts, "error", u.back.Error)
		return nil
	case errors.Is(err, agentsvc.ErrLost):
		return p.runs.Drop(ctx, u.run)
	default:
		return err
	}
}
