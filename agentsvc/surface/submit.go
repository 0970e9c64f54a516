package surface

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/sse"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
)

// WithDeadline returns a context with the deadline of a request that does not wait for a task, for the parts of a
// longer one.
func (req *Request) WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, req.server.options.Deadline)
}

// SubmitMessage submits a message and returns its task as it was accepted. It returns an [apierror.CodeContentType] for
// content that the agent does not read, else what [task.Messages.Submit] returns.
func (req *Request) SubmitMessage(ctx context.Context, sub task.Submission) (agentsvc.Task, error) {
	if err := req.checkInputModes(sub); err != nil {
		return agentsvc.Task{}, err
	}
	ctx, cancel := req.WithDeadline(ctx)
	defer cancel()
	sub.Memory, sub.Origin = req.memory, req.origin
	t, err := req.Tasks.Messages.Submit(ctx, sub)
	req.recordTask(t.ID)
	return t, err
}

// recordTask puts the request's task into its log line; "" = there is none.
func (req *Request) recordTask(id agentsvc.TaskID) {
	if req.requestRecord != nil && id != "" {
		req.requestRecord.task = id
	}
}

// SubmitAndWait submits a message and waits for at most timeout until its task has ended or waits for input. It returns
// the task as it is by then: a task that still works is no error. A timeout of 0 does not wait.
func (req *Request) SubmitAndWait(ctx context.Context, sub task.Submission, timeout time.Duration) (agentsvc.Task, error) {
	if timeout == 0 {
		return req.SubmitMessage(ctx, sub)
	}
	f, err := req.SubmitAndSubscribe(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	return f.WaitSettled(timeout)
}

// CancelTask cancels a task. It returns [apierror.ErrNotCancelable] for one that has ended, and [agentsvc.ErrNotFound]
// for one outside of visibility.
func (req *Request) CancelTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := req.Tasks.Canceller.Cancel(ctx, visibility, id)
	req.recordTask(t.ID)
	if errors.Is(err, agentsvc.ErrTaskEnded) {
		err = apierror.ErrNotCancelable
	}
	return t, err
}

// RestoreTask starts a new task from a checkpoint of a task that failed or was cancelled. The new task belongs to the
// owner of the old one. It requires the credentials that the agent requires for a message, and counts as a call of the
// owner against limits and budgets. It returns the errors of [task.Checkpoints.Restore] and of AdmitCall.
func (req *Request) RestoreTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID, checkpoint int64) (agentsvc.Task, error) {
	t, err := req.Tasks.Reader.Get(ctx, visibility, id, store.TaskParts{})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if err := req.requireAgentCredentials(ctx, t.Agent); err != nil {
		return agentsvc.Task{}, err
	}
	if c, ok := req.Runtime.Card(t.Agent); ok {
		if c.Visibility == agentsvc.Internal && req.Principal.Anonymous {
			return agentsvc.Task{}, apierror.ErrNoAgent
		}
		req.RecordAgent(c)
	}
	sub := task.Submission{Agent: t.Agent, Owner: t.Owner, Message: agentsvc.Message{Context: t.Context}}
	if err := req.AdmitCall(ctx, &sub); err != nil {
		return agentsvc.Task{}, err
	}
	restored, err := req.Tasks.Checkpoints.Restore(ctx, visibility, id, checkpoint, req.Actor(), sub.LimitReservation)
	req.recordTask(restored.ID)
	return restored, err
}

// AbandonTask cancels a task of the caller, whose client disconnected from a stream that it cannot resume. Errors are
// ignored, since the task may have ended meanwhile. It does not end with the client's request.
func (req *Request) AbandonTask(ctx context.Context, t agentsvc.Task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = req.Tasks.Canceller.Cancel(ctx, task.Visibility{Agents: []string{t.Agent}, Owner: &t.Owner, Memory: req.memory}, t.ID)
}

// SubmitAndSubscribe submits a message and returns a subscription that begins with the first event of its turn. It
// releases the app. When it returns without an error the turn is stored: it goes on even if the subscription is closed.
func (req *Request) SubmitAndSubscribe(ctx context.Context, sub task.Submission) (*stream.Subscription, error) {
	if err := req.checkInputModes(sub); err != nil {
		return nil, err
	}
	o := req.streamOptions()
	card, _ := req.Runtime.Card(sub.Agent)
	o.MayReply = card.StandaloneReplies && sub.Message.Task == ""
	sub.Memory, sub.Origin = req.memory, req.origin
	defer req.ReleaseApp()
	return stream.Open(ctx, o, func(ctx context.Context) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
		t, events, err := req.Tasks.Messages.SubmitAndFollow(ctx, sub)
		req.recordTask(t.ID)
		return t, events, err
	})
}

// SubscribeTask subscribes to an existing task. With after = nil the first event is the current state as a status with
// the task's sequence; else the events after that sequence follow, which is how a client resumes. It releases the app.
// It returns [agentsvc.ErrNotFound] for a task outside of visibility and an error with [agentsvc.CodeInvalid] for a
// sequence that the task has not reached.
func (req *Request) SubscribeTask(ctx context.Context, visibility task.Visibility, id agentsvc.TaskID, after *int64) (*stream.Subscription, error) {
	o := req.streamOptions()
	o.DropsTask = o.Memory != nil
	defer req.ReleaseApp()
	return stream.Open(ctx, o, func(ctx context.Context) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
		t, remaining, err := req.Tasks.Reader.Follow(ctx, visibility, id, after)
		req.recordTask(t.ID)
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
func (req *Request) streamOptions() stream.Options {
	o := &req.server.options
	return stream.Options{Stopping: req.server.streamsCtx, Deadline: o.Deadline, CheckInterval: o.KeepAlive, CheckAccess: req.checkAccess, Memory: req.memory}
}

// checkAccess authenticates the request's credentials again and returns the error for which it would be refused now. It
// returns nil where the answer cannot be known, so that an unreachable database does not end streams.
func (req *Request) checkAccess(ctx context.Context) error {
	repeated, err := req.server.Authenticate(ctx, req.credentials)
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
func (req *Request) StreamEvents(w http.ResponseWriter, f *stream.Subscription, d stream.Encoder) error {
	req.openStream()
	defer req.closeStream()
	o := req.server.options
	return f.WriteSSE(w, d, sse.Options{PieceTimeout: o.PieceTimeout, KeepAlive: o.KeepAlive, Memory: req.memory.NewPart(1)})
}

// openStream counts an open stream of events or a WebSocket. closeStream must follow.
func (req *Request) openStream() {
	req.stream = true
	req.server.openStreams.Add(1)
}

// closeStream ends what openStream began.
func (req *Request) closeStream() { req.server.openStreams.Add(-1) }
