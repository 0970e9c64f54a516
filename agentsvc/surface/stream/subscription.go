package stream

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface/encode"
)

var (
	// ErrStreamsEnding is the cause when the server ends a subscription.
	ErrStreamsEnding = errors.New("the server ends its streams")
	// errWaitTimeout is the cause when the time of a blocking call has passed.
	errWaitTimeout = errors.New("the caller has waited long enough")
	// ErrClientGone says that the client disconnected or stopped taking events.
	ErrClientGone = errors.New("the client is gone")
)

// Options are how a [Subscription] begins and ends.
type Options struct {
	// Stopping ends when the server ends its streams.
	Stopping context.Context
	// Deadline bounds the start of the subscription: submitting must not wait for a database for longer than any other
	// request does.
	Deadline time.Duration
	// CheckInterval is how often CheckAccess is called while events are written.
	CheckInterval time.Duration
	// CheckAccess returns the error for which the client would be refused now, nil if it would not.
	CheckAccess func(ctx context.Context) error
	// MayReply says that the turn may turn out to be a standalone reply, see deferUntilKnown.
	MayReply bool
	// Memory is the reservation of what is read for the client; nil = without a bound. WaitSettled adds to it what it
	// keeps.
	Memory *capacity.MemoryReservation
	// DropsTask says that the task was read for the first event alone: once that is sent WriteEvents drops its history
	// and artifacts, and releases Memory.
	DropsTask bool
}

// Subscription is a task and the events that follow it, read from its log. It ends with the task, with its client, with
// the server's streams, or when the client's access is revoked. It does not keep the app's runtime in use, which may be
// replaced while the subscription lasts. One goroutine reads it; Close ends it.
type Subscription struct {
	// Task is the task as it was when the subscription began. WriteEvents drops its history and artifacts once they
	// were sent.
	Task agentsvc.Task
	// events can be ranged over once. They end with an error if ctx ends; its cause says why.
	events iter.Seq2[agentsvc.Event, error]
	// ctx is the context of events. cancel ends it with one of the errors above or an accessRevokedError as the cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// clientCtx is the context of the client's request or connection; ctx is derived from it.
	clientCtx context.Context
	// stopWatching removes the callback that [Options].Stopping triggers.
	stopWatching func() bool
	options      Options
}

// Open returns the subscription to the task and the events that start returns. It ends with ctx or with o.Stopping, and
// until start has returned after o.Deadline. It returns the error of start, or a deadline error where the subscription
// was ended before its client was.
func Open(ctx context.Context, o Options, start func(ctx context.Context) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error)) (*Subscription, error) {
	f := &Subscription{clientCtx: ctx, options: o}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.stopWatching = context.AfterFunc(o.Stopping, func() { f.cancel(ErrStreamsEnding) })
	timer := time.AfterFunc(o.Deadline, func() { f.cancel(context.DeadlineExceeded) })
	var err error
	f.Task, f.events, err = start(f.ctx)
	timer.Stop()
	if err == nil {
		return f, nil
	}
	if cause := context.Cause(f.ctx); cause != nil && ctx.Err() == nil {
		err = context.DeadlineExceeded
	}
	f.Close()
	return nil, err
}

// WaitSettled reads events until the task has ended or waits for input, timeout has passed, or the server ends its
// streams, and returns the task as it is by then. If there is no memory for more events it returns the task early. It
// closes s.
func (s *Subscription) WaitSettled(timeout time.Duration) (agentsvc.Task, error) {
	t := s.Task
	if t.Status.State.IsTerminal() || t.Status.State.IsInterrupted() {
		s.Close()
		return t, nil
	}
	err := s.ReadFacts(timeout, func(ev agentsvc.Event) bool {
		t.ApplyEvent(ev)
		return s.isSettledBy(ev)
	})
	if err != nil {
		return agentsvc.Task{}, err
	}
	return t, nil
}

// ReadFacts passes the facts of s to apply until that returns true. Like WaitSettled it ends early, without an error,
// after timeout, if the server ends its streams and if there is no memory for more events. It closes s. The facts of a
// submitted message begin with its turn, also where the message was sent before and its task has gone on.
func (s *Subscription) ReadFacts(timeout time.Duration, apply func(ev agentsvc.Event) (done bool)) error {
	defer s.Close()
	timer := time.AfterFunc(timeout, func() { s.cancel(errWaitTimeout) })
	defer timer.Stop()
	for ev, err := range s.events {
		if err == nil && ev.Chunk != nil {
			continue
		}
		if err == nil {
			err = s.options.Memory.ReserveBytes(s.ctx, ev.ByteSize())
		}
		if err != nil {
			if errors.Is(err, capacity.ErrFull) || errors.Is(err, agentsvc.CodeTooLarge) {
				return nil // the task continues and can be read later
			}
			if cause := context.Cause(s.ctx); errors.Is(cause, errWaitTimeout) || errors.Is(cause, ErrStreamsEnding) {
				return nil
			}
			return err
		}
		if apply(ev) {
			break
		}
	}
	return nil
}

// WriteEvents passes each event of s, encoded by d, to write together with its sequence (0 for a delta), and closes s.
// It returns nil at the end of the events, ErrStreamsEnding if the server ends them, ErrClientGone if the client
// disconnected or write failed, the [agentsvc.Error] or [encode.ErrEncoding] of write, the reason if the client's access
// was revoked, and else the error of the log.
//
// The next event is read when the last one was written, so a slow client slows down its own subscription and nothing
// else. The task service keeps a bounded number of events for all subscriptions of a task and drops those that are not
// taken in time. No fact is lost by that, since the log is read then; the text of dropped deltas is part of the next
// fact.
func (s *Subscription) WriteEvents(d Encoder, write func(seq int64, body any) error) error {
	defer s.watchAccess()()
	defer s.Close()
	if s.options.MayReply = s.options.MayReply && d.EncodeReply != nil; s.options.MayReply {
		s.events = deferUntilKnown(s.events)
	}
	for ev, err := range s.events {
		var out *accessRevokedError
		// Causes are checked before the client: cancelling s.ctx with a cause also looks like a client that is gone.
		switch {
		case err == nil:
		case errors.As(context.Cause(s.ctx), &out):
			return out.cause
		case s.isClientGone():
			return ErrClientGone
		case errors.Is(context.Cause(s.ctx), ErrStreamsEnding):
			return ErrStreamsEnding
		default:
			return err
		}
		if d.KeepsFacts && ev.Chunk == nil {
			if err := s.options.Memory.ReserveBytes(s.ctx, ev.ByteSize()); err != nil {
				return err
			}
		}
		reported := d.EncodeEvent
		if s.options.MayReply && replyOf(ev) != nil {
			reported = d.encodeReplyEvent
		}
		for _, body := range splitBodies(reported(ev)) {
			var refused *agentsvc.Error // there was no memory for the event
			if err := write(ev.Seq, body); errors.As(err, &refused) || errors.Is(err, encode.ErrEncoding) {
				return err
			} else if err != nil {
				return ErrClientGone
			}
		}
		if d.EndsWhenSettled && s.isSettledBy(ev) {
			break
		}
		// What was read of the task for the first event is not needed any more.
		if s.options.DropsTask {
			s.Task.History, s.Task.Artifacts = nil, nil
			s.options.Memory.ReleaseBytes()
			s.options.DropsTask = false
		}
	}
	return nil
}

// accessRevokedError is the cause that ends a subscription whose client is no longer permitted to read the task.
type accessRevokedError struct{ cause error }

func (e *accessRevokedError) Error() string {
	return "the client may no longer read the task: " + e.cause.Error()
}

// watchAccess calls CheckAccess every CheckInterval until stop is called: a credential may expire or be revoked, and an
// app be suspended or deleted, while a stream is open. The check ends the subscription if it fails.
func (s *Subscription) watchAccess() (stop func()) {
	// mu guards over: stop may run between the check and the timer's reset, which would otherwise start the timer
	// again.
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(s.options.CheckInterval, func() {
		if reason := s.options.CheckAccess(s.ctx); reason != nil {
			s.cancel(&accessRevokedError{reason})
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			timer.Reset(s.options.CheckInterval)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// splitBodies returns the bodies of what [Encoder].EncodeEvent returned: none for nil.
func splitBodies(reported any) Bodies {
	switch reported := reported.(type) {
	case nil:
		return nil
	case Bodies:
		return reported
	}
	return Bodies{reported}
}

// isSettledBy reports whether ev ends the task or makes it wait for input. Events before the one that the subscription
// began with do not count: after a resumption they belong to earlier turns.
func (s *Subscription) isSettledBy(ev agentsvc.Event) bool {
	return ev.Status != nil && ev.Seq >= s.Task.Seq && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted())
}

// isClientGone reports whether the client disconnected or a write to it failed.
func (s *Subscription) isClientGone() bool {
	if s.clientCtx.Err() != nil {
		return true
	}
	cause := context.Cause(s.ctx)
	return cause != nil && !errors.Is(cause, ErrStreamsEnding)
}

// Close ends the subscription and releases its resources. The task goes on. It may be called more than once.
func (s *Subscription) Close() {
	s.stopWatching()
	s.cancel(nil)
}
