package surface

import (
	"iter"
	"slices"

	"stoa/agentsvc"
)

// replyOf returns the message that ev ends a task with and that stands alone, nil where it does neither.
func replyOf(ev agentsvc.Event) *agentsvc.Message {
	if ev.Status == nil {
		return nil
	}
	return ev.Status.StandaloneReply()
}

// encodeReplyEvent returns the body that tells of the message of ev alone.
func (d StreamEncoder) encodeReplyEvent(ev agentsvc.Event) any { return d.EncodeReply(*replyOf(ev)) }

// deferUntilKnown yields events from when it is known what they tell of. A task shows by what its agent says or does before its last word;
// of a message that stands alone only the end is yielded. What breaks off before is told as of a task.
func deferUntilKnown(events iter.Seq2[agentsvc.Event, error]) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
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

// isTaskEvent reports whether ev shows that an answer does not stand alone.
func isTaskEvent(ev agentsvc.Event) bool {
	switch {
	case ev.Status != nil:
		return ev.Status.State != agentsvc.Submitted && ev.Status.State != agentsvc.Working
	case ev.Usage != nil, ev.Finding != nil, ev.Checkpoint != nil:
		return false
	}
	return true
}
