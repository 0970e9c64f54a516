package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/uuid"

	"stoa/agentsvc"
)

// RemoteOptions configure a [Remote] agent. One of URL, CardURL and Card is required.
type RemoteOptions struct {
	// Name is the agent's configured name, for errors and metadata.
	Name string
	// URL is the server's address; its card is at /.well-known/agent-card.json below it (A2A specification, agent
	// discovery).
	URL string
	// CardURL is the address of the card, if it is another one.
	CardURL string
	// Card is the card as JSON; then none is fetched. CardURL is then empty.
	Card []byte
	// Headers are sent to the origins that URL and CardURL name, without both to those that Card names, and to no
	// other, because they may hold credentials.
	Headers map[string]string
	// Timeout bounds one attempt of a turn, 0 = 30 s.
	Timeout time.Duration
	// MaxBytes bounds the text of a turn's answer, in bytes, and with fileFactor all of the answer; 0 =
	// [llm.DefaultMaxBytes].
	MaxBytes int
	// CompleteOnly suppresses Chunk events: only whole messages are yielded.
	CompleteOnly bool
	// HTTP is the client for all requests; its transport enforces the egress rules. Nil: http.DefaultClient.
	HTTP *http.Client
}

// Remote is an agent on another server, called by A2A 1.0 or 0.3 over JSON-RPC or REST. It is safe for concurrent use.
type Remote struct {
	options RemoteOptions
	server  remoteServer
}

// NewRemote returns an agent that calls another server. It returns an error with [agentsvc.CodeInvalid] for an invalid
// address or card. It makes no request: the card is fetched in the first turn.
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

// Run implements [Agent]. It sends the messages since the agent's last answer, in the remote context of that answer,
// and to the same remote task if that one waits for input. The id of the sent message is the same in each attempt of
// the turn, so that the other server can recognise a repeated message. The turn ends as the remote task does; a failed
// or cancelled one is an error with [agentsvc.CodeInvalid]. If the server cannot be reached, the error is a
// [*RemoteError].
func (r *Remote) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		within, cancel := context.WithTimeout(ctx, r.options.Timeout)
		defer cancel()
		v := &remoteRun{Remote: r, inv: inv, yield: yield, shownAnswer: shownAnswer{id: agentsvc.MessageID(agentsvc.NewID())}, artifacts: map[a2a.ArtifactID][]agentsvc.Part{}, received: newReceivedAnswer(r.options)}
		err := v.sendMessage(within)
		switch {
		case err == nil || errors.Is(err, errStopped):
			return
		case ctx.Err() != nil:
			err = ctx.Err()
			if cause := (*agentsvc.CallCancelledError)(nil); errors.As(context.Cause(ctx), &cause) {
				v.cancelTask(ctx) // not where the lease was lost: another worker continues the turn
			}
		case within.Err() != nil:
			if v.accepted {
				v.cancelTask(ctx)
			}
			err = &RemoteError{Agent: r.options.Name, Reason: fmt.Sprintf("did not answer within %v", r.options.Timeout), Retryable: !v.accepted}
		case v.received.exceeded:
			v.cancelTask(ctx)
		}
		yield(agentsvc.Event{}, err)
	}
}

// remoteRun is one turn of a remote agent. It is used by one goroutine.
type remoteRun struct {
	*Remote
	inv    Invocation
	yield  func(agentsvc.Event, error) bool
	client *a2aclient.Client

	// remote identifies the remote task, as of the last event.
	remote remoteTask
	// accepted reports that the other server answered the turn's message. From then on the message is not sent again.
	accepted bool
	// status is the remote task's last status.
	status a2a.TaskStatus
	// artifactText is the text of all artifacts. It is the answer if the final status has no message.
	artifactText []agentsvc.Part
	// artifacts holds the parts received so far, by artifact, so that a repeated task snapshot yields only what is new.
	artifacts map[a2a.ArtifactID][]agentsvc.Part
	// received counts what the other server sent, and bounds it.
	received receivedAnswer
	shownAnswer
}

// remoteTask identifies a conversation on the other server. It is stored in the metadata of the answers, where the next
// turn finds it.
type remoteTask struct {
	contextID string
	// taskID is the task that works or waits for an answer, "" after its end: then the next message starts a new one.
	taskID a2a.TaskID
}

// sendMessage sends the turn's message and processes the answers until the remote task ends or waits. It uses the
// stream where the server has one, and polls after that, also when the stream breaks.
func (r *remoteRun) sendMessage(ctx context.Context) error {
	var err error
	if r.client, err = r.server.loadClient(ctx); err != nil {
		return r.publicError(err)
	}
	// The request has effects on the other server: it is not sent without the lease.
	if err := r.inv.Lease.Check(ctx); err != nil {
		return err
	}
	msg := r.newMessage()
	// ReturnImmediately makes a server without streams answer with the task's id at once, so that the task can be
	// cancelled; pollTask then waits for its end.
	req := &a2a.SendMessageRequest{Message: msg, Config: &a2a.SendMessageConfig{ReturnImmediately: true}}
	for ev, err := range r.client.SendStreamingMessage(ctx, req) {
		if r.accepted && isTemporary(err) {
			break
		}
		if err != nil {
			return r.publicError(err)
		}
		r.accepted = true
		if m, ok := ev.(*a2a.Message); ok {
			r.remote = remoteTask{contextID: m.ContextID}
			return r.yieldAnswer(agentsvc.Completed, m)
		}
		if err := r.applyEvent(ev); err != nil {
			return err
		}
		if r.isSettled() {
			break
		}
	}
	if err := r.pollTask(ctx); err != nil {
		return err
	}
	return r.finishTurn()
}

// newMessage returns the message to send: the parts of all entries after the agent's last answer. It sets r.remote from
// the newest answer that has this agent's metadata.
func (r *remoteRun) newMessage() *a2a.Message {
	conversation := r.inv.Conversation
	// from is the index behind the last message of an agent.
	from := 0
	for i, e := range slices.Backward(conversation) {
		if e.Message != nil && e.Message.Role == agentsvc.RoleAgent {
			from = i + 1
			break
		}
	}
	for _, e := range slices.Backward(conversation[:from]) {
		if p, ok := r.readRemoteTask(e.Message); ok {
			r.remote = p
			break
		}
	}
	// The id is a UUID because some servers require one; it is derived from the step, see stepID.
	msg := &a2a.Message{
		ID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.inv.stepID(0))).String(), Role: a2a.MessageRoleUser,
		ContextID: r.remote.contextID, TaskID: r.remote.taskID,
	}
	for _, e := range conversation[from:] {
		if e.Message != nil {
			msg.Parts = append(msg.Parts, toA2AParts(e.Message.Parts)...)
		}
	}
	return msg
}

// pollTask requests the task until it has ended or waits for input, also while the server cannot be reached. It does
// nothing if the stream got that far.
func (r *remoteRun) pollTask(ctx context.Context) error {
	// first and last are the shortest and the longest pause between two requests; it doubles from one to the next.
	const first, last = 100 * time.Millisecond, 2 * time.Second
	for pause := first; !r.isSettled(); pause = min(2*pause, last) {
		if r.remote.taskID == "" {
			return agentsvc.NewInvalidError("", "the remote agent %s ended without an answer", r.options.Name)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		task, err := r.client.GetTask(ctx, &a2a.GetTaskRequest{ID: r.remote.taskID})
		if isTemporary(err) {
			continue
		}
		if err != nil {
			return r.publicError(err)
		}
		if err := r.applyEvent(task); err != nil {
			return err
		}
	}
	return nil
}

// isSettled reports whether the remote task has ended or waits for input.
func (r *remoteRun) isSettled() bool {
	_, final := settledStates[r.status.State]
	return final
}

// settledStates maps the states in which a remote task does not proceed by itself to the state of the turn here.
var settledStates = map[a2a.TaskState]agentsvc.State{
	a2a.TaskStateCompleted:     agentsvc.Completed,
	a2a.TaskStateInputRequired: agentsvc.InputRequired,
	a2a.TaskStateAuthRequired:  agentsvc.AuthRequired,
	a2a.TaskStateRejected:      agentsvc.Rejected,
	a2a.TaskStateFailed:        agentsvc.Failed,
	a2a.TaskStateCanceled:      agentsvc.Cancelled,
}

// applyEvent updates the state of the turn from an event of the remote task and yields new text and artifact parts.
func (r *remoteRun) applyEvent(ev a2a.Event) error {
	if err := r.received.addEvent(r.options.Name); err != nil {
		return err
	}
	switch ev := ev.(type) {
	// A task is a snapshot, sent first, or again by each poll: only what was not known is yielded.
	case *a2a.Task:
		if err := r.updateStatus(remoteTask{ev.ContextID, ev.ID}, ev.Status); err != nil {
			return err
		}
		for _, art := range ev.Artifacts {
			have, known := r.artifacts[art.ID]
			if more := diffParts(have, fromA2AParts(art.Parts)); len(more) > 0 || !known {
				if err := r.addArtifact(art, more, known, r.isSettled()); err != nil {
					return err
				}
			}
		}
	case *a2a.TaskStatusUpdateEvent:
		return r.updateStatus(remoteTask{ev.ContextID, ev.TaskID}, ev.Status)
	case *a2a.TaskArtifactUpdateEvent:
		r.remote = remoteTask{ev.ContextID, ev.TaskID}
		if ev.Artifact != nil {
			return r.addArtifact(ev.Artifact, fromA2AParts(ev.Artifact.Parts), ev.Append, ev.LastChunk)
		}
	}
	return nil
}

// updateStatus stores the remote task's status and shows the text of a working status. The messages of other states are
// the answer, which yieldAnswer yields.
func (r *remoteRun) updateStatus(at remoteTask, status a2a.TaskStatus) error {
	r.remote, r.status = at, status
	if status.State != a2a.TaskStateWorking || status.Message == nil {
		return nil
	}
	text := r.unshownText(status.Message.ID, joinText(fromA2AParts(status.Message.Parts)))
	if err := r.received.add(r.options.Name, []agentsvc.Part{agentsvc.TextPart(text)}); err != nil {
		return err
	}
	return r.showText(text)
}

// addArtifact records parts of an artifact and shows their text. With more set they are appended to the artifact, else
// they replace it.
func (r *remoteRun) addArtifact(art *a2a.Artifact, parts []agentsvc.Part, more, last bool) error {
	if err := r.received.add(r.options.Name, parts); err != nil {
		return err
	}
	if more {
		r.artifacts[art.ID] = joinParts(r.artifacts[art.ID], parts)
	} else {
		r.artifacts[art.ID] = joinParts(nil, parts)
	}
	if text := joinText(parts); text != "" {
		r.artifactText = joinParts(r.artifactText, []agentsvc.Part{agentsvc.TextPart(text)})
		if err := r.showText(text); err != nil {
			return err
		}
	}
	return r.recordArtifact(agentsvc.ArtifactUpdate{Append: more, Last: last, Artifact: agentsvc.Artifact{
		ID: string(art.ID), Name: art.Name, Description: art.Description, Parts: parts,
	}})
}

// finishTurn ends the turn according to the state of the remote task.
func (r *remoteRun) finishTurn() error {
	if err := r.flushArtifact(); err != nil {
		return err
	}
	switch state := settledStates[r.status.State]; state {
	case agentsvc.Failed:
		return agentsvc.NewInvalidError("", "the task of the remote agent %s failed", r.options.Name)
	case agentsvc.Cancelled:
		return agentsvc.NewInvalidError("", "the task of the remote agent %s was cancelled", r.options.Name)
	case agentsvc.Completed, agentsvc.Rejected:
		// The task has ended, so the next message may not name it.
		r.remote.taskID = ""
		return r.yieldAnswer(state, r.status.Message)
	default:
		return r.yieldAnswer(state, r.status.Message)
	}
}

// yieldAnswer ends the turn with the parts of m, or with the artifacts' text if m is empty. The metadata records which
// remote task the next turn continues.
func (r *remoteRun) yieldAnswer(state agentsvc.State, m *a2a.Message) error {
	if err := r.flushArtifact(); err != nil {
		return err
	}
	answer := agentsvc.Message{Task: r.inv.Task, Role: agentsvc.RoleAgent, Parts: r.artifactText}
	if m != nil && len(m.Parts) > 0 {
		answer.Parts = fromA2AParts(m.Parts)
		// The message may repeat all that was shown, so it is measured by itself.
		final := newReceivedAnswer(r.options)
		if err := final.add(r.options.Name, answer.Parts); err != nil {
			return err
		}
	}
	if len(answer.Parts) == 0 {
		answer.Parts = []agentsvc.Part{agentsvc.TextPart("")}
	}
	answer.ID = r.answerID(answer.Text())
	answer.Metadata = map[string]any{remoteTaskKey: map[string]any{"agent": r.options.Name, "context": r.remote.contextID, "task": string(r.remote.taskID)}}
	r.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &answer}}, nil)
	return nil
}

// remoteTaskKey is the metadata key of a stored remoteTask.
const remoteTaskKey = "remote"

// readRemoteTask returns the remoteTask stored in m, and whether m is an answer of this agent that has one.
func (r *remoteRun) readRemoteTask(m *agentsvc.Message) (remoteTask, bool) {
	if m == nil {
		return remoteTask{}, false
	}
	saved, _ := m.Metadata[remoteTaskKey].(map[string]any)
	if name, _ := saved["agent"].(string); name != r.options.Name || name == "" {
		return remoteTask{}, false
	}
	in, _ := saved["context"].(string)
	task, _ := saved["task"].(string)
	return remoteTask{in, a2a.TaskID(task)}, true
}

// cancelTask asks the other server to cancel the task, so that it does not work for a turn that has ended. It is best
// effort: it has 5 s, although ctx may have ended, and its error is ignored.
func (r *remoteRun) cancelTask(ctx context.Context) {
	if r.client == nil || r.remote.taskID == "" || r.isSettled() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = r.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: r.remote.taskID})
}
