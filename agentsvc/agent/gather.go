package agent

import (
	"context"
	"fmt"
	"runtime/debug"

	"stoa/agentsvc"
)

// maxAtOnce bounds the sub-agents of one agent that are at work at the same time.
const maxAtOnce = 8

// emit passes an event on and reports whether anybody still listens. The event is on record when it returns true.
type emit func(agentsvc.Event) bool

// gather runs the jobs 0 to n-1 side by side, at most [maxAtOnce] at the same time, and yields what they emit one by
// one from the caller's goroutine. It returns when all have ended: with errStopped if the consumer has broken off,
// else with the first error, which ends the others. Of those that are to end only the results of tools are yielded.
func gather(above context.Context, n int, yield func(agentsvc.Event, error) bool, job func(ctx context.Context, i int, out emit) error) error {
	ctx, cancel := context.WithCancel(above)
	defer cancel()
	type said struct {
		ev    agentsvc.Event
		heard chan bool
	}
	events, ended, places := make(chan said), make(chan error), make(chan struct{}, maxAtOnce)
	out := func(ev agentsvc.Event) bool {
		s := said{ev, make(chan bool, 1)}
		events <- s
		return <-s.heard
	}
	for i := range n {
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			ended <- guarded(func() error { return job(ctx, i, out) })
		}()
	}
	var first error
	left := false
	for n > 0 {
		select {
		case s := <-events:
			wanted := !left && (ctx.Err() == nil || s.ev.Result != nil)
			if wanted && !yield(s.ev, nil) {
				left, wanted = true, false
				cancel()
			}
			s.heard <- wanted
		case err := <-ended:
			n--
			if err != nil && first == nil {
				first = err
				cancel()
			}
		}
	}
	switch {
	case left:
		return errStopped
	case above.Err() != nil:
		return above.Err()
	}
	return first
}

// guarded turns a panic of f, which runs in a goroutine of its own, into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a sub-agent panicked with a %T\n%s", p, debug.Stack())
		}
	}()
	return f()
}
