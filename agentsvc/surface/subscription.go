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
	errStreamsEnding = errors.New("the server ends its streams")
	errWaitTimeout   = errors.New("the caller has waited long enough")
	errClientGone    = errors.New("the client is gone")
)

// Subscription is a task that somebody listens to.
type Subscription struct {
	Task          agentsvc.Task // as it stood when the listening began
	events        iter.Seq2[agentsvc.Event, error]
	reservation   *capacity.Reservation // of what was read of the task, until it has been told; nil = until the request is answered
	mayReply      bool                  // it is yet to be seen whether there is more to tell than a message
	ctx           context.Context
	cancel        context.CancelCauseFunc
	clientCtx     context.Context
	stopWatching  func() bool
	checkInterval time.Duration                   // how often allow is asked
	checkAccess   func(ctx context.Context) error // why the client may listen no more; nil where it still may
}

// newSubscription returns a following that ends with its client or with the server's streams. Until begun is called it ends at
// the server's deadline as well.
func (v *Request) newSubscription(ctx context.Context) (f *Subscription, started func() bool) {
	f = &Subscription{clientCtx: ctx, checkInterval: v.server.options.KeepAlive, checkAccess: v.checkAccess}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.stopWatching = context.AfterFunc(v.server.streamsCtx, func() { f.cancel(errStreamsEnding) })
	timer := time.AfterFunc(v.server.options.Deadline, func() { f.cancel(context.DeadlineExceeded) })
	return f, timer.Stop
}

// WithDeadline returns a context that ends when a request that does not wait for a task should have been answered.
func (v *Request) WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, v.server.options.Deadline)
}

// NewCleanupContext returns a context for what is left to write down when a request has been carried out, although its client
// may be gone.
func NewCleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

// SubmitMessage submits a message and does not listen.
func (v *Request) SubmitMessage(ctx context.Context, sub task.Submission) (agentsvc.Task, error) {
	if err := v.checkInputModes(sub); err != nil {
		return agentsvc.Task{}, err
	}
	ctx, cancel := v.WithDeadline(ctx)
	defer cancel()
	return v.tasks.Submit(ctx, sub)
}

// SubmitAndWait submits a message and returns its task: as it was accepted, or where there is patience as it stands when it has
// ended, waits for somebody, or patience is over.
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

// CancelTask ends a task. It returns [ErrNotCancelable] for one that has ended.
func (v *Request) CancelTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := v.tasks.Cancel(ctx, visibility, id)
	if errors.Is(err, agentsvc.ErrTaskEnded) {
		err = ErrNotCancelable
	}
	return t, err
}

// RestoreTask has a task go on from a checkpoint as another task of its owner's. Its agent takes what it takes of whoever sends it a
// message, and the owner's limits and budgets count it as one.
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

// AbandonTask cancels a task of the caller's whose client is gone and cannot come back to it.
func (v *Request) AbandonTask(ctx context.Context, t agentsvc.Task) {
	ctx, cancel := NewCleanupContext(ctx)
	defer cancel()
	_, _ = v.tasks.Cancel(ctx, task.Visibility{Agents: []string{t.Agent}, Owner: &t.Owner}, t.ID) // it may have ended
}

// SubmitAndSubscribe submits a message and listens to its turn.
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

// SubscribeTask listens to a task from where it stands, or after a sequence that the client has seen. It begins with the task
// as it stands, told as a status, unless the client has a place to go on from.
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

// completeSubscription lets go of the app: who listens holds no more than the pass.
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

// WaitSettled listens until the task has ended or waits for somebody, or patience is over, and returns it as it then stands. Where there is no
// memory for more of it, it returns what there is by then.
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
				return t, nil // it goes on, and can be read later
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

// writeEvents has say tell each event of f in a dialect, with its sequence, until they end. It returns nil at their end, errStreamsEnding
// where the server ends them, and errClientGone where nobody is told any more.
func (f *Subscription) writeEvents(d StreamEncoder, write func(seq int64, body any) error) error {
	defer f.watchAccess()()
	defer f.Close()
	if f.mayReply = f.mayReply && d.EncodeReply != nil; f.mayReply {
		f.events = deferUntilKnown(f.events)
	}
	for ev, err := range f.events {
		var out *accessRevokedError
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
		if f.reservation != nil {
			f.Task.History, f.Task.Artifacts = nil, nil // they were told with the first event
			f.reservation.ReleaseBytes()
			f.reservation = nil
		}
	}
	return nil
}

// accessRevokedError is the cause by which a client is told no more that would not be let in any more.
type accessRevokedError struct{ cause error }

func (e *accessRevokedError) Error() string {
	return "the client may listen no more: " + e.cause.Error()
}

// watchAccess sees now and then whether the client would still be let in, until stop is called: a credential may be revoked, or
// expire, while somebody listens.
func (f *Subscription) watchAccess() (stop func()) {
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

// checkAccess returns the error that the caller would be refused with by now, nil where it would be let in or where that
// cannot be known.
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

// splitBodies are those that tell of one event.
func splitBodies(reported any) Bodies {
	switch reported := reported.(type) {
	case nil:
		return nil
	case Bodies:
		return reported
	}
	return Bodies{reported}
}

// isSettledBy reports whether ev, which comes after what the following began with, ends the task or has it wait.
func (f *Subscription) isSettledBy(ev agentsvc.Event) bool {
	return ev.Status != nil && ev.Seq >= f.Task.Seq && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted())
}

// isClientGone reports whether the client has left or no longer takes what it is sent.
func (f *Subscription) isClientGone() bool {
	if f.clientCtx.Err() != nil {
		return true
	}
	cause := context.Cause(f.ctx)
	return cause != nil && !errors.Is(cause, errStreamsEnding)
}

// Close ends the listening.
func (f *Subscription) Close() {
	f.stopWatching()
	f.cancel(nil)
}
