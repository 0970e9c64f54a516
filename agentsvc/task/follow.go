package task

import (
	"context"
	"iter"
	"math"
	"runtime"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

const (
	// pageEvents and pageBytes bound one page read from the log. A slow reader keeps its page in memory until it has
	// taken it, so the page must be small.
	pageEvents = 256
	pageBytes  = 64 << 10
	// While the task executes in another process the log is polled: after firstPollInterval, then twice as long each
	// time up to maxPollInterval.
	firstPollInterval = 50 * time.Millisecond
	maxPollInterval   = time.Second
	// While the task executes in this process the hub delivers every event; another process may still end the task
	// (cancel, rescue).
	localPollInterval = 10 * time.Second
	// The readers of a tenant beyond unpacedReaders share a number of takes a second: each waits for readerPause times
	// their number between two, and gets the deltas of that time as one. So thousands of readers of one tenant take a
	// bounded part of the processors, whatever is written.
	unpacedReaders = 128
	readerPause    = 300 * time.Microsecond // divided by the number of processors
)

// logReader reads and follows the logs of one tenant's tasks.
type logReader struct {
	events *store.Events
	tenant db.ID
	hub    *Hub
}

// follow returns the events of a task after a sequence: first those on the log, then new ones. What it reads of the log
// is reserved as parts of memory.
func (l *logReader) follow(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, after int64) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		r := l.hub.subscribe(topicKey{l.tenant, id}, after)
		defer r.close()
		r.endIfTenantEnded(ctx)
		r.followRemote()
		l.stream(ctx, memory, r, id, after, true, yield)
	}
}

// stream yields the facts after sequence last, in order and without gaps, and the chunks between them, until
// the task ends. With look it begins with the log; without, a run of this process has begun or is about to, and
// delivers its events through r.
//
// Two sources feed a reader: the task's recent events, which are fast but may be dropped, and the log, which is complete.
// The cursor discards what was yielded already and detects gaps; a gap, dropped events or a signal of another process
// make it read the log. While no run of this process writes, the hub follows other processes
// (followRemote), and the log is polled in case their signals are lost.
func (l *logReader) stream(ctx context.Context, memory *capacity.MemoryReservation, r *subscription, id agentsvc.TaskID, last int64, look bool, yield func(agentsvc.Event, error) bool) {
	c := cursor{lastSeq: last, sentBytes: map[agentsvc.MessageID]int{}}
	wait, here := firstPollInterval, !look
	for {
		before := c.lastSeq
		n := r.takeNews()
		// rest are taken events before which facts are missing: the log has them.
		rest, more := c.yieldEvents(n.events, func() []agentsvc.Event { return r.takePaced(ctx) }, nil, yield)
		if !more || (look || rest != nil || n.lagged || n.signaled) && !l.read(ctx, memory, r, rest, id, &c, yield) {
			return
		}
		// Events of the other process before followRemote took effect were not signalled: read the log once more.
		if !n.hasLocalWriter && !here && r.followRemote() {
			look = true
			continue
		}
		switch {
		case n.signaled:
			wait = maxPollInterval // the other process signals its writes, so polling is only a safeguard
		case len(n.events) > 0 || c.lastSeq > before:
			wait = firstPollInterval
		}
		d := wait
		if n.hasLocalWriter {
			d = localPollInterval
		}
		if n.endErr != nil {
			yield(agentsvc.Event{}, n.endErr)
			return
		}
		var err error
		if look, err = waitForWake(ctx, r.wake, d); err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
		// here ends when the local run has begun (hasLocalWriter reports it from then on) or when nothing came in time.
		here = here && !look && !n.hasLocalWriter
		if look {
			wait = min(2*wait, maxPollInterval)
		}
	}
}

// read yields what the log holds after c, in order with the events taken before and those that r, which may be nil,
// receives meanwhile. It reports whether more may follow; after an error, which it yields, it reports false.
func (l *logReader) read(ctx context.Context, memory *capacity.MemoryReservation, r *subscription, taken []agentsvc.Event, id agentsvc.TaskID, c *cursor, yield func(agentsvc.Event, error) bool) bool {
	// The factor 2 covers a page as read and as encoded text, until its facts are yielded.
	page := memory.NewPart(2)
	defer page.ReleaseBytes()
	for behind := false; ; behind = true {
		page.ReleaseBytes()
		// The previous page was yielded: its memory is free.
		facts, full, err := l.loadPage(ctx, page, id, c.lastSeq, behind)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return false
		}
		// Any chunk that precedes these facts was published before they were committed, so r can take it by now.
		var more bool
		if taken, more = c.yieldEvents(taken, func() []agentsvc.Event { return r.takePaced(ctx) }, facts, yield); !more {
			return false
		}
		if !full && (taken == nil || len(facts) == 0) {
			return true // if taken events are left, the facts before them were deleted with their task
		}
	}
}

// loadPage reads the page of the log after a sequence. A reader's first page is read at once. Further pages (behind)
// need one of the hub's catch-up slots, so that many readers with long logs to read leave processors to other
// requests.
func (l *logReader) loadPage(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, after int64, behind bool) ([]agentsvc.Event, bool, error) {
	if behind {
		select {
		case l.hub.catchUpSlots <- struct{}{}:
			defer func() { <-l.hub.catchUpSlots }()
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	return l.events.LoadPage(ctx, memory, id, after, pageEvents, pageBytes)
}

// takePaced is takeEvents after the pause that the tenant's number of readers demands.
func (s *subscription) takePaced(ctx context.Context) []agentsvc.Event {
	if s == nil {
		return nil
	}
	if pause := s.hub.pauseOf(s.key.tenant); pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done(): // the caller notices
		}
	}
	return s.takeEvents()
}

// pauseOf returns how long each reader of a tenant waits before it takes more events.
func (h *Hub) pauseOf(tenant db.ID) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.readers[tenant]
	if n <= unpacedReaders {
		return 0
	}
	return time.Duration(n) * readerPause / time.Duration(runtime.GOMAXPROCS(0))
}

// loadLastTurn reads the facts of a task's last turn, page by page through its whole log.
func (l *logReader) loadLastTurn(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID) ([]agentsvc.Event, error) {
	var turn []agentsvc.Event
	for after := int64(0); ; {
		evs, full, err := l.events.LoadPage(ctx, memory, id, after, pageEvents, pageBytes)
		if err != nil {
			return nil, err
		}
		for _, ev := range evs {
			if openingMessage(ev) != nil {
				turn = turn[:0]
			}
			turn = append(turn, ev)
			after = ev.Seq
		}
		if !full {
			return turn, nil
		}
	}
}

// isSettled reports whether ev ended or paused the turn, so that no run executes after it.
func isSettled(ev agentsvc.Event) bool {
	return isTerminal(ev) || ev.Status != nil && ev.Status.State.IsInterrupted()
}

// isTerminal reports whether ev ended the task.
func isTerminal(ev agentsvc.Event) bool { return ev.Status != nil && ev.Status.State.IsTerminal() }

// waitForWake waits for the subscription's wake signal. It reports whether d passed without one.
func waitForWake(ctx context.Context, wake <-chan struct{}, d time.Duration) (none bool, err error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-wake:
		return false, nil
	case <-t.C:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// cursor is a reader's position: the last fact that it has yielded, and how many bytes of each unfinished message.
type cursor struct {
	lastSeq   int64
	sentBytes map[agentsvc.MessageID]int // by message; math.MaxInt once the whole message was yielded as a fact
}

// yieldEvents yields the taken events and those that take returns, until that returns none, each after those of facts
// that precede it, and then the rest of facts. It returns the taken events before which facts are missing, and whether
// more may follow.
func (c *cursor) yieldEvents(taken []agentsvc.Event, take func() []agentsvc.Event, facts []agentsvc.Event, yield func(agentsvc.Event, error) bool) (rest []agentsvc.Event, more bool) {
	upTo := func(seq int64) bool {
		for len(facts) > 0 && facts[0].Seq <= seq {
			ev := facts[0]
			facts = facts[1:]
			if ev.Seq <= c.lastSeq {
				continue
			}
			if c.advancePast(ev); !yield(ev, nil) || isTerminal(ev) {
				return false
			}
		}
		return true
	}
	for ; ; taken = nil {
		if len(taken) == 0 {
			if taken = take(); len(taken) == 0 {
				return nil, upTo(math.MaxInt64)
			}
		}
		for i, ev := range taken {
			// A chunk belongs directly after the fact with sequence After.
			before := ev.Seq - 1
			if ev.Chunk != nil {
				before = ev.Chunk.After
			}
			if !upTo(before) {
				return nil, false
			}
			next, gap := c.nextEvent(ev)
			if gap {
				return taken[i:], upTo(math.MaxInt64)
			}
			if next != nil && (!yield(*next, nil) || isTerminal(*next)) {
				return nil, false
			}
		}
	}
}

// nextEvent returns the part of ev that the reader has not seen yet, or nil if there is none. gap reports that facts
// before ev are missing. A chunk is skipped where text before it is missing: the message's fact will bring the whole
// text.
func (c *cursor) nextEvent(ev agentsvc.Event) (next *agentsvc.Event, gap bool) {
	if ch := ev.Chunk; ch != nil {
		had, begun := c.sentBytes[ch.Message]
		// Not begun and older than the last fact: the message may be finished already, and its text was yielded with
		// its fact.
		if ch.Offset > had || ch.Offset+len(ch.Text) <= had || !begun && ch.After < c.lastSeq {
			return nil, false
		}
		if ch.After > c.lastSeq {
			return nil, true
		}
		c.sentBytes[ch.Message] = ch.Offset + len(ch.Text)
		ev.Chunk = &agentsvc.Chunk{Message: ch.Message, Offset: had, Text: ch.Text[had-ch.Offset:]}
		return &ev, false
	}
	switch {
	case ev.Seq <= c.lastSeq:
		return nil, false
	case ev.Seq > c.lastSeq+1:
		return nil, true
	}
	c.advancePast(ev)
	return &ev, false
}

// advancePast moves c behind a fact. Further chunks of the message that the fact contains are repetitions.
func (c *cursor) advancePast(ev agentsvc.Event) {
	c.lastSeq = ev.Seq
	if m := ev.Message; m != nil {
		c.sentBytes[m.ID] = math.MaxInt
	}
	if st := ev.Status; st != nil && st.Message != nil {
		c.sentBytes[st.Message.ID] = math.MaxInt
	}
}
