package surface

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

var (
	// errStreamsEnding is the cause when [Server.EndStreams] ends a subscription.
	errStreamsEnding = errors.New("the server ends its streams")
	// errWaitTimeout is the cause when the time of a blocking call has passed.
	errWaitTimeout = errors.New("the caller has waited long enough")
	// errClientGone says that the client disconnected or stopped taking events.
	errClientGone = errors.New("the client is gone")
)

// Subscription is a task and the events that follow it, read from its log. It ends with the task, with its client, with
// the server's streams, or when the client's access is revoked. It does not keep the app's runtime in use, which may be
// replaced while the subscription lasts. One goroutine reads it; Close ends it.
type Subscription struct {
	// Task is the task as it was when the subscription began. writeEvents drops its history and artifacts once they
	// were sent.
	Task agentsvc.Task
	// events can be ranged over once. They end with an error if ctx ends; its cause says why.
	events iter.Seq2[agentsvc.Event, error]
	// reservation is for the memory of Task until it has been sent; nil = that memory is released with the request.
	reservation *capacity.Reservation
	// mayReply says that the turn may still turn out to be a standalone reply, see deferUntilKnown.
	mayReply bool
	// ctx is the context of events. cancel ends it with one of the errors above or an accessRevokedError as the cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// clientCtx is the context of the client's request or connection; ctx is derived from it.
	clientCtx context.Context
	// stopWatching removes the callback that EndStreams triggers.
	stopWatching func() bool
	// checkInterval is how often checkAccess is called while events are written.
	checkInterval time.Duration
	// checkAccess returns the error for which the client would be refused now, nil if it would not. It is
	// [Request.checkAccess].
	checkAccess func(ctx context.Context) error
}

// newSubscription returns a subscription that ends with ctx or with the server's streams, and, until started is called,
// after the server's deadline: submitting must not wait for a database for longer than any other request does.
func (v *Request) newSubscription(ctx context.Context) (f *Subscription, started func() bool) {
	f = &Subscription{clientCtx: ctx, checkInterval: v.server.options.KeepAlive, checkAccess: v.checkAccess}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.stopWatching = context.AfterFunc(v.server.streamsCtx, func() { f.cancel(errStreamsEnding) })
	timer := time.AfterFunc(v.server.options.Deadline, func() { f.cancel(context.DeadlineExceeded) })
	return f, timer.Stop
}

// WithDeadline returns a context with the deadline of a request that does not wait for a task, for the parts of a
// longer one.
func (v *Request) WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, v.server.options.Deadline)
}

// NewCleanupContext returns a context for what must still be written after a request was carried out. It does not end
// when the client disconnects. 5 seconds bound it.
func NewCleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

// SubmitMessage submits a message and returns its task as it was accepted. It returns an [ErrContentType] for content
// that the agent does not read, else what [task.Service.Submit] returns.
func (v *Request) SubmitMessage(ctx context.Context, sub task.Submission) (agentsvc.Task, error) {
	if err := v.checkInputModes(sub); err != nil {
		return agentsvc.Task{}, err
	}
	ctx, cancel := v.WithDeadline(ctx)
	defer cancel()
	return v.tasks.Submit(ctx, sub)
}

// SubmitAndWait submits a message and waits for at most timeout until its task has ended or waits for input. It returns
// the task as it is by then: a task that still works is no error. A timeout of 0 does not wait.
func (v *Request) SubmitAndWait(ctx context.Context, sub task.Submission, timeout time.Duration) (agentsvc.Task, error) {
	if timeout == 0 {
		return v.SubmitMessage(ctx, sub)
	}
	f, err := v.SubmitAndSubscribe(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	return f.WaitSettled(timeout)
}

// CancelTask cancels a task. It returns [ErrNotCancelable] for one that has ended, and [agentsvc.ErrNotFound] for one
// outside of visibility.
func (v *Request) CancelTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := v.tasks.Cancel(ctx, visibility, id)
	if errors.Is(err, agentsvc.ErrTaskEnded) {
		err = ErrNotCancelable
	}
	return t, err
}

// RestoreTask starts a new task from a checkpoint of a task that failed or was cancelled. The new task belongs to the
// owner of the old one. It requires the credentials that the agent requires for a message, and counts as a call of the
// owner against limits and budgets. It returns the errors of [task.Service.RestoreCheckpoint] and of reserveUsage.
func (v *Request) RestoreTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID, checkpoint int64) (agentsvc.Task, error) {
	t, err := v.tasks.Get(ctx, visibility, id, store.TaskParts{})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if err := v.requireAgentCredentials(ctx, t.Agent); err != nil {
		return agentsvc.Task{}, err
	}
	if c, ok := v.runtime.Card(t.Agent); ok {
		if c.Visibility == agentsvc.Internal && v.Principal.Anonymous {
			return agentsvc.Task{}, errNoAgent
		}
		v.recordAgent(c)
	}
	sub := task.Submission{Agent: t.Agent, Owner: t.Owner, Message: agentsvc.Message{Context: t.Context}}
	if err := v.reserveUsage(ctx, &sub); err != nil {
		return agentsvc.Task{}, err
	}
	return v.tasks.RestoreCheckpoint(ctx, visibility, id, checkpoint, v.Principal.Owner(), sub.Reservation)
}

// AbandonTask cancels a task of the caller, whose client disconnected from a stream that it cannot resume. Errors are
// ignored, since the task may have ended meanwhile.
func (v *Request) AbandonTask(ctx context.Context, t agentsvc.Task) {
	ctx, cancel := NewCleanupContext(ctx)
	defer cancel()
	_, _ = v.tasks.Cancel(ctx, task.Visibility{Agents: []string{t.Agent}, Owner: &t.Owner}, t.ID)
}

// SubmitAndSubscribe submits a message and returns a subscription that begins with the first event of its turn. It
// releases the app. When it returns without an error the turn is stored: it goes on even if the subscription is closed.
func (v *Request) SubmitAndSubscribe(ctx context.Context, sub task.Submission) (*Subscription, error) {
	if err := v.checkInputModes(sub); err != nil {
		return nil, err
	}
	f, started := v.newSubscription(ctx)
	var err error
	f.Task, f.events, err = v.tasks.SubmitAndFollow(f.ctx, sub)
	card, _ := v.runtime.Card(sub.Agent)
	f.mayReply = card.StandaloneReplies && sub.Message.Task == ""
	return v.completeSubscription(f, started, err)
}

// SubscribeTask subscribes to an existing task. With after = nil the first event is the current state as a status with
// the task's sequence; else the events after that sequence follow, which is how a client resumes. It releases the app.
// It returns [agentsvc.ErrNotFound] for a task outside of visibility and an [*agentsvc.InvalidError] for a sequence
// that the task has not reached.
func (v *Request) SubscribeTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID, after *int64) (*Subscription, error) {
	f, started := v.newSubscription(ctx)
	var err error
	f.Task, f.events, err = v.tasks.Follow(f.ctx, visibility, id, after)
	f.reservation = capacity.ReservationFrom(ctx)
	if err == nil && after != nil && *after > f.Task.Seq {
		err = agentsvc.NewInvalidError("after", "the task has no event %d yet", *after)
	}
	if after == nil {
		remaining := f.events
		f.events = func(yield func(agentsvc.Event, error) bool) {
			status := f.Task.Status
			if yield(agentsvc.Event{Task: f.Task.ID, Seq: f.Task.Seq, At: status.At, Status: &status}, nil) {
				remaining(yield)
			}
		}
	}
	return v.completeSubscription(f, started, err)
}

// completeSubscription ends the deadline of newSubscription and releases the app, so that a long stream does not keep
// an old revision open. If err is not nil it closes f and returns err, or a deadline error where f was ended before its
// client was.
func (v *Request) completeSubscription(f *Subscription, started func() bool, err error) (*Subscription, error) {
	started()
	v.ReleaseApp()
	if err == nil {
		return f, nil
	}
	if cause := context.Cause(f.ctx); cause != nil && f.clientCtx.Err() == nil {
		err = context.DeadlineExceeded
	}
	f.Close()
	return nil, err
}

// WaitSettled reads events until the task has ended or waits for input, timeout has passed, or the server ends its
// streams, and returns the task as it is by then. If there is no memory for more events it returns the task early. It
// closes f.
func (f *Subscription) WaitSettled(timeout time.Duration) (agentsvc.Task, error) {
	defer f.Close()
	t := f.Task
	if t.Status.State.IsTerminal() || t.Status.State.IsInterrupted() {
		return t, nil
	}
	timer := time.AfterFunc(timeout, func() { f.cancel(errWaitTimeout) })
	defer timer.Stop()
	retained := capacity.ReservationFrom(f.clientCtx)
	for ev, err := range f.events {
		if err == nil && ev.Chunk == nil {
			err = retained.ReserveBytes(f.ctx, ev.ByteSize())
		}
		if err != nil {
			if errors.Is(err, capacity.ErrFull) {
				return t, nil // the task continues and can be read later
			}
			if cause := context.Cause(f.ctx); errors.Is(cause, errWaitTimeout) || errors.Is(cause, errStreamsEnding) {
				return t, nil
			}
			return agentsvc.Task{}, err
		}
		t.ApplyEvent(ev)
		if f.isSettledBy(ev) {
			break
		}
	}
	return t, nil
}

// writeEvents passes each event of f, encoded by d, to write together with its sequence (0 for a delta), and closes f.
// It returns nil at the end of the events, errStreamsEnding if the server ends them, errClientGone if the client
// disconnected or write failed, the reason if the client's access was revoked, and else the error of the log.
//
// The next event is read when the last one was written, so a slow client slows down its own subscription and nothing
// else. The task service queues a bounded number of events for it and drops them when they are too many. No fact is
// lost by that, since it then reads the log; the text of dropped deltas is part of the next fact.
func (f *Subscription) writeEvents(d StreamEncoder, write func(seq int64, body any) error) error {
	defer f.watchAccess()()
	defer f.Close()
	if f.mayReply = f.mayReply && d.EncodeReply != nil; f.mayReply {
		f.events = deferUntilKnown(f.events)
	}
	for ev, err := range f.events {
		var out *accessRevokedError
		// Causes are checked before the client: cancelling f.ctx with a cause also looks like a client that is gone.
		switch {
		case err == nil:
		case errors.As(context.Cause(f.ctx), &out):
			return out.cause
		case f.isClientGone():
			return errClientGone
		case errors.Is(context.Cause(f.ctx), errStreamsEnding):
			return errStreamsEnding
		default:
			return err
		}
		reported := d.EncodeEvent
		if f.mayReply && replyOf(ev) != nil {
			reported = d.encodeReplyEvent
		}
		for _, body := range splitBodies(reported(ev)) {
			if write(ev.Seq, body) != nil {
				return errClientGone
			}
		}
		if d.EndsWhenSettled && f.isSettledBy(ev) {
			break
		}
		// What was read of the task for the first event is not needed any more.
		if f.reservation != nil {
			f.Task.History, f.Task.Artifacts = nil, nil
			f.reservation.ReleaseBytes()
			f.reservation = nil
		}
	}
	return nil
}

// accessRevokedError is the cause that ends a subscription whose client is no longer permitted to read the task.
type accessRevokedError struct{ cause error }

func (e *accessRevokedError) Error() string {
	return "the client may not read any more: " + e.cause.Error()
}

// watchAccess calls checkAccess every checkInterval until stop is called: a credential may expire or be revoked, and an
// app be suspended or deleted, while a stream is open. The check ends the subscription if it fails.
func (f *Subscription) watchAccess() (stop func()) {
	// mu guards over: stop may run between the check and the timer's reset, which would otherwise start the timer
	// again.
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(f.checkInterval, func() {
		if reason := f.checkAccess(f.ctx); reason != nil {
			f.cancel(&accessRevokedError{reason})
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			timer.Reset(f.checkInterval)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// checkAccess authenticates the request's credentials again and returns the error for which it would be refused now. It
// returns nil where the answer cannot be known, so that an unreachable database does not end streams.
func (v *Request) checkAccess(ctx context.Context) error {
	repeated, err := v.server.Authenticate(ctx, v.credentials)
	if err == nil {
		repeated.ReleaseApp()
		return nil
	}
	switch classifyError(err).code {
	case Unauthenticated, PermissionDenied, NotFound:
		return err
	}
	return nil
}

// splitBodies returns the bodies of what [StreamEncoder].EncodeEvent returned: none for nil.
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
func (f *Subscription) isSettledBy(ev agentsvc.Event) bool {
	return ev.Status != nil && ev.Seq >= f.Task.Seq && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted())
}

// isClientGone reports whether the client disconnected or a write to it failed.
func (f *Subscription) isClientGone() bool {
	if f.clientCtx.Err() != nil {
		return true
	}
	cause := context.Cause(f.ctx)
	return cause != nil && !errors.Is(cause, errStreamsEnding)
}

// Close ends the subscription and releases its resources. The task goes on. It may be called more than once.
func (f *Subscription) Close() {
	f.stopWatching()
	f.cancel(nil)
}
