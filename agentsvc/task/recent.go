package task

import "stoa/agentsvc"

// recentEvents are the last events of a topic in order, for the subscriptions that have not taken them yet. An event's
// position is how many came before it since the topic began. topic.mu guards them.
type recentEvents struct {
	events []agentsvc.Event
	first  int64 // position of events[0]
	bytes  int64 // sum of their ByteSize
}

// end returns the position of the next event.
func (rs *recentEvents) end() int64 { return rs.first + int64(len(rs.events)) }

// addEvents appends events. If that exceeds maxRecentEvents or maxRecentBytes it drops the oldest until half of both is
// free.
func (rs *recentEvents) addEvents(evs []agentsvc.Event) {
	rs.events = append(rs.events, evs...)
	for _, ev := range evs {
		rs.bytes += ev.ByteSize()
	}
	if len(rs.events) <= maxRecentEvents && rs.bytes <= maxRecentBytes {
		return
	}
	n := 0
	for ; len(rs.events)-n > maxRecentEvents/2 || rs.bytes > maxRecentBytes/2; n++ {
		rs.bytes -= rs.events[n].ByteSize()
	}
	rs.first += int64(n)
	rs.events = append([]agentsvc.Event(nil), rs.events[n:]...)
}

// dropAll drops the events, which every subscription has taken. A small array is kept for the next ones.
func (rs *recentEvents) dropAll() {
	rs.first, rs.bytes = rs.end(), 0
	if clear(rs.events); cap(rs.events) > maxTakenEvents {
		rs.events = nil
	}
	rs.events = rs.events[:0]
}

// takeFrom returns the events from a position on that fit into maxTakenEvents and maxTakenBytes, at least one if there
// is any, with adjacent chunks joined, and the position behind them. dropped reports that events from that position on
// were dropped; then it returns those after them.
func (rs *recentEvents) takeFrom(position int64) (evs []agentsvc.Event, next int64, dropped bool) {
	dropped = position < rs.first
	untaken := rs.events[max(0, position-rs.first):]
	var bytes int64
	n := 0
	for ; n < min(len(untaken), maxTakenEvents); n++ {
		if bytes += untaken[n].ByteSize(); n > 0 && bytes > maxTakenBytes {
			break
		}
	}
	return joinChunks(untaken[:n]), max(position, rs.first) + int64(n), dropped
}
