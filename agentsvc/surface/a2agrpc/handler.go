package a2agrpc

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handler implements the library's [a2asrv.RequestHandler] for both versions. It has no state of a call: the
// authenticated request is in the call that callFrom finds in the context. Every method returns its errors through
// recordFailure.
type handler struct {
	blockFor time.Duration
	cards    agentcard.Builder
}

// resolveAgent returns the agent that the call is for: the one in the metadata agent-name, else in the field tenant
// ({agent} or {app}/{agent}), else the app's default agent. The app was decided before, from the credential: a
// tenant that names another app or agent is an error, never a switch.
func (c *call) resolveAgent() (string, error) {
	name := c.httpRequest.Header.Get("Agent-Name")
	if name == "" {
		app, agent, both := strings.Cut(c.tenant, "/")
		switch {
		// A tenant of another app leaves name empty; CheckTenant then refuses it.
		case both && app == c.request.App.Name:
			name = agent
		case !both && app != c.request.App.Name:
			name = app
		}
	}
	if name == "" {
		card, err := c.request.Card("")
		if err != nil {
			return "", err
		}
		name = card.Agent
	}
	return name, c.request.CheckTenant(c.tenant, name)
}

// admitMessage authorizes the caller to send the message, reserves its budgets and limits, and returns what is to
// be submitted. Validation errors are passed to [surface.Request.AdmitMessage], which returns them only to callers
// that may call the agent.
func (c *call) admitMessage(ctx context.Context, req *spec.SendMessageRequest) (task.Submission, error) {
	agent, err := c.resolveAgent()
	if err != nil {
		return task.Submission{}, err
	}
	converted, wrong := a2a.ToDomainMessage(c.unwrapData(req.Message), c.version == version10)
	wrong = cmp.Or(c.invalid, wrong)
	var receiver *receiver.Receiver
	if wrong == nil && req.Config != nil && req.Config.PushConfig != nil {
		receiver, wrong = c.newPushService(agent).NewReceiver(req.Config.PushConfig)
	}
	sub, err := c.request.AdmitMessage(ctx, agent, converted, wrong)
	if err == nil {
		err = a2a.SetReceiver(&sub, receiver)
	}
	if err == nil {
		sub.Key, err = idempotency.Key(c.httpRequest)
	}
	return sub, err
}

// SendMessage returns the task when it has ended, needs input or blockFor is over, or as it was accepted if the
// client asked to return immediately. If the agent answered with a message instead of a task, a client that waited
// receives that message.
func (h *handler) SendMessage(ctx context.Context, req *spec.SendMessageRequest) (spec.SendMessageResult, error) {
	c := callFrom(ctx)
	sub, err := c.admitMessage(ctx, req)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	timeout, length := h.blockFor, (*int)(nil)
	if req.Config != nil {
		length = req.Config.HistoryLength
		if req.Config.ReturnImmediately {
			timeout = 0
		}
	}
	t, err := c.request.SubmitAndWait(ctx, sub, timeout)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	if m := t.Status.StandaloneReply(); m != nil && timeout > 0 {
		return wrapData(c, a2a.NewReply(*m, t.Context)), nil
	}
	return wrapData(c, a2a.NewTask(t, length, true)), nil
}

// SendStreamingMessage yields the task and its events until the task ends or needs input.
func (h *handler) SendStreamingMessage(ctx context.Context, req *spec.SendMessageRequest) iter.Seq2[spec.Event, error] {
	c := callFrom(ctx)
	return c.streamEvents(true, func() (*stream.Subscription, error) {
		sub, err := c.admitMessage(ctx, req)
		req = nil // release the message: the stream may stay open for hours
		if err != nil {
			return nil, err
		}
		return c.request.SubmitAndSubscribe(ctx, sub)
	})
}

// SubscribeToTask yields a snapshot of the task and its events until the task ends. A task that has ended is an
// error (A2A 1.0, UnsupportedOperationError). gRPC has no Last-Event-ID, so a client cannot resume after an event.
func (h *handler) SubscribeToTask(ctx context.Context, req *spec.SubscribeToTaskRequest) iter.Seq2[spec.Event, error] {
	c := callFrom(ctx)
	return c.streamEvents(false, func() (*stream.Subscription, error) {
		id, visibility, err := c.resolveTask(ctx, authz.TasksRead, req.ID)
		if err != nil {
			return nil, err
		}
		f, err := c.request.SubscribeTask(ctx, visibility, id, nil)
		if err == nil && f.Task.Status.State.IsTerminal() {
			f.Close()
			err = agentsvc.ErrTaskEnded
		}
		return f, err
	})
}

// streamEvents yields the events of the subscription that open returns; rests says that the stream ends when the
// task needs input. When the library stops the iteration, yield returns false and the subscription is closed.
func (c *call) streamEvents(rests bool, open func() (*stream.Subscription, error)) iter.Seq2[spec.Event, error] {
	c.endsWhenSettled = rests
	return func(yield func(spec.Event, error) bool) {
		f, err := open()
		if err == nil {
			encoder := a2a.NewEventEncoder(f.Task, false)
			// StreamEncoder needs no EncodeError here: errors end the iteration and become the gRPC status.
			reply := func(m agentsvc.Message) any { return a2a.NewReply(m, f.Task.Context) }
			d := stream.Encoder{EndsWhenSettled: rests, EncodeReply: reply, EncodeEvent: func(ev agentsvc.Event) any {
				if reported := encoder.EncodeEvent(ev); reported != nil {
					return reported
				}
				return nil
			}}
			err = c.request.WriteEvents(f, d, func(_ int64, body any) error {
				if ev, ok := body.(spec.Event); ok && !yield(wrapData(c, ev), nil) {
					// The library reads no more; WriteEvents treats any error of its callback as a client that has
					// left.
					return context.Canceled
				}
				return nil
			})
		}
		if err != nil {
			yield(nil, c.recordFailure(err))
		}
	}
}

// resolveTask returns the task ID and which tasks of the agent the caller may act on: with the scope wide those of
// every user of the app, else its own.
func (c *call) resolveTask(ctx context.Context, wide authz.Scope, id spec.TaskID) (agentsvc.TaskID, task.Visibility, error) {
	visibility, err := c.resolveVisibility(ctx, wide)
	if err == nil {
		err = decode.CheckID("id", string(id))
	}
	return agentsvc.TaskID(id), visibility, err
}

// resolveVisibility is resolveTask without an ID. It returns c.invalid after the authorization.
func (c *call) resolveVisibility(ctx context.Context, wide authz.Scope) (task.Visibility, error) {
	agent, err := c.resolveAgent()
	if err != nil {
		return task.Visibility{}, err
	}
	visibility, err := c.request.ResolveAgentVisibility(ctx, wide, agent)
	return visibility, cmp.Or(err, c.invalid)
}

// GetTask returns a task with its artifacts and as much of its history as the client asks for (without a length
// all).
func (h *handler) GetTask(ctx context.Context, req *spec.GetTaskRequest) (*spec.Task, error) {
	c := callFrom(ctx)
	id, visibility, err := c.resolveTask(ctx, authz.TasksRead, req.ID)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	n := req.HistoryLength
	t, err := c.request.Tasks.Reader.Get(ctx, visibility, id, store.TaskParts{History: n == nil || *n > 0, Artifacts: true})
	if err != nil {
		return nil, c.recordFailure(err)
	}
	return wrapData(c, a2a.NewTask(t, n, true)), nil
}

// ListTasks returns a page of the agent's tasks, without histories unless a length asks for them.
func (h *handler) ListTasks(ctx context.Context, req *spec.ListTasksRequest) (*spec.ListTasksResponse, error) {
	c := callFrom(ctx)
	visibility, err := c.resolveVisibility(ctx, authz.TasksRead)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	history := 0
	if req.HistoryLength != nil {
		history = *req.HistoryLength
	}
	q := task.Query{
		Context: agentsvc.ContextID(req.ContextID), Token: req.PageToken, Size: cmp.Or(req.PageSize, task.DefaultPageSize),
		Parts: store.TaskParts{History: history > 0, Artifacts: req.IncludeArtifacts},
	}
	if req.StatusTimestampAfter != nil {
		q.After = *req.StatusTimestampAfter
	}
	if q.State, err = a2a.ParseState(string(req.Status)); err == nil {
		err = cmp.Or(decode.CheckID("contextId", req.ContextID), decode.CheckPageSize(q.Size, task.MaxPageSize))
	}
	if err != nil {
		return nil, c.recordFailure(err)
	}
	page, err := c.request.Tasks.Reader.List(ctx, visibility, q)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	answer := &spec.ListTasksResponse{Tasks: make([]*spec.Task, len(page.Tasks)), TotalSize: page.Total, PageSize: q.Size, NextPageToken: page.Next}
	for i, t := range page.Tasks {
		answer.Tasks[i] = wrapData(c, a2a.NewTask(t, &history, q.Parts.Artifacts))
	}
	return answer, nil
}

// CancelTask cancels a task and returns it.
func (h *handler) CancelTask(ctx context.Context, req *spec.CancelTaskRequest) (*spec.Task, error) {
	c := callFrom(ctx)
	id, visibility, err := c.resolveTask(ctx, authz.TasksCancel, req.ID)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	t, err := c.request.CancelTask(ctx, visibility, id)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	return wrapData(c, a2a.NewTask(t, nil, true)), nil
}

// GetExtendedAgentCard returns the agent's card as callers with a credential see it.
func (h *handler) GetExtendedAgentCard(ctx context.Context, _ *spec.GetExtendedAgentCardRequest) (*spec.AgentCard, error) {
	c := callFrom(ctx)
	agent, err := c.resolveAgent()
	if err != nil {
		return nil, c.recordFailure(err)
	}
	if err := c.request.Authorize(ctx, authz.AgentsRead, agent); err != nil && c.request.Authorize(ctx, authz.AgentsCall, agent) != nil {
		return nil, c.recordFailure(err)
	}
	known, err := c.request.Card(agent)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	// The card is built once, for HTTP; the library decodes that JSON into its own type. So both protocols have the
	// same card. The parser is that of cards with the members of both versions.
	official, err := h.cards.Build(c.request, known)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	raw, err := json.Marshal(official)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	card, err := a2av0.NewAgentCardParser()(raw)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	return card, nil
}
