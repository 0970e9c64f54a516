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
	as       *vocabulary
	r        *http.Request
	v        *surface.Visit
	agent    string
	blockFor time.Duration
}

func (c *call) ctx() context.Context { return c.r.Context() }

// method carries out a call that has one answer.
type method func(*call) (any, error)

// opening begins a call whose answer is a stream of events.
type opening func(*call) (*flow, error)

// flow is a stream that is about to be told.
type flow struct {
	*surface.Following
	teller *Teller
	rests  bool // it ends when the task waits for somebody
}

// address finds the agent that a call is for: the one of the path, else of the query, else the one that stands for the app. What
// the caller names as tenant must agree.
func (c *call) address() error {
	c.agent = surface.Param(c.r, "agent")
	if c.agent == "" {
		c.agent = c.r.URL.Query().Get("agent")
	}
	if c.agent == "" {
		card, err := c.v.Card("")
		if err != nil {
			return err
		}
		c.agent = card.Agent
	}
	return c.v.Named(c.Tenant, c.agent)
}

// submission reads what the caller wants to tell the agent.
func (c *call) submission() (task.Submission, error) {
	m, wrong := c.Message.read(c.as)
	word, err := Word(m)
	if wrong == nil {
		wrong = err
	}
	var receiver *store.Receiver
	if raw := c.Configuration.Given(); wrong == nil && raw != nil {
		receiver, wrong = Pushes{Visit: c.v, Agent: c.agent, Version: c.as.version}.inline(raw)
	}
	sub, err := c.v.Submission(c.ctx(), c.agent, word, wrong)
	if err == nil {
		err = surface.Notify(&sub, receiver)
	}
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(c.r)
	}
	c.Message = nil // a stream may last longer than anyone needs the message that opened it
	return sub, err
}

// send answers with the task: as it ends or comes to wait for somebody, or where the caller does not want to wait, as it was
// accepted. Who waits is told of an answer that stands alone instead of its task.
func send(c *call) (any, error) {
	sub, err := c.submission()
	if err != nil {
		return nil, err
	}
	n, err := length("configuration.historyLength", c.Configuration.HistoryLength, c.Configuration.HistoryLengthSnake)
	if err != nil {
		return nil, err
	}
	patience := c.blockFor
	if c.Configuration.immediately() {
		patience = 0
	}
	t, err := c.v.Send(c.ctx(), sub, patience)
	if err != nil {
		return nil, err
	}
	if m := t.Status.Reply(); m != nil && patience > 0 {
		return c.as.sent(NewReply(*m, t.Context))
	}
	return c.as.sent(NewTask(t, n, true))
}

// stream answers with the task and its events until it ends or waits for somebody.
func stream(c *call) (*flow, error) {
	sub, err := c.submission()
	if err != nil {
		return nil, err
	}
	f, err := c.v.Call(c.ctx(), sub)
	if err != nil {
		return nil, err
	}
	return &flow{f, NewTeller(f.Task, false), true}, nil
}

// subject finds out which task the call is about and how far the caller reaches.
func (c *call) subject(wide authz.Scope) (agentsvc.TaskID, task.Reach, error) {
	reach, err := c.v.Within(c.ctx(), wide, c.agent)
	if err != nil {
		return "", reach, err
	}
	id, err := c.named()
	return id, reach, err
}

// get answers with a task.
func get(c *call) (any, error) {
	id, reach, err := c.subject(authz.TasksRead)
	if err != nil {
		return nil, err
	}
	n, err := length("historyLength", c.HistoryLength, c.HistoryLengthSnake)
	if err != nil {
		return nil, err
	}
	t, err := c.v.Tasks().Get(c.ctx(), reach, id, store.With{History: n == nil || *n > 0, Artifacts: true})
	if err != nil {
		return nil, err
	}
	return c.as.task(NewTask(t, n, true))
}

// list answers with a page of the agent's tasks, without their histories where their length is not said.
func list(c *call) (any, error) {
	reach, err := c.v.Within(c.ctx(), authz.TasksRead, c.agent)
	if err != nil {
		return nil, err
	}
	q, history, err := c.query()
	if err != nil {
		return nil, err
	}
	page, err := c.v.Tasks().List(c.ctx(), reach, q)
	if err != nil {
		return nil, err
	}
	answer := spec.ListTasksResponse{Tasks: make([]*spec.Task, len(page.Tasks)), TotalSize: page.Total, PageSize: q.Size, NextPageToken: page.Next}
	for i, t := range page.Tasks {
		answer.Tasks[i] = NewTask(t, &history, q.With.Artifacts)
	}
	return c.as.list(&answer)
}

// cancel ends a task and answers with it.
func cancel(c *call) (any, error) {
	id, reach, err := c.subject(authz.TasksCancel)
	if err != nil {
		return nil, err
	}
	t, err := c.v.Cancel(c.ctx(), reach, id)
	if err != nil {
		return nil, err
	}
	return c.as.task(NewTask(t, nil, true))
}

// subscribe answers with the task as it stands and its events from there on until it ends, or with the events after the last one
// that the caller has seen. A task that has ended has nothing to subscribe to.
func subscribe(c *call) (*flow, error) {
	id, reach, err := c.subject(authz.TasksRead)
	if err != nil {
		return nil, err
	}
	after, err := surface.After(c.r, nil)
	if err != nil {
		return nil, err
	}
	f, err := c.v.Follow(c.ctx(), reach, id, after)
	if err != nil {
		return nil, err
	}
	if after == nil && f.Task.Status.State.Terminal() {
		f.Close()
		return nil, agentsvc.ErrTerminal
	}
	return &flow{f, NewTeller(f.Task, after != nil), false}, nil
}

// card answers with the agent's card as those see it who have shown a credential.
func card(c *call) (any, error) {
	if err := c.v.Admit(c.ctx(), authz.AgentsRead, c.agent, ""); err != nil && c.v.Admit(c.ctx(), authz.AgentsCall, c.agent, "") != nil {
		return nil, err
	}
	known, err := c.v.Card(c.agent)
	if err != nil {
		return nil, err
	}
	return c.v.Official(known)
}

// tell writes the events of f, each in an envelope.
func (c *call) tell(w http.ResponseWriter, f *flow, d surface.Dialect, envelope func(any) any) error {
	d.Rests = f.rests
	told := func(ev spec.Event, final bool) any {
		body, err := c.as.event(ev, final)
		if err != nil {
			return d.Fault(err)
		}
		return envelope(body)
	}
	d.Event = func(ev agentsvc.Event) any {
		body := f.teller.Event(ev)
		if body == nil {
			return nil
		}
		return told(body, ev.Status != nil && (ev.Status.State.Terminal() || f.rests && ev.Status.State.Interrupted()))
	}
	d.Reply = func(m agentsvc.Message) any { return told(NewReply(m, f.Task.Context), true) }
	return c.v.Stream(w, f.Following, d)
}
