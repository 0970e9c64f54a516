package a2a

import (
	"context"
	"net/http"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// call is one call of a method under way, whatever its version and binding.
type call struct {
	params
	codec    *versionCodec
	r        *http.Request
	request  *surface.Request
	agent    string
	blockFor time.Duration
}

func (c *call) ctx() context.Context { return c.r.Context() }

// unaryMethod carries out a call that has one answer.
type unaryMethod func(*call) (any, error)

// streamMethod begins a call whose answer is a stream of events.
type streamMethod func(*call) (*taskStream, error)

// taskStream is a stream that is about to be told.
type taskStream struct {
	*surface.Subscription
	encoder         *EventEncoder
	endsWhenSettled bool // it ends when the task waits for somebody
}

// resolveAgent finds the agent that a call is for: the one of the path, else of the query, else the one that stands for the app. What
// the caller names as tenant must agree.
func (c *call) resolveAgent() error {
	c.agent = surface.PathParam(c.r, "agent")
	if c.agent == "" {
		c.agent = c.r.URL.Query().Get("agent")
	}
	if c.agent == "" {
		card, err := c.request.Card("")
		if err != nil {
			return err
		}
		c.agent = card.Agent
	}
	return c.request.CheckTenant(c.Tenant, c.agent)
}

// admitMessage reads what the caller wants to tell the agent.
func (c *call) admitMessage() (task.Submission, error) {
	m, wrong := c.Message.toProtocol(c.codec)
	converted, err := ToDomainMessage(m)
	if wrong == nil {
		wrong = err
	}
	var receiver *store.Receiver
	if raw := c.Configuration.FirstConfig(); wrong == nil && raw != nil {
		receiver, wrong = PushService{Request: c.request, Agent: c.agent, Version: c.codec.version}.decodeInline(raw)
	}
	sub, err := c.request.AdmitMessage(c.ctx(), c.agent, converted, wrong)
	if err == nil {
		err = surface.SetReceiver(&sub, receiver)
	}
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(c.r)
	}
	c.Message = nil // a stream may last longer than anyone needs the message that opened it
	return sub, err
}

// handleSend answers with the task: as it ends or comes to wait for somebody, or where the caller does not want to wait, as it was
// accepted. Who waits is told of an answer that stands alone instead of its task.
func handleSend(c *call) (any, error) {
	sub, err := c.admitMessage()
	if err != nil {
		return nil, err
	}
	n, err := historyLength("configuration.historyLength", c.Configuration.HistoryLength, c.Configuration.HistoryLengthSnake)
	if err != nil {
		return nil, err
	}
	timeout := c.blockFor
	if c.Configuration.returnsImmediately() {
		timeout = 0
	}
	t, err := c.request.SubmitAndWait(c.ctx(), sub, timeout)
	if err != nil {
		return nil, err
	}
	if m := t.Status.StandaloneReply(); m != nil && timeout > 0 {
		return c.codec.encodeSendResult(NewReply(*m, t.Context))
	}
	return c.codec.encodeSendResult(NewTask(t, n, true))
}

// handleStream answers with the task and its events until it ends or waits for somebody.
func handleStream(c *call) (*taskStream, error) {
	sub, err := c.admitMessage()
	if err != nil {
		return nil, err
	}
	f, err := c.request.SubmitAndSubscribe(c.ctx(), sub)
	if err != nil {
		return nil, err
	}
	return &taskStream{f, NewEventEncoder(f.Task, false), true}, nil
}

// resolveTask finds out which task the call is about and how far the caller reaches.
func (c *call) resolveTask(wide authz.Scope) (agentsvc.TaskID, task.Visibility, error) {
	visibility, err := c.request.ResolveAgentVisibility(c.ctx(), wide, c.agent)
	if err != nil {
		return "", visibility, err
	}
	id, err := c.resolveTaskID()
	return id, visibility, err
}

// handleGet answers with a task.
func handleGet(c *call) (any, error) {
	id, visibility, err := c.resolveTask(authz.TasksRead)
	if err != nil {
		return nil, err
	}
	n, err := historyLength("historyLength", c.HistoryLength, c.HistoryLengthSnake)
	if err != nil {
		return nil, err
	}
	t, err := c.request.Tasks().Get(c.ctx(), visibility, id, store.TaskParts{History: n == nil || *n > 0, Artifacts: true})
	if err != nil {
		return nil, err
	}
	return c.codec.encodeTask(NewTask(t, n, true))
}

// handleList answers with a page of the agent's tasks, without their histories where their length is not said.
func handleList(c *call) (any, error) {
	visibility, err := c.request.ResolveAgentVisibility(c.ctx(), authz.TasksRead, c.agent)
	if err != nil {
		return nil, err
	}
	q, history, err := c.toQuery()
	if err != nil {
		return nil, err
	}
	page, err := c.request.Tasks().List(c.ctx(), visibility, q)
	if err != nil {
		return nil, err
	}
	answer := spec.ListTasksResponse{Tasks: make([]*spec.Task, len(page.Tasks)), TotalSize: page.Total, PageSize: q.Size, NextPageToken: page.Next}
	for i, t := range page.Tasks {
		answer.Tasks[i] = NewTask(t, &history, q.Parts.Artifacts)
	}
	return c.codec.encodeList(&answer)
}

// handleCancel ends a task and answers with it.
func handleCancel(c *call) (any, error) {
	id, visibility, err := c.resolveTask(authz.TasksCancel)
	if err != nil {
		return nil, err
	}
	t, err := c.request.CancelTask(c.ctx(), visibility, id)
	if err != nil {
		return nil, err
	}
	return c.codec.encodeTask(NewTask(t, nil, true))
}

// handleSubscribe answers with the task as it stands and its events from there on until it ends, or with the events after the last one
// that the caller has seen. A task that has ended has nothing to subscribe to.
func handleSubscribe(c *call) (*taskStream, error) {
	id, visibility, err := c.resolveTask(authz.TasksRead)
	if err != nil {
		return nil, err
	}
	after, err := surface.ParseAfter(c.r, nil)
	if err != nil {
		return nil, err
	}
	f, err := c.request.SubscribeTask(c.ctx(), visibility, id, after)
	if err != nil {
		return nil, err
	}
	if after == nil && f.Task.Status.State.IsTerminal() {
		f.Close()
		return nil, agentsvc.ErrTaskEnded
	}
	return &taskStream{f, NewEventEncoder(f.Task, after != nil), false}, nil
}

// handleCard answers with the agent's card as those see it who have shown a credential.
func handleCard(c *call) (any, error) {
	if err := c.request.Authorize(c.ctx(), authz.AgentsRead, c.agent, ""); err != nil && c.request.Authorize(c.ctx(), authz.AgentsCall, c.agent, "") != nil {
		return nil, err
	}
	known, err := c.request.Card(c.agent)
	if err != nil {
		return nil, err
	}
	return c.request.BuildOfficialCard(known)
}

// writeEvents writes the events of f, each in an envelope.
func (c *call) writeEvents(w http.ResponseWriter, f *taskStream, d surface.StreamEncoder, envelope func(any) any) error {
	d.EndsWhenSettled = f.endsWhenSettled
	reported := func(ev spec.Event, final bool) any {
		body, err := c.codec.encodeEvent(ev, final)
		if err != nil {
			return d.EncodeError(err)
		}
		return envelope(body)
	}
	d.EncodeEvent = func(ev agentsvc.Event) any {
		body := f.encoder.EncodeEvent(ev)
		if body == nil {
			return nil
		}
		return reported(body, ev.Status != nil && (ev.Status.State.IsTerminal() || f.endsWhenSettled && ev.Status.State.IsInterrupted()))
	}
	d.EncodeReply = func(m agentsvc.Message) any { return reported(NewReply(m, f.Task.Context), true) }
	return c.request.StreamEvents(w, f.Subscription, d)
}
