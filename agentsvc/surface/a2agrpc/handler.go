package a2agrpc

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handler carries out what the protocol's library has decoded. It implements its [a2asrv.RequestHandler]; whom a call is for and
// who calls stands in the call's context.
type handler struct{ blockFor time.Duration }

// resolveAgent finds out whom the call is for: the metadata agent-name, else what the message names as tenant, which is {agent} or
// {app}/{agent}; where they name the app alone or nothing, the agent that stands for the app. What both say must agree.
func (c *call) resolveAgent() (string, error) {
	name := c.httpRequest.Header.Get("Agent-Name")
	if name == "" {
		app, agent, both := strings.Cut(c.tenant, "/")
		switch {
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

// admitMessage reads what the caller wants to tell an agent.
func (c *call) admitMessage(ctx context.Context, req *spec.SendMessageRequest) (task.Submission, error) {
	agent, err := c.resolveAgent()
	if err != nil {
		return task.Submission{}, err
	}
	converted, wrong := a2a.ToDomainMessage(c.unwrapData(req.Message))
	wrong = cmp.Or(c.invalid, wrong)
	var receiver *store.Receiver
	if wrong == nil && req.Config != nil && req.Config.PushConfig != nil {
		receiver, wrong = c.newPushService(agent).NewReceiver(req.Config.PushConfig)
	}
	sub, err := c.request.AdmitMessage(ctx, agent, converted, wrong)
	if err == nil {
		err = surface.SetReceiver(&sub, receiver)
	}
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(c.httpRequest)
	}
	return sub, err
}

// SendMessage answers with the task: as it ends or comes to wait for somebody, or where the caller does not want to wait, as it
// was accepted. Who waits is told of an answer that stands alone instead of its task.
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

// SendStreamingMessage answers with the task and its events until it ends or waits for somebody.
func (h *handler) SendStreamingMessage(ctx context.Context, req *spec.SendMessageRequest) iter.Seq2[spec.Event, error] {
	c := callFrom(ctx)
	return c.streamEvents(true, func() (*surface.Subscription, error) {
		sub, err := c.admitMessage(ctx, req)
		req = nil // the stream may last longer than anyone needs the message that opened it
		if err != nil {
			return nil, err
		}
		return c.request.SubmitAndSubscribe(ctx, sub)
	})
}

// SubscribeToTask answers with the task as it stands and its events from there on until it ends. A task that has
// ended has nothing to subscribe to.
func (h *handler) SubscribeToTask(ctx context.Context, req *spec.SubscribeToTaskRequest) iter.Seq2[spec.Event, error] {
	c := callFrom(ctx)
	return c.streamEvents(false, func() (*surface.Subscription, error) {
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

// streamEvents tells the events of what open begins to listen to.
func (c *call) streamEvents(rests bool, open func() (*surface.Subscription, error)) iter.Seq2[spec.Event, error] {
	c.endsWhenSettled = rests
	return func(yield func(spec.Event, error) bool) {
		f, err := open()
		if err == nil {
			encoder := a2a.NewEventEncoder(f.Task, false)
			reply := func(m agentsvc.Message) any { return a2a.NewReply(m, f.Task.Context) }
			d := surface.StreamEncoder{EndsWhenSettled: rests, EncodeReply: reply, EncodeEvent: func(ev agentsvc.Event) any {
				if reported := encoder.EncodeEvent(ev); reported != nil {
					return reported
				}
				return nil
			}}
			err = c.request.WriteEvents(f, d, func(_ int64, body any) error {
				if ev, ok := body.(spec.Event); ok && !yield(wrapData(c, ev), nil) {
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

// resolveTask finds out which task the call is about and how far the caller reaches.
func (c *call) resolveTask(ctx context.Context, wide authz.Scope, id spec.TaskID) (agentsvc.TaskID, task.Visibility, error) {
	visibility, err := c.resolveVisibility(ctx, wide)
	if err == nil {
		err = surface.CheckID("id", string(id))
	}
	return agentsvc.TaskID(id), visibility, err
}

// resolveVisibility finds out how far the caller reaches among the tasks of the agent.
func (c *call) resolveVisibility(ctx context.Context, wide authz.Scope) (task.Visibility, error) {
	agent, err := c.resolveAgent()
	if err != nil {
		return task.Visibility{}, err
	}
	visibility, err := c.request.ResolveAgentVisibility(ctx, wide, agent)
	return visibility, cmp.Or(err, c.invalid)
}

// GetTask answers with a task.
func (h *handler) GetTask(ctx context.Context, req *spec.GetTaskRequest) (*spec.Task, error) {
	c := callFrom(ctx)
	id, visibility, err := c.resolveTask(ctx, authz.TasksRead, req.ID)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	n := req.HistoryLength
	t, err := c.request.Tasks().Get(ctx, visibility, id, store.TaskParts{History: n == nil || *n > 0, Artifacts: true})
	if err != nil {
		return nil, c.recordFailure(err)
	}
	return wrapData(c, a2a.NewTask(t, n, true)), nil
}

// ListTasks answers with a page of the agent's tasks, without their histories where their length is not said.
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
		err = cmp.Or(surface.CheckID("contextId", req.ContextID), surface.CheckPageSize(q.Size, task.MaxPageSize))
	}
	if err != nil {
		return nil, c.recordFailure(err)
	}
	page, err := c.request.Tasks().List(ctx, visibility, q)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	answer := &spec.ListTasksResponse{Tasks: make([]*spec.Task, len(page.Tasks)), TotalSize: page.Total, PageSize: q.Size, NextPageToken: page.Next}
	for i, t := range page.Tasks {
		answer.Tasks[i] = wrapData(c, a2a.NewTask(t, &history, q.Parts.Artifacts))
	}
	return answer, nil
}

// CancelTask ends a task and answers with it.
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

// GetExtendedAgentCard answers with the agent's card as those see it who have shown a credential.
func (h *handler) GetExtendedAgentCard(ctx context.Context, _ *spec.GetExtendedAgentCardRequest) (*spec.AgentCard, error) {
	c := callFrom(ctx)
	agent, err := c.resolveAgent()
	if err != nil {
		return nil, c.recordFailure(err)
	}
	if err := c.request.Authorize(ctx, authz.AgentsRead, agent, ""); err != nil && c.request.Authorize(ctx, authz.AgentsCall, agent, "") != nil {
		return nil, c.recordFailure(err)
	}
	known, err := c.request.Card(agent)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	// The card that goes over HTTP says the same, and the library reads it.
	official, err := c.request.BuildOfficialCard(known)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	raw, err := json.Marshal(official)
	if err != nil {
		return nil, c.recordFailure(err)
	}
	card := &spec.AgentCard{}
	if err := json.Unmarshal(raw, card); err != nil {
		return nil, c.recordFailure(err)
	}
	return card, nil
}
