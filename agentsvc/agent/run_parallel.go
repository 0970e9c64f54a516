package agent

import (
	"context"
	"fmt"
	"runtime/debug"

	"stoa/agentsvc"
)

// maxParallelAgents bounds the sub-agents of one turn that do work at the same time, at all levels of nesting together.
const maxParallelAgents = 8

// agentSlots is a semaphore that all agents of a turn share: a slot for each sub-agent at work beyond the first. An
// agent whose sub-agents run only waits for them, so one of them needs no slot, and nested agents that find no free
// slot run one after the other instead of waiting for each other. A bound for each agent alone would multiply with
// each level: 8 at each of 7 levels are 2,097,152 sub-agents.
type agentSlots chan struct{}

// withAgentSlots returns inv with the slots of its turn, which the outermost agent that has sub-agents creates.
func (inv Invocation) withAgentSlots() Invocation {
	if inv.slots == nil {
		inv.slots = make(agentSlots, maxParallelAgents-1)
	}
	return inv
}

// emitFunc yields an event to the consumer. It returns false if the consumer has stopped or the job is to end. It
// blocks until the event has been processed, so an event is recorded before the effect that follows it, also from
// another goroutine.
type emitFunc func(agentsvc.Event) bool

// runParallel runs the jobs 0 to n-1 concurrently, in this order, one of them and as many others as there are free slots.
// It yields the events that they emit one by one from the caller's goroutine, since an iterator may not yield from
// another one. It returns when all jobs that it started have ended: errStopped if the consumer stopped, else the
// parent's error if that has ended, else the first error of a job, which ends the context of the others. After that
// only the results of tools are yielded, since their effects have taken place and must be recorded, and no job starts.
func runParallel(parent context.Context, slots agentSlots, n int, yield func(agentsvc.Event, error) bool, job func(ctx context.Context, i int, out emitFunc) error) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	// emission is one event on its way to the caller's goroutine, and the channel of its answer, which is buffered so
	// that the caller never blocks on a job.
	type emission struct {
		ev        agentsvc.Event
		delivered chan bool
	}
	events, ended := make(chan emission), make(chan error)
	out := func(ev agentsvc.Event) bool {
		e := emission{ev, make(chan bool, 1)}
		events <- e
		return <-e.delivered
	}
	// The jobs that are running have one slot fewer than they are.
	next, running := 0, 0
	start := func() {
		i := next
		next, running = next+1, running+1
		go func() { ended <- callSafely(func() error { return job(ctx, i, out) }) }()
	}
	var first error
	// brokenOff is set when the consumer stopped: yield must not be called again.
	brokenOff := false
	for {
		mayStart := next < n && ctx.Err() == nil
		if running == 0 {
			if !mayStart {
				break
			}
			start()
			continue
		}
		var free agentSlots // nil, which is never ready, if no further job is to start
		if mayStart {
			free = slots
		}
		select {
		case free <- struct{}{}:
			start()
		case e := <-events:
			deliver := !brokenOff && (ctx.Err() == nil || e.ev.Result != nil)
			if deliver && !yield(e.ev, nil) {
				brokenOff, deliver = true, false
				cancel()
			}
			e.delivered <- deliver
		case err := <-ended:
			if running--; running > 0 {
				<-slots // does not block: it is one of these jobs' own
			}
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
