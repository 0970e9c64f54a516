package agent

import (
	"context"
	"fmt"
	"runtime/debug"

	"stoa/agentsvc"
)

// maxParallelAgents bounds the sub-agents of one agent that are at work at the same time.
const maxParallelAgents = 8

// emitFunc passes an event on and reports whether anybody still listens. The event is on record when it returns true.
type emitFunc func(agentsvc.Event) bool

// runParallel runs the jobs 0 to n-1 side by side, at most [maxParallelAgents] at the same time, and yields what they emit one by
// one from the caller's goroutine. It returns when all have ended: with errStopped if the consumer has broken off,
// else with the first error, which ends the others. Of those that are to end only the results of tools are yielded.
func runParallel(parent context.Context, n int, yield func(agentsvc.Event, error) bool, job func(ctx context.Context, i int, out emitFunc) error) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	type messages struct {
		ev    agentsvc.Event
		heard chan bool
	}
	events, ended, slots := make(chan messages), make(chan error), make(chan struct{}, maxParallelAgents)
	out := func(ev agentsvc.Event) bool {
		s := messages{ev, make(chan bool, 1)}
		events <- s
		return <-s.heard
	}
	for i := range n {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ended <- callSafely(func() error { return job(ctx, i, out) })
		}()
	}
	var first error
	brokenOff := false
	for n > 0 {
		select {
		case s := <-events:
			deliver := !brokenOff && (ctx.Err() == nil || s.ev.Result != nil)
			if deliver && !yield(s.ev, nil) {
				brokenOff, deliver = true, false
				cancel()
			}
			s.heard <- deliver
		case err := <-ended:
			n--
			if err != nil && first == nil {
				first = err
				cancel()
			}
		}
	}
	switch {
	case brokenOff:
		return errStopped
	case parent.Err() != nil:
		return parent.Err()
	}
	return first
}

// callSafely turns a panic of f, which runs in a goroutine of its own, into an error.
func callSafely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a sub-agent panicked with a %T\n%s", p, debug.Stack())
		}
	}()
	return f()
}
