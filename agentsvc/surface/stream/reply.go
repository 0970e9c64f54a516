package stream

import (
	"iter"
	"slices"

	"stoa/agentsvc"
)

// replyOf returns the standalone reply that ev ends its task with, nil if it has none. A standalone reply is answered
// as an A2A message instead of a task.
func replyOf(ev agentsvc.Event) *agentsvc.Message {
	if ev.Status == nil {
		return nil
	}
	return ev.Status.StandaloneReply()
}

// deferUntilKnown yields events once it is known whether the turn is a task or a standalone reply. Until an event shows
// that it is a task, events are retained; a standalone reply drops them and yields only itself. If the events end or
// fail before that is known, the turn is reported as a task.
func deferUntilKnown(events iter.Seq2[agentsvc.Event, error]) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		// retained stays small: it contains only events for which isTaskEvent is false.
		var retained []agentsvc.Event
		known := false
		for ev, err := range events {
			switch {
			case known:
			case err == nil && replyOf(ev) != nil:
				known, retained = true, nil
			case err == nil && !isTaskEvent(ev):
				retained = append(retained, ev)
				continue
			default:
				known = true
				if slices.ContainsFunc(retained, func(before agentsvc.Event) bool { return !yield(before, nil) }) {
					return
				}
				retained = nil
			}
			if !yield(ev, err) {
				return
			}
		}
		for _, ev := range retained {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// isTaskEvent reports whether ev shows that the turn is a task: it says something, calls a tool, or reaches a state
// other than submitted and working.
func isTaskEvent(ev agentsvc.Event) bool {
	switch {
	case ev.Status != nil:
		return ev.Status.State != agentsvc.Submitted && ev.Status.State != agentsvc.Working
	case ev.Usage != nil, ev.Finding != nil, ev.Sources != nil, ev.Checkpoint != nil, ev.Attempt != nil:
		return false
	}
	return true
}
