package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// Of one visit: how many messages a receiver gets, and for how long, before others have their turn.
const (
	perVisit  = 64
	visitTime = time.Minute
)

// Of the log: how many events are read at once, and at how many bytes it ends before that.
const (
	page     = 256
	pageSize = 4 << 20
)

// errForm says that a later version of the house has set the receiver.
var errForm = errors.New("it is told in a form that is not known here")

// tell tells t what it does not know yet, and reports whether that was the end, behind which there is no lease. It returns a
// [*refusal] where t does not take it, and [agentsvc.ErrLost].
func (c *Courier) tell(ctx context.Context, t *store.Telling) (over bool, err error) {
	form, known := c.o.Forms[t.Form]
	switch {
	case t.Standing():
		form = standing
	case !known:
		return false, errForm
	}
	st := store.New(c.db, t.Tenant)
	task, err := st.Task(ctx, t.Task, store.With{})
	if err != nil {
		return false, err
	}
	now := agentsvc.Task{ID: task.ID, Context: task.Context, Agent: task.Agent, Owner: task.Owner, Created: task.Created}
	sent, until, heard := 0, time.Now().Add(visitTime), t.Told
	for ev, err := range log(ctx, st, t.Task, t.Told) {
		if err != nil {
			return false, err
		}
		if heard = ev.Seq; !form.Tells(ev) {
			continue
		}
		if t.Standing() && kindOf(ev) == TaskStarted {
			if first, err := begins(ctx, st, ev); err != nil {
				return false, err
			} else if !first {
				continue
			}
		}
		if form.Whole {
			if err := advance(ctx, st, &now, ev.Seq); err != nil {
				return false, err
			}
		}
		last := ev.Status != nil && ev.Status.State.Terminal()
		if err := c.send(ctx, t, form, now, ev); err != nil && (last || !c.passes(t, err)) {
			return false, err
		}
		if err := c.receivers.Told(ctx, t, ev.Seq, last, lease); err != nil || last {
			return last, err
		}
		if sent++; sent == perVisit || time.Now().After(until) {
			return false, nil
		}
	}
	if heard > t.Told {
		return false, c.receivers.Told(ctx, t, heard, false, lease)
	}
	return false, nil
}

// advance brings t up to a sequence, without its history.
func advance(ctx context.Context, st *store.Store, t *agentsvc.Task, seq int64) error {
	for ev, err := range log(ctx, st, t.ID, t.Seq) {
		if err != nil {
			return err
		}
		t.Apply(ev)
		if t.History = nil; ev.Seq >= seq {
			break
		}
	}
	return nil
}

// passes reports whether t goes on behind an event of which it was not told.
func (c *Courier) passes(t *store.Telling, err error) bool {
	var no *refusal
	if !errors.As(err, &no) || !no.over || no.final {
		return false
	}
	c.o.Log.Warn("a notification was given up", "tenant", t.Tenant, "task", t.Task, "config", t.Name(), "reason", no.reason)
	return true
}

// send tells of one event by the tenant's desk, if the tenant has one now. A receiver that has failed for too long does so for
// good.
func (c *Courier) send(ctx context.Context, t *store.Telling, form Form, now agentsvc.Task, ev agentsvc.Event) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	desk, release, err := c.o.Desk(ctx, t.Tenant)
	if err != nil {
		return err
	}
	defer release()
	m, err := desk.compose(form, t.Receiver, now, ev)
	if m == nil && err == nil {
		return nil
	}
	if err == nil {
		err = desk.send(ctx, messageID(t, ev.Seq), m)
	}
	var no *refusal
	switch {
	case !errors.As(err, &no):
	case m != nil && m.pace.tries > 0:
		no.pace, no.over = m.pace, t.Attempts+1 >= m.pace.tries
	default:
		no.final = no.final || t.Failing > c.o.GiveUp
	}
	desk.tried(no)
	return err
}

// messageID names what a receiver is told of one event: the same whenever that is sent.
func messageID(t *store.Telling, seq int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", t.Tenant, t.Task, t.ID, seq))
	return hex.EncodeToString(sum[:16])
}

// pause is how long after so many failures, and one more, nothing is tried.
func (c *Courier) pause(p pace, failures int64) time.Duration {
	d := min(cmp.Or(p.first, c.o.First)<<min(failures, 20), cmp.Or(p.longest, c.o.Longest))
	return d/2 + rand.N(d/2+1) //nolint:gosec // G404: it need not be secret
}

// log reads a task's events after a sequence.
func log(ctx context.Context, st *store.Store, id agentsvc.TaskID, after int64) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		for more := true; more; {
			var evs []agentsvc.Event
			var err error
			if evs, more, err = st.Page(ctx, id, after, page, pageSize); err != nil {
				yield(agentsvc.Event{}, err)
				return
			}
			for _, ev := range evs {
				if after = ev.Seq; !yield(ev, nil) {
					return
				}
			}
		}
	}
}
