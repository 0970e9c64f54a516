package task

import (
	"context"
	"iter"
	"math"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
)

const (
	// pageEvents is how many events are read from the log at once, and pageBytes at how many bytes it ends before that: a reader
	// who takes his time keeps what was read for him.
	pageEvents = 256
	pageBytes  = 64 << 10
	// The log is read again after firstPollInterval, then less and less often, where the task is at work in another process.
	firstPollInterval = 50 * time.Millisecond
	maxPollInterval   = time.Second
	// Where it is at work in this process, which says what it does, somebody else may still have ended it.
	localPollInterval = 10 * time.Second
)

// Follow returns a task as it stands and its events from there on, or where after is not nil what never changes of the task,
// its state, and the events that follow that sequence. The events end with the task's end, or with an error.
func (s *Service) Follow(ctx context.Context, visibility Visibility, id agentsvc.TaskID, after *int64) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	parts := store.TaskParts{History: true, Artifacts: true}
	if after != nil {
		parts = store.TaskParts{StateOnly: true}
	}
	t, err := s.findTask(ctx, visibility, id, parts)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	from := t.Seq
	if after != nil {
		from = min(max(*after, 0), t.Seq)
	}
	if from == t.Seq && t.Status.State.IsTerminal() {
		return t.Task, func(func(agentsvc.Event, error) bool) {}, nil
	}
	return t.Task, s.followLog(ctx, id, from), nil
}

// followLog follows a task from what the log holds after a sequence.
func (s *Service) followLog(ctx context.Context, id agentsvc.TaskID, after int64) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		r := s.hub.subscribe(s.newTopicKey(id), after)
		defer r.close()
		r.endIfTenantEnded(ctx)
		r.followRemote()
		s.streamEvents(ctx, r, id, after, true, yield)
	}
}

// streamEvents yields the facts after sequence last and the chunks that come between, until the task ends. Where look is
// set the log is read before anything else; where it is not, a run of this process has begun or is about to, and says
// what it does. While there is none, other processes are asked.
func (s *Service) streamEvents(ctx context.Context, r *subscription, id agentsvc.TaskID, last int64, look bool, yield func(agentsvc.Event, error) bool) {
	c := cursor{lastSeq: last, sentBytes: map[agentsvc.MessageID]int{}}
	wait, here := firstPollInterval, !look
	for {
		before := c.lastSeq
		n := r.drainQueue()
		rest, more := c.yieldEvents(n.events, nil, yield)
		if !more || (look || rest != nil || n.lagged || n.signaled) && !s.readLog(ctx, r, rest, id, &c, yield) {
			return
		}
		if !n.hasLocalWriter && !here && r.followRemote() {
			look = true // what was said before
			continue
		}
		switch {
		case n.signaled:
			wait = maxPollInterval // whoever writes says so
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
		// A run that was handed over in this process is about to begin.
		here = here && !look && !n.hasLocalWriter
		if look {
			wait = min(2*wait, maxPollInterval)
		}
	}
}

// readLog yields what the log holds after c, and between its facts the news and what r, which may be nil, hears meanwhile.
// It reports whether there may be more to come; after an error, which it yields, there is not.
func (s *Service) readLog(ctx context.Context, r *subscription, queued []agentsvc.Event, id agentsvc.TaskID, c *cursor, yield func(agentsvc.Event, error) bool) bool {
	reserved := capacity.ReservationFrom(ctx).NewPart(2) // a page, as it was read and as text, until its facts are yielded
	defer reserved.ReleaseBytes()
	reading := ctx
	if reserved != nil {
		reading = capacity.WithReservation(ctx, reserved)
	}
	for behind := false; ; behind = true {
		reserved.ReleaseBytes()
		facts, full, err := s.loadPage(reading, id, c.lastSeq, behind)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return false
		}
		// What was said before these facts has been heard by now.
		var more bool
		if queued, more = c.yieldEvents(append(queued, r.drainEvents()...), facts, yield); !more {
			return false
		}
		if !full && (queued == nil || len(facts) == 0) {
			return true // facts that the log does not have are gone with their task
		}
	}
}

// loadPage reads what follows sequence after in the log. A reader has one page at once. For more, those who are far behind wait
// for each other, so that a crowd of them leaves time to everybody else.
func (s *Service) loadPage(ctx context.Context, id agentsvc.TaskID, after int64, behind bool) ([]agentsvc.Event, bool, error) {
	if behind {
		select {
		case s.hub.catchUpSlots <- struct{}{}:
			defer func() { <-s.hub.catchUpSlots }()
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	return s.store.LoadEventPage(ctx, id, after, pageEvents, pageBytes)
}

// isSettled reports whether the run that wrote ev ended with it.
func isSettled(ev agentsvc.Event) bool {
	return isTerminal(ev) || ev.Status != nil && ev.Status.State.IsInterrupted()
}

func isTerminal(ev agentsvc.Event) bool { return ev.Status != nil && ev.Status.State.IsTerminal() }

// waitForWake waits for news. It reports whether none came within d.
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

// cursor is how far a reader is: the last fact, and how much of each message being written.
type cursor struct {
	lastSeq   int64
	sentBytes map[agentsvc.MessageID]int
}

// yieldEvents yields the news, each behind those of facts that come before it, and then the rest of facts. It returns the news
// before which facts are missing, and reports whether there may be more to come.
func (c *cursor) yieldEvents(queued, facts []agentsvc.Event, yield func(agentsvc.Event, error) bool) (rest []agentsvc.Event, more bool) {
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
	queued = mergeChunks(queued)
	for i, ev := range queued {
		before := ev.Seq - 1
		if ev.Chunk != nil {
			before = ev.Chunk.After
		}
		if !upTo(before) {
			return nil, false
		}
		next, gap := c.nextEvent(ev)
		if gap {
			return queued[i:], upTo(math.MaxInt64)
		}
		if next != nil && (!yield(*next, nil) || isTerminal(*next)) {
			return nil, false
		}
	}
	return nil, upTo(math.MaxInt64)
}

// nextEvent returns what of ev the reader has not had, or nil. A gap, facts that come before ev, means: read the log.
func (c *cursor) nextEvent(ev agentsvc.Event) (next *agentsvc.Event, gap bool) {
	if ch := ev.Chunk; ch != nil {
		had, begun := c.sentBytes[ch.Message]
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

// advancePast moves c behind a fact. Of the message it holds no chunk is wanted any more.
func (c *cursor) advancePast(ev agentsvc.Event) {
	c.lastSeq = ev.Seq
	if m := ev.Message; m != nil {
		c.sentBytes[m.ID] = math.MaxInt
	}
	if st := ev.Status; st != nil && st.Message != nil {
		c.sentBytes[st.Message.ID] = math.MaxInt
	}
}
