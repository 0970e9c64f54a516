package agent

import (
	"context"
	"fmt"
	"runtime/debug"

	"stoa/agentsvc"
)

// maxParallelAgents bounds the sub-agents of one agent that run at the same time.
const maxParallelAgents = 8

// emitFunc yields an event to the consumer. It returns false if the consumer has stopped or the job is to end. It
// blocks until the event has been processed, so an event is recorded before the effect that follows it, also from
// another goroutine.
type emitFunc func(agentsvc.Event) bool

// runParallel runs the jobs 0 to n-1 concurrently, at most [maxParallelAgents] at a time, and yields the events that
// they emit one by one from the caller's goroutine, since an iterator may not yield from another one. It returns when
// all jobs have ended: errStopped if the consumer stopped, else the parent's error if that has ended, else the first
// error of a job, which ends the context of the others. After that only the results of tools are yielded: their effects
// have taken place and must be recorded.
func runParallel(parent context.Context, n int, yield func(agentsvc.Event, error) bool, job func(ctx context.Context, i int, out emitFunc) error) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	// messages is one event on its way to the caller's goroutine, and the channel of its answer, which is buffered so
	// that the caller never blocks on a job.
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
			// Not bound to ctx: jobs that wait for a slot start after the others ended and fail at their first emit.
			slots <- struct{}{}
			defer func() { <-slots }()
			ended <- callSafely(func() error { return job(ctx, i, out) })
		}()
	}
	var first error
	// brokenOff is set when the consumer stopped: yield must not be called again.
	brokenOff := false
	// n is the number of jobs that have not ended.
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

// callSafely calls f and returns its panic as an error with the stack. A panic in a job's own goroutine would otherwise
// end the process, and with it the turns of all tenants.
func callSafely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a sub-agent panicked with a %T\n%s", p, debug.Stack())
		}
	}()
	return f()
}
