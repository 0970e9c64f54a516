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
	Name         string            // of the agent in messages
	URL          string            // of its server, below which its card lies
	CardURL      string            // of its card, where it lies elsewhere
	Card         []byte            // the card itself, which is then not fetched
	Headers      map[string]string // sent to the server that URL, CardURL or Card names, and to no other
	Timeout      time.Duration     // of a turn, 30 s if zero
	CompleteOnly bool              // yield no chunks, only whole messages
	HTTP         *http.Client
}

// Remote is an agent on another server, which speaks A2A 1.0 or 0.3 over JSON-RPC or REST.
type Remote struct {
	options RemoteOptions
	server  remoteServer
}

// NewRemote returns an agent that calls another server. It returns an [agentsvc.InvalidError] for an address or a card
// that is none. Nothing is called before the first turn.
func NewRemote(o RemoteOptions) (*Remote, error) {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	p, err := newRemoteServer(o)
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
		within, cancel := context.WithTimeout(ctx, a.options.Timeout)
		defer cancel()
		v := &remoteRun{Remote: a, inv: inv, yield: yield, shownAnswer: shownAnswer{id: agentsvc.MessageID(agentsvc.NewID())}, artifacts: map[a2a.ArtifactID][]agentsvc.Part{}}
		err := v.sendMessage(within)
		switch {
		case err == nil || errors.Is(err, errStopped):
			return
		case ctx.Err() != nil:
			err = ctx.Err()
			if cause := (*agentsvc.CallCancelledError)(nil); errors.As(context.Cause(ctx), &cause) {
				v.cancelTask(ctx) // else somebody goes on with the turn
			}
		case within.Err() != nil:
			v.cancelTask(ctx)
			err = agentsvc.NewInvalidError("", "the remote agent %s did not answer within %v", a.options.Name, a.options.Timeout)
		}
		yield(agentsvc.Event{}, err)
	}
}

// remoteRun is one turn of a remote agent.
type remoteRun struct {
	*Remote
	inv    Invocation
	yield  func(agentsvc.Event, error) bool
	client *a2aclient.Client

	remote       remoteTask
	status       a2a.TaskStatus
	artifactText []agentsvc.Part                    // of artifacts, the answer where no message holds one
	artifacts    map[a2a.ArtifactID][]agentsvc.Part // artifacts, as far as they were told
	shownAnswer
}

// remoteTask is where a conversation with a remote agent stands. It is kept in the metadata of its answers.
type remoteTask struct {
	contextID string
	taskID    a2a.TaskID // that waits for an answer, or is at work
}

func (v *remoteRun) sendMessage(ctx context.Context) error {
	var err error
	if v.client, err = v.server.loadClient(ctx); err != nil {
		return v.publicError(err)
	}
	if err := agentsvc.CheckLease(ctx); err != nil {
		return err
	}
	msg := v.newMessage()
	// A server without streams answers at once as well: so the task that would be cancelled is known.
	req := &a2a.SendMessageRequest{Message: msg, Config: &a2a.SendMessageConfig{ReturnImmediately: true}}
	for ev, err := range v.client.SendStreamingMessage(ctx, req) {
		if err != nil {
			return v.publicError(err)
		}
		if m, ok := ev.(*a2a.Message); ok {
			v.remote = remoteTask{contextID: m.ContextID}
			return v.yieldAnswer(agentsvc.Completed, m)
		}
		if err := v.applyEvent(ev); err != nil {
			return err
		}
		if v.isSettled() {
			break
		}
	}
	if err := v.pollTask(ctx); err != nil {
		return err
	}
	return v.finishTurn()
}

// newMessage is what the remote agent is told.
func (v *remoteRun) newMessage() *a2a.Message {
	conversation := v.inv.Conversation
	from := 0
	for i, e := range slices.Backward(conversation) {
		if e.Message != nil && e.Message.Role == agentsvc.RoleAgent {
			from = i + 1
			break
		}
	}
	for _, e := range slices.Backward(conversation[:from]) {
		if p, ok := v.readRemoteTask(e.Message); ok {
			v.remote = p
			break
		}
	}
	msg := &a2a.Message{
		ID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(v.inv.stepID(0))).String(), Role: a2a.MessageRoleUser,
		ContextID: v.remote.contextID, TaskID: v.remote.taskID,
	}
	for _, e := range conversation[from:] {
		if e.Message != nil {
			msg.Parts = append(msg.Parts, toA2AParts(e.Message.Parts)...)
		}
	}
	return msg
}

// pollTask asks for the task until it has ended or waits for somebody, where a stream broke off before that.
func (v *remoteRun) pollTask(ctx context.Context) error {
	const first, last = 100 * time.Millisecond, 2 * time.Second
	for pause := first; !v.isSettled(); pause = min(2*pause, last) {
		if v.remote.taskID == "" {
			return agentsvc.NewInvalidError("", "the remote agent %s ended without an answer", v.options.Name)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		task, err := v.client.GetTask(ctx, &a2a.GetTaskRequest{ID: v.remote.taskID})
		if err != nil {
			return v.publicError(err)
		}
		if err := v.applyEvent(task); err != nil {
			return err
		}
	}
	return nil
}

// isSettled reports whether the remote task has ended or waits for somebody.
func (v *remoteRun) isSettled() bool {
	_, final := settledStates[v.status.State]
	return final
}

// settledStates are the states in which nothing more comes of a remote task by itself, and what they are here.
var settledStates = map[a2a.TaskState]agentsvc.State{
	a2a.TaskStateCompleted:     agentsvc.Completed,
	a2a.TaskStateInputRequired: agentsvc.InputRequired,
	a2a.TaskStateAuthRequired:  agentsvc.AuthRequired,
	a2a.TaskStateRejected:      agentsvc.Rejected,
	a2a.TaskStateFailed:        agentsvc.Failed,
	a2a.TaskStateCanceled:      agentsvc.Cancelled,
}

// applyEvent notes what an event tells and passes its artifacts on.
func (v *remoteRun) applyEvent(ev a2a.Event) error {
	switch ev := ev.(type) {
	case *a2a.Task:
		if err := v.updateStatus(remoteTask{ev.ContextID, ev.ID}, ev.Status); err != nil {
			return err
		}
		for _, art := range ev.Artifacts {
			have, known := v.artifacts[art.ID]
			if more := diffParts(have, fromA2AParts(art.Parts)); len(more) > 0 || !known {
				if err := v.addArtifact(art, more, known, v.isSettled()); err != nil {
					return err
				}
			}
		}
	case *a2a.TaskStatusUpdateEvent:
		return v.updateStatus(remoteTask{ev.ContextID, ev.TaskID}, ev.Status)
	case *a2a.TaskArtifactUpdateEvent:
		v.remote = remoteTask{ev.ContextID, ev.TaskID}
		if ev.Artifact != nil {
			return v.addArtifact(ev.Artifact, fromA2AParts(ev.Artifact.Parts), ev.Append, ev.LastChunk)
		}
	}
	return nil
}

// updateStatus notes where the remote task stands, and shows what is said while it is at work.
func (v *remoteRun) updateStatus(at remoteTask, status a2a.TaskStatus) error {
	v.remote, v.status = at, status
	if status.State != a2a.TaskStateWorking || status.Message == nil {
		return nil
	}
	return v.showText(v.unshownText(status.Message.ID, joinText(fromA2AParts(status.Message.Parts))))
}

// addArtifact takes parts of an artifact in: their text is shown, and the answer where no message holds one.
func (v *remoteRun) addArtifact(art *a2a.Artifact, parts []agentsvc.Part, more, last bool) error {
	if more {
		v.artifacts[art.ID] = joinParts(v.artifacts[art.ID], parts)
	} else {
		v.artifacts[art.ID] = joinParts(nil, parts)
	}
	if text := joinText(parts); text != "" {
		v.artifactText = joinParts(v.artifactText, []agentsvc.Part{agentsvc.TextPart(text)})
		if err := v.showText(text); err != nil {
			return err
		}
	}
	return v.recordArtifact(agentsvc.ArtifactUpdate{Append: more, Last: last, Artifact: agentsvc.Artifact{
		ID: string(art.ID), Name: art.Name, Description: art.Description, Parts: parts,
	}})
}

// finishTurn ends the turn as the remote task stands.
func (v *remoteRun) finishTurn() error {
	if err := v.flushArtifact(); err != nil {
		return err
	}
	switch state := settledStates[v.status.State]; state {
	case agentsvc.Failed, agentsvc.Cancelled:
		return agentsvc.NewInvalidError("", "the task of the remote agent %s was %s", v.options.Name, state)
	case agentsvc.Completed, agentsvc.Rejected:
		v.remote.taskID = ""
		return v.yieldAnswer(state, v.status.Message)
	default:
		return v.yieldAnswer(state, v.status.Message)
	}
}

// yieldAnswer ends the turn with what the remote agent said.
func (v *remoteRun) yieldAnswer(state agentsvc.State, m *a2a.Message) error {
	if err := v.flushArtifact(); err != nil {
		return err
	}
	answer := agentsvc.Message{Task: v.inv.Task, Role: agentsvc.RoleAgent, Parts: v.artifactText}
	if m != nil && len(m.Parts) > 0 {
		answer.Parts = fromA2AParts(m.Parts)
	}
	if len(answer.Parts) == 0 {
		answer.Parts = []agentsvc.Part{agentsvc.TextPart("")}
	}
	answer.ID = v.answerID(answer.Text())
	answer.Metadata = map[string]any{remoteTaskKey: map[string]any{"agent": v.options.Name, "context": v.remote.contextID, "task": string(v.remote.taskID)}}
	v.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &answer}}, nil)
	return nil
}

const remoteTaskKey = "remote"

// readRemoteTask reads from one of its answers where the conversation with this agent stands.
func (v *remoteRun) readRemoteTask(m *agentsvc.Message) (remoteTask, bool) {
	if m == nil {
		return remoteTask{}, false
	}
	saved, _ := m.Metadata[remoteTaskKey].(map[string]any)
	if name, _ := saved["agent"].(string); name != v.options.Name || name == "" {
		return remoteTask{}, false
	}
	in, _ := saved["context"].(string)
	task, _ := saved["task"].(string)
	return remoteTask{in, a2a.TaskID(task)}, true
}

// publicError is what a caller may read of an error of the other side.
func (v *remoteRun) publicError(err error) error {
	var invalid *agentsvc.InvalidError
	if errors.As(err, &invalid) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	why := egress.PublicMessage(err)
	for _, known := range remoteErrors {
		if errors.Is(err, known.err) {
			why = known.why
		}
	}
	return agentsvc.NewInvalidError("", "the remote agent %s could not be called: %s", v.options.Name, why)
}

// remoteErrors are the answers of A2A that tell what to do about them.
var remoteErrors = []struct {
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

// cancelTask tells the other side that nobody waits any more.
func (v *remoteRun) cancelTask(ctx context.Context) {
	if v.client == nil || v.remote.taskID == "" || v.isSettled() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = v.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: v.remote.taskID})
}
