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
	"stoa/agentsvc/store/receiver"
)

// Bounds of one delivery to a receiver, after which other receivers have their turn.
const (
	// maxMessages is the number of messages, maxDeliveryTime the time.
	maxMessages     = 64
	maxDeliveryTime = time.Minute
)

// Bounds of one read of a log.
const (
	// pageEvents is the number of events, pageBytes their size, which bounds the memory of a delivery.
	pageEvents = 256
	pageBytes  = 4 << 20
)

// errUnknownFormat reports that the receiver was stored by a newer version of this program.
var errUnknownFormat = errors.New("its format is not known to this process")

// deliverEvents delivers the events that t does not have, and reports whether the receiver has ended; then its lease
// has too. It returns a [*deliveryError] if an attempt failed, and [agentsvc.ErrLeaseLost].
func (dis *Dispatcher) deliverEvents(ctx context.Context, t *receiver.Claimed) (ended bool, err error) {
	format, known := dis.options.Formats[t.Format]
	switch {
	case t.IsStanding():
		format = standingFormat
	case !known:
		return false, errUnknownFormat
	}
	st := store.New(dis.db, t.Tenant)
	task, err := st.Tasks.Load(ctx, nil, t.Task, store.TaskParts{})
	if err != nil {
		return false, err
	}
	snapshot := agentsvc.Task{ID: task.ID, Context: task.Context, Agent: task.Agent, Owner: task.Owner, Created: task.Created}
	// received is the last event that was read, whether or not it is sent.
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
		// The snapshot follows the log up to this event, so that the message does not show a later state.
		if format.IncludesTask {
			if err := applyEventsUntil(ctx, st, &snapshot, ev.Seq); err != nil {
				return false, err
			}
		}
		// The status that ends the task ends the receiver as well.
		last := ev.Status != nil && ev.Status.State.IsTerminal()
		if err := dis.deliverEvent(ctx, t, format, snapshot, ev); err != nil && (last || !dis.canSkipEvent(t, err)) {
			return false, err
		}
		if err := dis.receivers.MarkDelivered(ctx, t, ev.Seq, last, leaseTime); err != nil || last {
			return last, err
		}
		if sent++; sent == maxMessages || time.Now().After(deadline) {
			return false, nil
		}
	}
	// Record events that are not sent too, so that the next delivery does not read them again.
	if received > t.DeliveredSeq {
		return false, dis.receivers.MarkDelivered(ctx, t, received, false, leaseTime)
	}
	return false, nil
}

// applyEventsUntil applies the events up to seq to t, without its history, which no message contains.
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

// canSkipEvent reports whether t continues with the next event after err, and logs the one that is skipped.
func (dis *Dispatcher) canSkipEvent(t *receiver.Claimed, err error) bool {
	var deliveryErr *deliveryError
	if !errors.As(err, &deliveryErr) || !deliveryErr.skipsEvent || deliveryErr.isPermanent {
		return false
	}
	dis.options.Log.Warn("a notification was given up", "tenant", t.Tenant, "task", t.Task, "config", t.PublicID(), "reason", deliveryErr.reason)
	return true
}

// deliverEvent sends one event, by the tenant's current notifier. A receiver that has been failing for longer than
// MaxFailing fails permanently. A standing receiver instead skips an event after its configured attempts.
func (dis *Dispatcher) deliverEvent(ctx context.Context, t *receiver.Claimed, format Format, snapshot agentsvc.Task, ev agentsvc.Event) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	notifier, release, err := dis.options.Notifier(ctx, t.Tenant)
	if err != nil {
		return err
	}
	defer release()
	m, err := notifier.composeMessage(ctx, format, t.Receiver, snapshot, ev)
	if m == nil && err == nil {
		return nil
	}
	if err == nil {
		err = notifier.sendMessage(ctx, messageID(t, ev.Seq), m)
	}
	var deliveryErr *deliveryError
	switch {
	case !errors.As(err, &deliveryErr):
	// The message has a retry policy of its own: that of a standing receiver.
	case m != nil && m.retry.maxAttempts > 0:
		deliveryErr.retry, deliveryErr.skipsEvent = m.retry, t.Attempts+1 >= m.retry.maxAttempts
	default:
		deliveryErr.isPermanent = deliveryErr.isPermanent || t.FailingFor > dis.options.MaxFailing
	}
	notifier.reportAttempt(deliveryErr)
	return err
}

// messageID returns the id of a message, which is the same for each attempt. It is a hash, so that it shows nothing of
// its parts.
func messageID(t *receiver.Claimed, seq int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", t.Tenant, t.Task, t.ID, seq))
	return hex.EncodeToString(sum[:16])
}

// retryDelay returns the pause after failures earlier failures and one more. Half of it is random, so that receivers
// that failed together are not retried together.
func (dis *Dispatcher) retryDelay(p retryPolicy, failures int64) time.Duration {
	d := min(cmp.Or(p.initialBackoff, dis.options.InitialBackoff)<<min(failures, 20), cmp.Or(p.maxBackoff, dis.options.MaxBackoff))
	return d/2 + rand.N(d/2+1) //nolint:gosec // G404: it need not be secret
}

// readLog reads a task's events after a sequence number, page by page.
func readLog(ctx context.Context, st *store.Store, id agentsvc.TaskID, after int64) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		for more := true; more; {
			var evs []agentsvc.Event
			var err error
			if evs, more, err = st.Events.LoadPage(ctx, nil, id, after, pageEvents, pageBytes); err != nil {
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
