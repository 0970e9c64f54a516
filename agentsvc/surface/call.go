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
	errEnding   = errors.New("the server ends its streams")
	errPatience = errors.New("the caller has waited long enough")
	errGone     = errors.New("the client is gone")
)

// Following is a task that somebody listens to.
type Following struct {
	Task   agentsvc.Task // as it stood when the listening began
	events iter.Seq2[agentsvc.Event, error]
	held   *capacity.Hold // of what was read of the task, until it has been told; nil = until the request is answered
	open   bool           // it is yet to be seen whether there is more to tell than a message
	ctx    context.Context
	cancel context.CancelCauseFunc
	client context.Context
	stop   func() bool
	every  time.Duration                   // how often allow is asked
	allow  func(ctx context.Context) error // why the client may listen no more; nil where it still may
}

// listen returns a following that ends with its client or with the server's streams. Until begun is called it ends at
// the server's deadline as well.
func (v *Visit) listen(ctx context.Context) (f *Following, begun func() bool) {
	f = &Following{client: ctx, every: v.server.options.KeepAlive, allow: v.wouldEnter}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.stop = context.AfterFunc(v.server.ending, func() { f.cancel(errEnding) })
	timer := time.AfterFunc(v.server.options.Deadline, func() { f.cancel(context.DeadlineExceeded) })
	return f, timer.Stop
}

// InTime returns a context that ends when a request that does not wait for a task should have been answered.
func (v *Visit) InTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, v.server.options.Deadline)
}

// Afterwards returns a context for what is left to write down when a request has been carried out, although its client
// may be gone.
func Afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

// Submit submits a message and does not listen.
func (v *Visit) Submit(ctx context.Context, sub task.Submission) (agentsvc.Task, error) {
	if err := v.readable(sub); err != nil {
		return agentsvc.Task{}, err
	}
	ctx, cancel := v.InTime(ctx)
	defer cancel()
	return v.tasks.Submit(ctx, sub)
}

// Send submits a message and returns its task: as it was accepted, or where there is patience as it stands when it has
// ended, waits for somebody, or patience is over.
func (v *Visit) Send(ctx context.Context, sub task.Submission, patience time.Duration) (agentsvc.Task, error) {
	if patience == 0 {
		return v.Submit(ctx, sub)
	}
	f, err := v.Call(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	return f.Wait(patience)
}

// Cancel ends a task. It returns [ErrNotCancelable] for one that has ended.
func (v *Visit) Cancel(ctx context.Context, reach task.Reach, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := v.tasks.Cancel(ctx, reach, id)
	if errors.Is(err, agentsvc.ErrTerminal) {
		err = ErrNotCancelable
	}
	return t, err
}

// Restore has a task go on from a checkpoint as another task of its owner's. Its agent takes what it takes of whoever sends it a
// message, and the owner's limits and budgets count it as one.
func (v *Visit) Restore(ctx context.Context, reach task.Reach, id agentsvc.TaskID, checkpoint int64) (agentsvc.Task, error) {
	t, err := v.tasks.Get(ctx, reach, id, store.With{})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if err := v.satisfy(ctx, t.Agent); err != nil {
		return agentsvc.Task{}, err
	}
	if c, ok := v.house.Card(t.Agent); ok {
		if c.Visibility == agentsvc.Internal && v.Principal.Anonymous {
			return agentsvc.Task{}, errNoAgent
		}
		v.about(c)
	}
	sub := task.Submission{Agent: t.Agent, Owner: t.Owner, Message: agentsvc.Message{Context: t.Context}}
	if err := v.reserve(ctx, &sub); err != nil {
		return agentsvc.Task{}, err
	}
	return v.tasks.Restore(ctx, reach, id, checkpoint, v.Principal.Owner(), sub.Hold)
}

// Abandon cancels a task of the caller's whose client is gone and cannot come back to it.
func (v *Visit) Abandon(ctx context.Context, t agentsvc.Task) {
	ctx, cancel := Afterwards(ctx)
	defer cancel()
	_, _ = v.tasks.Cancel(ctx, task.Reach{Agents: []string{t.Agent}, Owner: &t.Owner}, t.ID) // it may have ended
}

// Call submits a message and listens to its turn.
func (v *Visit) Call(ctx context.Context, sub task.Submission) (*Following, error) {
	if err := v.readable(sub); err != nil {
		return nil, err
	}
	f, begun := v.listen(ctx)
	var err error
	f.Task, f.events, err = v.tasks.Call(f.ctx, sub)
	card, _ := v.house.Card(sub.Agent)
	f.open = card.Replies && sub.Message.Task == ""
	return v.followed(f, begun, err)
}

// Follow listens to a task from where it stands, or after a sequence that the client has seen. It begins with the task
// as it stands, told as a status, unless the client has a place to go on from.
func (v *Visit) Follow(ctx context.Context, reach task.Reach, id agentsvc.TaskID, after *int64) (*Following, error) {
	f, begun := v.listen(ctx)
	var err error
	f.Task, f.events, err = v.tasks.Follow(f.ctx, reach, id, after)
	f.held = capacity.Of(ctx)
	if err == nil && after != nil && *after > f.Task.Seq {
		err = agentsvc.Invalid("after", "the task has no event %d yet", *after)
	}
	if after == nil {
		rest := f.events
		f.events = func(yield func(agentsvc.Event, error) bool) {
			status := f.Task.Status
			if yield(agentsvc.Event{Task: f.Task.ID, Seq: f.Task.Seq, At: status.At, Status: &status}, nil) {
				rest(yield)
			}
		}
	}
	return v.followed(f, begun, err)
}

// followed lets go of the app: who listens holds no more than the pass.
func (v *Visit) followed(f *Following, begun func() bool, err error) (*Following, error) {
	begun()
	v.Leave()
	if err == nil {
		return f, nil
	}
	if cause := context.Cause(f.ctx); cause != nil && f.client.Err() == nil {
		err = context.DeadlineExceeded
	}
	f.Close()
	return nil, err
}

// Wait listens until the task has ended or waits for somebody, or patience is over, and returns it as it then stands. Where there is no
// memory for more of it, it returns what there is by then.
func (f *Following) Wait(patience time.Duration) (agentsvc.Task, error) {
	defer f.Close()
	t := f.Task
	if t.Status.State.Terminal() || t.Status.State.Interrupted() {
		return t, nil
	}
	timer := time.AfterFunc(patience, func() { f.cancel(errPatience) })
	defer timer.Stop()
	held := capacity.Of(f.client)
	for ev, err := range f.events {
		if err == nil && ev.Chunk == nil {
			err = held.Add(f.ctx, ev.Bytes())
		}
		if err != nil {
			if errors.Is(err, capacity.ErrFull) {
				return t, nil // it goes on, and can be read later
			}
			if cause := context.Cause(f.ctx); errors.Is(cause, errPatience) || errors.Is(cause, errEnding) {
				return t, nil
			}
			return agentsvc.Task{}, err
		}
		t.Apply(ev)
		if f.rests(ev) {
			break
		}
	}
	return t, nil
}

// tell has say tell each event of f in a dialect, with its sequence, until they end. It returns nil at their end, errEnding
// where the server ends them, and errGone where nobody is told any more.
func (f *Following) tell(d Dialect, say func(seq int64, body any) error) error {
	defer f.attend()()
	defer f.Close()
	if f.open = f.open && d.Reply != nil; f.open {
		f.events = settled(f.events)
	}
	for ev, err := range f.events {
		var out *shutOut
		switch {
		case err == nil:
		case errors.As(context.Cause(f.ctx), &out):
			return out.why
		case f.gone():
			return errGone
		case errors.Is(context.Cause(f.ctx), errEnding):
			return errEnding
		default:
			return err
		}
		told := d.Event
		if f.open && replyOf(ev) != nil {
			told = d.reply
		}
		for _, body := range bodies(told(ev)) {
			if say(ev.Seq, body) != nil {
				return errGone
			}
		}
		if d.Rests && f.rests(ev) {
			break
		}
		if f.held != nil {
			f.Task.History, f.Task.Artifacts = nil, nil // they were told with the first event
			f.held.Release()
			f.held = nil
		}
	}
	return nil
}

// shutOut is the cause by which a client is told no more that would not be let in any more.
type shutOut struct{ why error }

func (e *shutOut) Error() string { return "the client may listen no more: " + e.why.Error() }

// attend sees now and then whether the client would still be let in, until stop is called: a credential may be revoked, or
// expire, while somebody listens.
func (f *Following) attend() (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(f.every, func() {
		if why := f.allow(f.ctx); why != nil {
			f.cancel(&shutOut{why})
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			timer.Reset(f.every)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// wouldEnter returns the error that the caller would be refused with by now, nil where it would be let in or where that
// cannot be known.
func (v *Visit) wouldEnter(ctx context.Context) error {
	again, err := v.server.Enter(ctx, v.knock)
	if err == nil {
		again.Leave()
		return nil
	}
	switch judge(err).code {
	case Unauthenticated, PermissionDenied, NotFound:
		return err
	}
	return nil
}

// bodies are those that tell of one event.
func bodies(told any) Several {
	switch told := told.(type) {
	case nil:
		return nil
	case Several:
		return told
	}
	return Several{told}
}

// rests reports whether ev, which comes after what the following began with, ends the task or has it wait.
func (f *Following) rests(ev agentsvc.Event) bool {
	return ev.Status != nil && ev.Seq >= f.Task.Seq && (ev.Status.State.Terminal() || ev.Status.State.Interrupted())
}

// gone reports whether the client has left or no longer takes what it is sent.
func (f *Following) gone() bool {
	if f.client.Err() != nil {
		return true
	}
	cause := context.Cause(f.ctx)
	return cause != nil && !errors.Is(cause, errEnding)
}

// Close ends the listening.
func (f *Following) Close() {
	f.stop()
	f.cancel(nil)
}
