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

// agent finds out whom the call is for: the metadata agent-name, else what the message names as tenant, which is {agent} or
// {app}/{agent}; where they name the app alone or nothing, the agent that stands for the app. What both say must agree.
func (c *call) agent() (string, error) {
	name := c.r.Header.Get("Agent-Name")
	if name == "" {
		app, agent, both := strings.Cut(c.tenant, "/")
		switch {
		case both && app == c.v.App.Name:
			name = agent
		case !both && app != c.v.App.Name:
			name = app
		}
	}
	if name == "" {
		card, err := c.v.Card("")
		if err != nil {
			return "", err
		}
		name = card.Agent
	}
	return name, c.v.Named(c.tenant, name)
}

// submission reads what the caller wants to tell an agent.
func (c *call) submission(ctx context.Context, req *spec.SendMessageRequest) (task.Submission, error) {
	agent, err := c.agent()
	if err != nil {
		return task.Submission{}, err
	}
	word, wrong := a2a.Word(c.freed(req.Message))
	wrong = cmp.Or(c.invalid, wrong)
	var receiver *store.Receiver
	if wrong == nil && req.Config != nil && req.Config.PushConfig != nil {
		receiver, wrong = c.pushes(agent).Receiver(req.Config.PushConfig)
	}
	sub, err := c.v.Submission(ctx, agent, word, wrong)
	if err == nil {
		err = surface.Notify(&sub, receiver)
	}
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(c.r)
	}
	return sub, err
}

// SendMessage answers with the task: as it ends or comes to wait for somebody, or where the caller does not want to wait, as it
// was accepted. Who waits is told of an answer that stands alone instead of its task.
func (h *handler) SendMessage(ctx context.Context, req *spec.SendMessageRequest) (spec.SendMessageResult, error) {
	c := callOf(ctx)
	sub, err := c.submission(ctx, req)
	if err != nil {
		return nil, c.fail(err)
	}
	patience, length := h.blockFor, (*int)(nil)
	if req.Config != nil {
		length = req.Config.HistoryLength
		if req.Config.ReturnImmediately {
			patience = 0
		}
	}
	t, err := c.v.Send(ctx, sub, patience)
	if err != nil {
		return nil, c.fail(err)
	}
	if m := t.Status.Reply(); m != nil && patience > 0 {
		return enclosed(c, a2a.NewReply(*m, t.Context)), nil
	}
	return enclosed(c, a2a.NewTask(t, length, true)), nil
}

// SendStreamingMessage answers with the task and its events until it ends or waits for somebody.
func (h *handler) SendStreamingMessage(ctx context.Context, req *spec.SendMessageRequest) iter.Seq2[spec.Event, error] {
	c := callOf(ctx)
	return c.stream(true, func() (*surface.Following, error) {
		sub, err := c.submission(ctx, req)
		req = nil // the stream may last longer than anyone needs the message that opened it
		if err != nil {
			return nil, err
		}
		return c.v.Call(ctx, sub)
	})
}

// SubscribeToTask answers with the task as it stands and its events from there on until it ends. A task that has
// ended has nothing to subscribe to.
func (h *handler) SubscribeToTask(ctx context.Context, req *spec.SubscribeToTaskRequest) iter.Seq2[spec.Event, error] {
	c := callOf(ctx)
	return c.stream(false, func() (*surface.Following, error) {
		id, reach, err := c.subject(ctx, authz.TasksRead, req.ID)
		if err != nil {
			return nil, err
		}
		f, err := c.v.Follow(ctx, reach, id, nil)
		if err == nil && f.Task.Status.State.Terminal() {
			f.Close()
			err = agentsvc.ErrTerminal
		}
		return f, err
	})
}

// stream tells the events of what open begins to listen to.
func (c *call) stream(rests bool, open func() (*surface.Following, error)) iter.Seq2[spec.Event, error] {
	c.rests = rests
	return func(yield func(spec.Event, error) bool) {
		f, err := open()
		if err == nil {
			teller := a2a.NewTeller(f.Task, false)
			reply := func(m agentsvc.Message) any { return a2a.NewReply(m, f.Task.Context) }
			d := surface.Dialect{Rests: rests, Reply: reply, Event: func(ev agentsvc.Event) any {
				if told := teller.Event(ev); told != nil {
					return told
				}
				return nil
			}}
			err = c.v.Tell(f, d, func(_ int64, body any) error {
				if ev, ok := body.(spec.Event); ok && !yield(enclosed(c, ev), nil) {
					return context.Canceled
				}
				return nil
			})
		}
		if err != nil {
			yield(nil, c.fail(err))
		}
	}
}

// subject finds out which task the call is about and how far the caller reaches.
func (c *call) subject(ctx context.Context, wide authz.Scope, id spec.TaskID) (agentsvc.TaskID, task.Reach, error) {
	reach, err := c.within(ctx, wide)
	if err == nil {
		err = surface.CheckID("id", string(id))
	}
	return agentsvc.TaskID(id), reach, err
}

// within finds out how far the caller reaches among the tasks of the agent.
func (c *call) within(ctx context.Context, wide authz.Scope) (task.Reach, error) {
	agent, err := c.agent()
	if err != nil {
		return task.Reach{}, err
	}
	reach, err := c.v.Within(ctx, wide, agent)
	return reach, cmp.Or(err, c.invalid)
}

// GetTask answers with a task.
func (h *handler) GetTask(ctx context.Context, req *spec.GetTaskRequest) (*spec.Task, error) {
	c := callOf(ctx)
	id, reach, err := c.subject(ctx, authz.TasksRead, req.ID)
	if err != nil {
		return nil, c.fail(err)
	}
	n := req.HistoryLength
	t, err := c.v.Tasks().Get(ctx, reach, id, store.With{History: n == nil || *n > 0, Artifacts: true})
	if err != nil {
		return nil, c.fail(err)
	}
	return enclosed(c, a2a.NewTask(t, n, true)), nil
}

// ListTasks answers with a page of the agent's tasks, without their histories where their length is not said.
func (h *handler) ListTasks(ctx context.Context, req *spec.ListTasksRequest) (*spec.ListTasksResponse, error) {
	c := callOf(ctx)
	reach, err := c.within(ctx, authz.TasksRead)
	if err != nil {
		return nil, c.fail(err)
	}
	history := 0
	if req.HistoryLength != nil {
		history = *req.HistoryLength
	}
	q := task.Query{
		Context: agentsvc.ContextID(req.ContextID), Token: req.PageToken, Size: cmp.Or(req.PageSize, task.DefaultPage),
		With: store.With{History: history > 0, Artifacts: req.IncludeArtifacts},
	}
	if req.StatusTimestampAfter != nil {
		q.After = *req.StatusTimestampAfter
	}
	if q.State, err = a2a.StateOf(string(req.Status)); err == nil {
		err = cmp.Or(surface.CheckID("contextId", req.ContextID), surface.CheckPageSize(q.Size, task.MaxPage))
	}
	if err != nil {
		return nil, c.fail(err)
	}
	page, err := c.v.Tasks().List(ctx, reach, q)
	if err != nil {
		return nil, c.fail(err)
	}
	answer := &spec.ListTasksResponse{Tasks: make([]*spec.Task, len(page.Tasks)), TotalSize: page.Total, PageSize: q.Size, NextPageToken: page.Next}
	for i, t := range page.Tasks {
		answer.Tasks[i] = enclosed(c, a2a.NewTask(t, &history, q.With.Artifacts))
	}
	return answer, nil
}

// CancelTask ends a task and answers with it.
func (h *handler) CancelTask(ctx context.Context, req *spec.CancelTaskRequest) (*spec.Task, error) {
	c := callOf(ctx)
	id, reach, err := c.subject(ctx, authz.TasksCancel, req.ID)
	if err != nil {
		return nil, c.fail(err)
	}
	t, err := c.v.Cancel(ctx, reach, id)
	if err != nil {
		return nil, c.fail(err)
	}
	return enclosed(c, a2a.NewTask(t, nil, true)), nil
}

// GetExtendedAgentCard answers with the agent's card as those see it who have shown a credential.
func (h *handler) GetExtendedAgentCard(ctx context.Context, _ *spec.GetExtendedAgentCardRequest) (*spec.AgentCard, error) {
	c := callOf(ctx)
	agent, err := c.agent()
	if err != nil {
		return nil, c.fail(err)
	}
	if err := c.v.Admit(ctx, authz.AgentsRead, agent, ""); err != nil && c.v.Admit(ctx, authz.AgentsCall, agent, "") != nil {
		return nil, c.fail(err)
	}
	known, err := c.v.Card(agent)
	if err != nil {
		return nil, c.fail(err)
	}
	// The card that goes over HTTP says the same, and the library reads it.
	official, err := c.v.Official(known)
	if err != nil {
		return nil, c.fail(err)
	}
	raw, err := json.Marshal(official)
	if err != nil {
		return nil, c.fail(err)
	}
	card := &spec.AgentCard{}
	if err := json.Unmarshal(raw, card); err != nil {
		return nil, c.fail(err)
	}
	return card, nil
}
