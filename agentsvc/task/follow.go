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
	// page is how many events are read from the log at once, and pageSize at how many bytes it ends before that: a reader
	// who takes his time keeps what was read for him.
	page     = 256
	pageSize = 64 << 10
	// The log is read again after firstLook, then less and less often, where the task is at work in another process.
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
	// Where it is at work in this process, which says what it does, somebody else may still have ended it.
	localLook = 10 * time.Second
)

// Follow returns a task as it stands and its events from there on, or where after is not nil what never changes of the task,
// its state, and the events that follow that sequence. The events end with the task's end, or with an error.
func (s *Service) Follow(ctx context.Context, reach Reach, id agentsvc.TaskID, after *int64) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	with := store.With{History: true, Artifacts: true}
	if after != nil {
		with = store.With{Bare: true}
	}
	t, err := s.find(ctx, reach, id, with)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	from := t.Seq
	if after != nil {
		from = min(max(*after, 0), t.Seq)
	}
	if from == t.Seq && t.Status.State.Terminal() {
		return t.Task, func(func(agentsvc.Event, error) bool) {}, nil
	}
	return t.Task, s.from(ctx, id, from), nil
}

// from follows a task from what the log holds after a sequence.
func (s *Service) from(ctx context.Context, id agentsvc.TaskID, after int64) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		r := s.hub.subscribe(s.key(id), after)
		defer r.close()
		r.endIfOver(ctx)
		r.reach()
		s.follow(ctx, r, id, after, true, yield)
	}
}

// follow yields the facts after sequence last and the chunks that come between, until the task ends. Where look is
// set the log is read before anything else; where it is not, a run of this process has begun or is about to, and says
// what it does. While there is none, other processes are asked.
func (s *Service) follow(ctx context.Context, r *reader, id agentsvc.TaskID, last int64, look bool, yield func(agentsvc.Event, error) bool) {
	c := cursor{last: last, sent: map[agentsvc.MessageID]int{}}
	wait, here := firstLook, !look
	for {
		before := c.last
		n := r.take()
		rest, more := c.tell(n.evs, nil, yield)
		if !more || (look || rest != nil || n.lagged || n.told) && !s.read(ctx, r, rest, id, &c, yield) {
			return
		}
		if !n.local && !here && r.reach() {
			look = true // what was said before
			continue
		}
		switch {
		case n.told:
			wait = lastLook // whoever writes says so
		case len(n.evs) > 0 || c.last > before:
			wait = firstLook
		}
		d := wait
		if n.local {
			d = localLook
		}
		if n.over != nil {
			yield(agentsvc.Event{}, n.over)
			return
		}
		var err error
		if look, err = pause(ctx, r.wake, d); err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
		// A run that was handed over in this process is about to begin.
		here = here && !look && !n.local
		if look {
			wait = min(2*wait, lastLook)
		}
	}
}

// read yields what the log holds after c, and between its facts the news and what r, which may be nil, hears meanwhile.
// It reports whether there may be more to come; after an error, which it yields, there is not.
func (s *Service) read(ctx context.Context, r *reader, news []agentsvc.Event, id agentsvc.TaskID, c *cursor, yield func(agentsvc.Event, error) bool) bool {
	held := capacity.Of(ctx).Beside(2) // a page, as it was read and as text, until its facts are yielded
	defer held.Release()
	reading := ctx
	if held != nil {
		reading = capacity.With(ctx, held)
	}
	for behind := false; ; behind = true {
		held.Release()
		facts, full, err := s.page(reading, id, c.last, behind)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return false
		}
		// What was said before these facts has been heard by now.
		var more bool
		if news, more = c.tell(append(news, r.heard()...), facts, yield); !more {
			return false
		}
		if !full && (news == nil || len(facts) == 0) {
			return true // facts that the log does not have are gone with their task
		}
	}
}

// page reads what follows sequence after in the log. A reader has one page at once. For more, those who are far behind wait
// for each other, so that a crowd of them leaves time to everybody else.
func (s *Service) page(ctx context.Context, id agentsvc.TaskID, after int64, behind bool) ([]agentsvc.Event, bool, error) {
	if behind {
		select {
		case s.hub.catchUp <- struct{}{}:
			defer func() { <-s.hub.catchUp }()
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	return s.store.Page(ctx, id, after, page, pageSize)
}

// rests reports whether the run that wrote ev ended with it.
func rests(ev agentsvc.Event) bool {
	return ends(ev) || ev.Status != nil && ev.Status.State.Interrupted()
}

func ends(ev agentsvc.Event) bool { return ev.Status != nil && ev.Status.State.Terminal() }

// pause waits for news. It reports whether none came within d.
func pause(ctx context.Context, wake <-chan struct{}, d time.Duration) (none bool, err error) {
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
	last int64
	sent map[agentsvc.MessageID]int
}

// tell yields the news, each behind those of facts that come before it, and then the rest of facts. It returns the news
// before which facts are missing, and reports whether there may be more to come.
func (c *cursor) tell(news, facts []agentsvc.Event, yield func(agentsvc.Event, error) bool) (rest []agentsvc.Event, more bool) {
	upTo := func(seq int64) bool {
		for len(facts) > 0 && facts[0].Seq <= seq {
			ev := facts[0]
			facts = facts[1:]
			if ev.Seq <= c.last {
				continue
			}
			if c.pass(ev); !yield(ev, nil) || ends(ev) {
				return false
			}
		}
		return true
	}
	news = merge(news)
	for i, ev := range news {
		before := ev.Seq - 1
		if ev.Chunk != nil {
			before = ev.Chunk.After
		}
		if !upTo(before) {
			return nil, false
		}
		next, gap := c.next(ev)
		if gap {
			return news[i:], upTo(math.MaxInt64)
		}
		if next != nil && (!yield(*next, nil) || ends(*next)) {
			return nil, false
		}
	}
	return nil, upTo(math.MaxInt64)
}

// next returns what of ev the reader has not had, or nil. A gap, facts that come before ev, means: read the log.
func (c *cursor) next(ev agentsvc.Event) (next *agentsvc.Event, gap bool) {
	if ch := ev.Chunk; ch != nil {
		had, begun := c.sent[ch.Message]
		if ch.Offset > had || ch.Offset+len(ch.Text) <= had || !begun && ch.After < c.last {
			return nil, false
		}
		if ch.After > c.last {
			return nil, true
		}
		c.sent[ch.Message] = ch.Offset + len(ch.Text)
		ev.Chunk = &agentsvc.Chunk{Message: ch.Message, Offset: had, Text: ch.Text[had-ch.Offset:]}
		return &ev, false
	}
	switch {
	case ev.Seq <= c.last:
		return nil, false
	case ev.Seq > c.last+1:
		return nil, true
	}
	c.pass(ev)
	return &ev, false
}

// pass moves c behind a fact. Of the message it holds no chunk is wanted any more.
func (c *cursor) pass(ev agentsvc.Event) {
	c.last = ev.Seq
	if m := ev.Message; m != nil {
		c.sent[m.ID] = math.MaxInt
	}
	if st := ev.Status; st != nil && st.Message != nil {
		c.sent[st.Message.ID] = math.MaxInt
	}
}
