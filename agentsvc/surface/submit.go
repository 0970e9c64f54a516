package surface

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/sse"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
)

// WithDeadline returns a context with the deadline of a request that does not wait for a task, for the parts of a
// longer one.
func (v *Request) WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, v.server.options.Deadline)
}

// SubmitMessage submits a message and returns its task as it was accepted. It returns an [apierror.CodeContentType] for content
// that the agent does not read, else what [task.Service.Submit] returns.
func (v *Request) SubmitMessage(ctx context.Context, sub task.Submission) (agentsvc.Task, error) {
	if err := v.checkInputModes(sub); err != nil {
		return agentsvc.Task{}, err
	}
	ctx, cancel := v.WithDeadline(ctx)
	defer cancel()
	return v.Tasks.Submit(ctx, sub)
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

// CancelTask cancels a task. It returns [apierror.ErrNotCancelable] for one that has ended, and [agentsvc.ErrNotFound] for one
// outside of visibility.
func (v *Request) CancelTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := v.Tasks.Cancel(ctx, visibility, id)
	if errors.Is(err, agentsvc.ErrTaskEnded) {
		err = apierror.ErrNotCancelable
	}
	return t, err
}

// RestoreTask starts a new task from a checkpoint of a task that failed or was cancelled. The new task belongs to the
// owner of the old one. It requires the credentials that the agent requires for a message, and counts as a call of the
// owner against limits and budgets. It returns the errors of [task.Service.RestoreCheckpoint] and of AdmitCall.
func (v *Request) RestoreTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID, checkpoint int64) (agentsvc.Task, error) {
	t, err := v.Tasks.Get(ctx, visibility, id, store.TaskParts{})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if err := v.requireAgentCredentials(ctx, t.Agent); err != nil {
		return agentsvc.Task{}, err
	}
	if c, ok := v.Runtime.Card(t.Agent); ok {
		if c.Visibility == agentsvc.Internal && v.Principal.Anonymous {
			return agentsvc.Task{}, apierror.ErrNoAgent
		}
		v.RecordAgent(c)
	}
	sub := task.Submission{Agent: t.Agent, Owner: t.Owner, Message: agentsvc.Message{Context: t.Context}}
	if err := v.AdmitCall(ctx, &sub); err != nil {
		return agentsvc.Task{}, err
	}
	return v.Tasks.RestoreCheckpoint(ctx, visibility, id, checkpoint, v.Principal.Owner(), sub.Reservation)
}

// AbandonTask cancels a task of the caller, whose client disconnected from a stream that it cannot resume. Errors are
// ignored, since the task may have ended meanwhile. It does not end with the client's request.
func (v *Request) AbandonTask(ctx context.Context, t agentsvc.Task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = v.Tasks.Cancel(ctx, task.Visibility{Agents: []string{t.Agent}, Owner: &t.Owner}, t.ID)
}

// SubmitAndSubscribe submits a message and returns a subscription that begins with the first event of its turn. It
// releases the app. When it returns without an error the turn is stored: it goes on even if the subscription is closed.
func (v *Request) SubmitAndSubscribe(ctx context.Context, sub task.Submission) (*stream.Subscription, error) {
	if err := v.checkInputModes(sub); err != nil {
		return nil, err
	}
	o := v.streamOptions()
	card, _ := v.Runtime.Card(sub.Agent)
	o.MayReply = card.StandaloneReplies && sub.Message.Task == ""
	defer v.ReleaseApp()
	return stream.Open(ctx, o, func(ctx context.Context) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
		return v.Tasks.SubmitAndFollow(ctx, sub)
	})
}

// SubscribeTask subscribes to an existing task. With after = nil the first event is the current state as a status with
// the task's sequence; else the events after that sequence follow, which is how a client resumes. It releases the app.
// It returns [agentsvc.ErrNotFound] for a task outside of visibility and an error with [agentsvc.CodeInvalid] for a sequence
// that the task has not reached.
func (v *Request) SubscribeTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID, after *int64) (*stream.Subscription, error) {
	o := v.streamOptions()
	o.Reservation = capacity.ReservationFrom(ctx)
	defer v.ReleaseApp()
	return stream.Open(ctx, o, func(ctx context.Context) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
		t, remaining, err := v.Tasks.Follow(ctx, visibility, id, after)
		switch {
		case err != nil:
			return t, nil, err
		case after == nil:
			return t, prependStatus(t.ID, t.Seq, t.Status, remaining), nil
		case *after > t.Seq:
			return t, nil, agentsvc.NewInvalidError("after", "the task has no event %d yet", *after)
		}
		return t, remaining, nil
	})
}

// prependStatus yields the status of a task as an event, then events.
func prependStatus(id agentsvc.TaskID, seq int64, status agentsvc.Status, events iter.Seq2[agentsvc.Event, error]) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		if yield(agentsvc.Event{Task: id, Seq: seq, At: status.At, Status: &status}, nil) {
			events(yield)
		}
	}
}

// streamOptions returns the options of the caller's subscriptions.
func (v *Request) streamOptions() stream.Options {
	o := &v.server.options
	return stream.Options{Stopping: v.server.streamsCtx, Deadline: o.Deadline, CheckInterval: o.KeepAlive, CheckAccess: v.checkAccess}
}

// checkAccess authenticates the request's credentials again and returns the error for which it would be refused now. It
// returns nil where the answer cannot be known, so that an unreachable database does not end streams.
func (v *Request) checkAccess(ctx context.Context) error {
	repeated, err := v.server.Authenticate(ctx, v.credentials)
	if err == nil {
		repeated.ReleaseApp()
		return nil
	}
	switch apierror.Classify(err).Code {
	case apierror.Unauthenticated, apierror.PermissionDenied, apierror.NotFound:
		return err
	}
	return nil
}

// StreamEvents writes the events of f as server-sent events, see [stream.Subscription.WriteSSE].
func (v *Request) StreamEvents(w http.ResponseWriter, f *stream.Subscription, d stream.Encoder) error {
	v.server.openStreams.Add(1)
	defer v.server.openStreams.Add(-1)
	o := v.server.options
	return f.WriteSSE(w, d, sse.Options{PieceTimeout: o.PieceTimeout, KeepAlive: o.KeepAlive, Reservation: v.newPartReservation()})
}

// newPartReservation returns a reservation of the response's memory for a part that ends before the response does, nil
// outside of a request. The caller releases it.
func (v *Request) newPartReservation() *capacity.Reservation {
	if v.record == nil {
		return nil
	}
	return v.record.writer.Reservation.NewPart(1)
}
