package agent

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
)

// RemoteOptions say where a [Remote] agent is and how it is called. One of URL, CardURL and Card is needed.
type RemoteOptions struct {
	Name    string            // of the agent in messages
	URL     string            // of its server, below which its card lies
	CardURL string            // of its card, where it lies elsewhere
	Card    []byte            // the card itself, which is then not fetched
	Headers map[string]string // sent to the server that URL, CardURL or Card names, and to no other
	Timeout time.Duration     // of a turn, 30 s if zero
	Whole   bool              // yield no chunks, only whole messages
	HTTP    *http.Client
}

// Remote is an agent on another server, which speaks A2A 1.0 or 0.3 over JSON-RPC or REST.
type Remote struct {
	o    RemoteOptions
	peer peer
}

// NewRemote returns an agent that calls another server. It returns an [agentsvc.InvalidError] for an address or a card
// that is none. Nothing is called before the first turn.
func NewRemote(o RemoteOptions) (*Remote, error) {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	p, err := newPeer(o)
	if err != nil {
		return nil, err
	}
	return &Remote{o, p}, nil
}

// Run implements [Agent]. It sends what the user has said since the remote agent's last answer, in the remote context
// of that answer, and to the same remote task if that one waits. The message's id is the same in each attempt of the
// turn, by which the other side can tell that it has had it.
func (a *Remote) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		within, cancel := context.WithTimeout(ctx, a.o.Timeout)
		defer cancel()
		v := &visit{Remote: a, inv: inv, yield: yield, live: live{id: agentsvc.MessageID(agentsvc.NewID())}, made: map[a2a.ArtifactID][]agentsvc.Part{}}
		err := v.call(within)
		switch {
		case err == nil || errors.Is(err, errStopped):
			return
		case ctx.Err() != nil:
			err = ctx.Err()
			if cause := (*agentsvc.CancelledError)(nil); errors.As(context.Cause(ctx), &cause) {
				v.cancel(ctx) // else somebody goes on with the turn
			}
		case within.Err() != nil:
			v.cancel(ctx)
			err = agentsvc.Invalid("", "the remote agent %s did not answer within %v", a.o.Name, a.o.Timeout)
		}
		yield(agentsvc.Event{}, err)
	}
}

// visit is one turn of a remote agent.
type visit struct {
	*Remote
	inv    Invocation
	yield  func(agentsvc.Event, error) bool
	client *a2aclient.Client

	place  place
	status a2a.TaskStatus
	text   []agentsvc.Part                    // of artifacts, the answer where no message holds one
	made   map[a2a.ArtifactID][]agentsvc.Part // artifacts, as far as they were told
	live
}

// place is where a conversation with a remote agent stands. It is kept in the metadata of its answers.
type place struct {
	context string
	task    a2a.TaskID // that waits for an answer, or is at work
}

func (v *visit) call(ctx context.Context) error {
	var err error
	if v.client, err = v.peer.connect(ctx); err != nil {
		return v.failed(err)
	}
	if err := agentsvc.Holds(ctx); err != nil {
		return err
	}
	msg := v.message()
	// A server without streams answers at once as well: so the task that would be cancelled is known.
	req := &a2a.SendMessageRequest{Message: msg, Config: &a2a.SendMessageConfig{ReturnImmediately: true}}
	for ev, err := range v.client.SendStreamingMessage(ctx, req) {
		if err != nil {
			return v.failed(err)
		}
		if m, ok := ev.(*a2a.Message); ok {
			v.place = place{context: m.ContextID}
			return v.end(agentsvc.Completed, m)
		}
		if err := v.take(ev); err != nil {
			return err
		}
		if v.rests() {
			break
		}
	}
	if err := v.wait(ctx); err != nil {
		return err
	}
	return v.conclude()
}

// message is what the remote agent is told.
func (v *visit) message() *a2a.Message {
	talk := v.inv.Conversation
	from := 0
	for i, e := range slices.Backward(talk) {
		if e.Message != nil && e.Message.Role == agentsvc.RoleAgent {
			from = i + 1
			break
		}
	}
	for _, e := range slices.Backward(talk[:from]) {
		if p, ok := v.recall(e.Message); ok {
			v.place = p
			break
		}
	}
	msg := &a2a.Message{
		ID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(v.inv.step(0))).String(), Role: a2a.MessageRoleUser,
		ContextID: v.place.context, TaskID: v.place.task,
	}
	for _, e := range talk[from:] {
		if e.Message != nil {
			msg.Parts = append(msg.Parts, toRemote(e.Message.Parts)...)
		}
	}
	return msg
}

// wait asks for the task until it has ended or waits for somebody, where a stream broke off before that.
func (v *visit) wait(ctx context.Context) error {
	const first, last = 100 * time.Millisecond, 2 * time.Second
	for pause := first; !v.rests(); pause = min(2*pause, last) {
		if v.place.task == "" {
			return agentsvc.Invalid("", "the remote agent %s ended without an answer", v.o.Name)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		task, err := v.client.GetTask(ctx, &a2a.GetTaskRequest{ID: v.place.task})
		if err != nil {
			return v.failed(err)
		}
		if err := v.take(task); err != nil {
			return err
		}
	}
	return nil
}

// rests reports whether the remote task has ended or waits for somebody.
func (v *visit) rests() bool {
	_, final := finals[v.status.State]
	return final
}

// finals are the states in which nothing more comes of a remote task by itself, and what they are here.
var finals = map[a2a.TaskState]agentsvc.State{
	a2a.TaskStateCompleted:     agentsvc.Completed,
	a2a.TaskStateInputRequired: agentsvc.InputRequired,
	a2a.TaskStateAuthRequired:  agentsvc.AuthRequired,
	a2a.TaskStateRejected:      agentsvc.Rejected,
	a2a.TaskStateFailed:        agentsvc.Failed,
	a2a.TaskStateCanceled:      agentsvc.Cancelled,
}

// take notes what an event tells and passes its artifacts on.
func (v *visit) take(ev a2a.Event) error {
	switch ev := ev.(type) {
	case *a2a.Task:
		if err := v.stands(place{ev.ContextID, ev.ID}, ev.Status); err != nil {
			return err
		}
		for _, art := range ev.Artifacts {
			have, known := v.made[art.ID]
			if more := beyond(have, fromRemote(art.Parts)); len(more) > 0 || !known {
				if err := v.artifact(art, more, known, v.rests()); err != nil {
					return err
				}
			}
		}
	case *a2a.TaskStatusUpdateEvent:
		return v.stands(place{ev.ContextID, ev.TaskID}, ev.Status)
	case *a2a.TaskArtifactUpdateEvent:
		v.place = place{ev.ContextID, ev.TaskID}
		if ev.Artifact != nil {
			return v.artifact(ev.Artifact, fromRemote(ev.Artifact.Parts), ev.Append, ev.LastChunk)
		}
	}
	return nil
}

// stands notes where the remote task stands, and shows what is said while it is at work.
func (v *visit) stands(at place, status a2a.TaskStatus) error {
	v.place, v.status = at, status
	if status.State != a2a.TaskStateWorking || status.Message == nil {
		return nil
	}
	return v.show(v.news(status.Message.ID, textOf(fromRemote(status.Message.Parts))))
}

// artifact takes parts of an artifact in: their text is shown, and the answer where no message holds one.
func (v *visit) artifact(art *a2a.Artifact, parts []agentsvc.Part, more, last bool) error {
	if more {
		v.made[art.ID] = joined(v.made[art.ID], parts)
	} else {
		v.made[art.ID] = joined(nil, parts)
	}
	if text := textOf(parts); text != "" {
		v.text = joined(v.text, []agentsvc.Part{agentsvc.TextPart(text)})
		if err := v.show(text); err != nil {
			return err
		}
	}
	return v.record(agentsvc.ArtifactUpdate{Append: more, Last: last, Artifact: agentsvc.Artifact{
		ID: string(art.ID), Name: art.Name, Description: art.Description, Parts: parts,
	}})
}

// conclude ends the turn as the remote task stands.
func (v *visit) conclude() error {
	if err := v.flush(); err != nil {
		return err
	}
	switch state := finals[v.status.State]; state {
	case agentsvc.Failed, agentsvc.Cancelled:
		return agentsvc.Invalid("", "the task of the remote agent %s was %s", v.o.Name, state)
	case agentsvc.Completed, agentsvc.Rejected:
		v.place.task = ""
		return v.end(state, v.status.Message)
	default:
		return v.end(state, v.status.Message)
	}
}

// end ends the turn with what the remote agent said.
func (v *visit) end(state agentsvc.State, m *a2a.Message) error {
	if err := v.flush(); err != nil {
		return err
	}
	answer := agentsvc.Message{Task: v.inv.Task, Role: agentsvc.RoleAgent, Parts: v.text}
	if m != nil && len(m.Parts) > 0 {
		answer.Parts = fromRemote(m.Parts)
	}
	if len(answer.Parts) == 0 {
		answer.Parts = []agentsvc.Part{agentsvc.TextPart("")}
	}
	answer.ID = v.of(answer.Text())
	answer.Metadata = map[string]any{placeKey: map[string]any{"agent": v.o.Name, "context": v.place.context, "task": string(v.place.task)}}
	v.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &answer}}, nil)
	return nil
}

const placeKey = "remote"

// recall reads from one of its answers where the conversation with this agent stands.
func (v *visit) recall(m *agentsvc.Message) (place, bool) {
	if m == nil {
		return place{}, false
	}
	kept, _ := m.Metadata[placeKey].(map[string]any)
	if name, _ := kept["agent"].(string); name != v.o.Name || name == "" {
		return place{}, false
	}
	in, _ := kept["context"].(string)
	task, _ := kept["task"].(string)
	return place{in, a2a.TaskID(task)}, true
}

// failed is what a caller may read of an error of the other side.
func (v *visit) failed(err error) error {
	var invalid *agentsvc.InvalidError
	if errors.As(err, &invalid) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	why := egress.Reason(err)
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			why = known.why
		}
	}
	return agentsvc.Invalid("", "the remote agent %s could not be called: %s", v.o.Name, why)
}

// refusals are the answers of A2A that tell what to do about them.
var refusals = []struct {
	err error
	why string
}{
	{a2a.ErrUnauthenticated, "it does not accept the credential"},
	{a2a.ErrUnauthorized, "it does not allow the call"},
	{a2a.ErrTaskNotFound, "it does not know the task any more"},
	{a2a.ErrUnsupportedContentType, "it does not read this type of content"},
	{a2a.ErrVersionNotSupported, "it does not speak this version of A2A"},
	{a2a.ErrInvalidParams, "it refuses the message"},
	{a2a.ErrInvalidRequest, "it refuses the message"},
	{a2a.ErrMethodNotFound, "its server does not know the method"},
	{a2a.ErrUnsupportedOperation, "its server does not do this"},
	{a2a.ErrInternalError, "its server met an error"},
	{a2a.ErrServerError, "its server met an error"},
}

// cancel tells the other side that nobody waits any more.
func (v *visit) cancel(ctx context.Context) {
	if v.client == nil || v.place.task == "" || v.rests() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = v.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: v.place.task})
}
