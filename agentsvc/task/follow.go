package task

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
)

const (
	// page is how many events are read from the log at once.
	page = 256
	// The log is read again after firstLook, then less and less often, where the task is at work in another process.
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// follow yields the facts after sequence last and the chunks that come between, until the task ends. Where look is
// set the log is read before anything else.
func (s *Service) follow(ctx context.Context, r *reader, id agentsvc.TaskID, last int64, look bool, yield func(agentsvc.Event, error) bool) {
	c := cursor{last: last, sent: map[agentsvc.MessageID]int{}}
	wait := firstLook
	for {
		evs, lagged, local := r.take()
		if look || lagged {
			ok, err := s.read(ctx, id, &c, yield)
			if err != nil {
				yield(agentsvc.Event{}, err)
			}
			if !ok || err != nil {
				return
			}
			look = false
		}
		for _, ev := range merge(evs) {
			switch next, gap := c.next(ev); {
			case gap:
				look = true
			case next != nil && (!yield(*next, nil) || ends(*next)):
				return
			}
		}
		if look {
			continue
		}
		if len(evs) > 0 {
			wait = firstLook
		}
		if err := pause(ctx, r.wake, local, wait); errors.Is(err, errLook) {
			look = true
			wait = min(2*wait, lastLook)
		} else if err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
	}
}

// read yields what the log holds after c. It reports whether there may be more to come.
func (s *Service) read(ctx context.Context, id agentsvc.TaskID, c *cursor, yield func(agentsvc.Event, error) bool) (bool, error) {
	for {
		evs, err := s.store.Events(ctx, id, c.last, page)
		if err != nil {
			return false, err
		}
		for _, ev := range evs {
			c.next(ev)
			if !yield(ev, nil) || ends(ev) {
				return false, nil
			}
		}
		if len(evs) < page {
			return true, nil
		}
	}
}

func ends(ev agentsvc.Event) bool { return ev.Status != nil && ev.Status.State.Terminal() }

var errLook = errors.New("look again")

// pause waits for news. Where the writer is elsewhere it returns errLook after d.
func pause(ctx context.Context, wake <-chan struct{}, local bool, d time.Duration) error {
	var look <-chan time.Time
	if !local {
		t := time.NewTimer(d)
		defer t.Stop()
		look = t.C
	}
	select {
	case <-wake:
		return nil
	case <-look:
		return errLook
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cursor is how far a reader is: the last fact, and how much of each message being written.
type cursor struct {
	last int64
	sent map[agentsvc.MessageID]int
}

// next returns what of ev the reader has not had, or nil. A gap before a fact means: read the log.
func (c *cursor) next(ev agentsvc.Event) (next *agentsvc.Event, gap bool) {
	if ch := ev.Chunk; ch != nil {
		had := c.sent[ch.Message]
		if ch.Offset > had || ch.Offset+len(ch.Text) <= had {
			return nil, false
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
	c.last = ev.Seq
	if m := ev.Message; m != nil {
		delete(c.sent, m.ID)
	}
	return &ev, false
}
