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
	maxMessages     = 64
	maxDeliveryTime = time.Minute
)

// Of the log: how many events are read at once, and at how many bytes it ends before that.
const (
	pageEvents = 256
	pageBytes  = 4 << 20
)

// errUnknownFormat says that a later version of the house has set the receiver.
var errUnknownFormat = errors.New("it is told in a form that is not known here")

// deliverEvents tells t what it does not know yet, and reports whether that was the end, behind which there is no lease. It returns a
// [*refusal] where t does not take it, and [agentsvc.ErrLeaseLost].
func (c *Dispatcher) deliverEvents(ctx context.Context, t *store.LeasedReceiver) (ended bool, err error) {
	format, known := c.options.Formats[t.Format]
	switch {
	case t.IsStanding():
		format = standingFormat
	case !known:
		return false, errUnknownFormat
	}
	st := store.New(c.db, t.Tenant)
	task, err := st.LoadTask(ctx, t.Task, store.TaskParts{})
	if err != nil {
		return false, err
	}
	snapshot := agentsvc.Task{ID: task.ID, Context: task.Context, Agent: task.Agent, Owner: task.Owner, Created: task.Created}
	sent, deadline, received := 0, time.Now().Add(maxDeliveryTime), t.DeliveredSeq
	for ev, err := range readLog(ctx, st, t.Task, t.DeliveredSeq) {
		if err != nil {
			return false, err
		}
		if received = ev.Seq; !format.ShouldSend(ev) {
			continue
		}
		if t.IsStanding() && noticeType(ev) == TaskStarted {
			if first, err := isTaskStart(ctx, st, ev); err != nil {
				return false, err
			} else if !first {
				continue
			}
		}
		if format.IncludesTask {
			if err := applyEventsUntil(ctx, st, &snapshot, ev.Seq); err != nil {
				return false, err
			}
		}
		last := ev.Status != nil && ev.Status.State.IsTerminal()
		if err := c.deliverEvent(ctx, t, format, snapshot, ev); err != nil && (last || !c.canSkipEvent(t, err)) {
			return false, err
		}
		if err := c.receivers.MarkDelivered(ctx, t, ev.Seq, last, leaseTime); err != nil || last {
			return last, err
		}
		if sent++; sent == maxMessages || time.Now().After(deadline) {
			return false, nil
		}
	}
	if received > t.DeliveredSeq {
		return false, c.receivers.MarkDelivered(ctx, t, received, false, leaseTime)
	}
	return false, nil
}

// applyEventsUntil brings t up to a sequence, without its history.
func applyEventsUntil(ctx context.Context, st *store.Store, t *agentsvc.Task, seq int64) error {
	for ev, err := range readLog(ctx, st, t.ID, t.Seq) {
		if err != nil {
			return err
		}
		t.ApplyEvent(ev)
		if t.History = nil; ev.Seq >= seq {
			break
		}
	}
	return nil
}

// canSkipEvent reports whether t goes on behind an event of which it was not told.
func (c *Dispatcher) canSkipEvent(t *store.LeasedReceiver, err error) bool {
	var deliveryErr *deliveryError
	if !errors.As(err, &deliveryErr) || !deliveryErr.skipsEvent || deliveryErr.isPermanent {
		return false
	}
	c.options.Log.Warn("a notification was given up", "tenant", t.Tenant, "task", t.Task, "config", t.PublicID(), "reason", deliveryErr.reason)
	return true
}

// deliverEvent tells of one event by the tenant's desk, if the tenant has one now. A receiver that has failed for too long does so for
// good.
func (c *Dispatcher) deliverEvent(ctx context.Context, t *store.LeasedReceiver, format Format, snapshot agentsvc.Task, ev agentsvc.Event) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	notifier, release, err := c.options.Notifier(ctx, t.Tenant)
	if err != nil {
		return err
	}
	defer release()
	m, err := notifier.composeMessage(format, t.Receiver, snapshot, ev)
	if m == nil && err == nil {
		return nil
	}
	if err == nil {
		err = notifier.sendMessage(ctx, messageID(t, ev.Seq), m)
	}
	var deliveryErr *deliveryError
	switch {
	case !errors.As(err, &deliveryErr):
	case m != nil && m.retry.maxAttempts > 0:
		deliveryErr.retry, deliveryErr.skipsEvent = m.retry, t.Attempts+1 >= m.retry.maxAttempts
	default:
		deliveryErr.isPermanent = deliveryErr.isPermanent || t.FailingFor > c.options.MaxFailing
	}
	notifier.reportAttempt(deliveryErr)
	return err
}

// messageID names what a receiver is told of one event: the same whenever that is sent.
func messageID(t *store.LeasedReceiver, seq int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", t.Tenant, t.Task, t.ID, seq))
	return hex.EncodeToString(sum[:16])
}

// retryDelay is how long after so many failures, and one more, nothing is tried.
func (c *Dispatcher) retryDelay(p retryPolicy, failures int64) time.Duration {
	d := min(cmp.Or(p.initialBackoff, c.options.InitialBackoff)<<min(failures, 20), cmp.Or(p.maxBackoff, c.options.MaxBackoff))
	return d/2 + rand.N(d/2+1) //nolint:gosec // G404: it need not be secret
}

// readLog reads a task's events after a sequence.
func readLog(ctx context.Context, st *store.Store, id agentsvc.TaskID, after int64) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		for more := true; more; {
			var evs []agentsvc.Event
			var err error
			if evs, more, err = st.LoadEventPage(ctx, id, after, pageEvents, pageBytes); err != nil {
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
