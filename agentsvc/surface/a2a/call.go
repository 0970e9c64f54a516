package a2a

import (
	"cmp"
	"context"
	"net/http"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// call is one call of a method in progress, for every version and binding. The binding (rpc.go or rest.go) creates
// and prepares it; while the method runs only Message and agent are written. It belongs to the goroutine of its
// request.
type call struct {
	params
	codec   *versionCodec    // of the version and binding of the request
	r       *http.Request    // carries the deadline in its context, if the method has one
	request *surface.Request // the authenticated caller and its app
	agent   string           // set by resolveAgent
	options Options          // of the routes
	// unanswered says that the response has no body (a JSON-RPC notification): a task is not waited for.
	unanswered bool
	// needsMessage says that a missing message is an invalid request, see rpcMethod.
	needsMessage bool
	// idOptional says that a message may have no messageId, see ToDomainMessage.
	idOptional bool
}

// ctx returns the context of the request; it ends when the client disconnects.
func (c *call) ctx() context.Context { return c.r.Context() }

// unaryMethod carries out a method that has one response. The result is already encoded by c.codec; nil means that
// the response has no content, see versionCodec.emptyResult.
type unaryMethod func(*call) (any, error)

// streamMethod starts a method whose response is a stream of events. All errors that the request can cause must be
// returned here, before the stream begins: afterwards the HTTP status has been sent.
type streamMethod func(*call) (*taskStream, error)

// taskStream is a stream that is ready to be written: the subscription to the task's events and their encoder.
// writeEvents closes the subscription.
type taskStream struct {
	*stream.Subscription
	encoder *EventEncoder
	// endsWhenSettled says that the stream also ends when the task needs input or authorization, not only at a
	// terminal state.
	endsWhenSettled bool
}

// agentParam is the query parameter that names the agent where the path does not.
const agentParam = "agent"

// resolveAgent sets c.agent: the agent of the path, else of the query parameter agent, else the app's default
// agent. It returns an error if the request names a tenant that is not this app or agent. The app itself was
// decided before, from the credential (surface.Server.Authenticate): the tenant of a request can only confirm it,
// never change it.
func (c *call) resolveAgent() error {
	c.agent = surface.PathParam(c.r, "agent")
	if c.agent == "" {
		c.agent = c.r.URL.Query().Get(agentParam)
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

// admitMessage decodes the message, authorizes the caller to send it, reserves its budgets and limits, and returns
// what is to be submitted.
//
// What is wrong with the message is collected first but returned only after authorization
// ([surface.Request.AdmitMessage] decides the order), so that a caller without permission learns nothing from
// validation errors.
func (c *call) admitMessage() (task.Submission, error) {
	m, wrong := c.Message.toProtocol(c.codec)
	converted, err := ToDomainMessage(m, !c.idOptional)
	if wrong == nil {
		wrong = err
	}
	if m == nil && c.needsMessage {
		wrong = agentsvc.NewError(apierror.CodeMalformed, "params.message is missing")
	}
	var receiver *receiver.Receiver
	if raw := cmp.Or(c.Configuration, &configuration{}).FirstConfig(); wrong == nil && raw != nil {
		receiver, wrong = PushService{Request: c.request, Agent: c.agent, Version: c.codec.version}.decodeInline(raw)
	}
	sub, err := c.request.AdmitMessage(c.ctx(), c.agent, converted, wrong)
	if err == nil {
		err = SetReceiver(&sub, receiver)
	}
	if err == nil {
		sub.Key, err = idempotency.Key(c.r)
	}
	c.Message = nil // a stream may stay open for hours; the decoded message must not stay in memory that long
	return sub, err
}

// handleSend answers SendMessage: with the task when it has ended or needs input, with the task as it stands after
// c.options.BlockFor, or at once with the accepted task if the client asked not to wait. If the agent answered with a
// message instead of a task, a client that waited receives that message alone.
func handleSend(c *call) (any, error) {
	sub, err := c.admitMessage()
	if err != nil {
		return nil, err
	}
	config := cmp.Or(c.Configuration, &configuration{})
	n, err := historyLength("configuration.historyLength", config.HistoryLength, config.HistoryLengthSnake)
	if err != nil {
		return nil, err
	}
	timeout := c.options.BlockFor
	if c.Configuration.returnsImmediately(c.codec.omitsFalse) || c.unanswered {
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

// handleStream answers SendStreamingMessage with the task and its events until the task ends or needs input.
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

// resolveTask returns the task ID of the call and which tasks of the agent the caller may act on: with the scope
// wide those of every user of the app, else its own. A task outside this visibility is later reported as not found.
func (c *call) resolveTask(wide authz.Scope) (agentsvc.TaskID, task.Visibility, error) {
	visibility, err := c.request.ResolveAgentVisibility(c.ctx(), wide, c.agent)
	if err != nil {
		return "", visibility, err
	}
	id, err := c.resolveTaskID()
	return id, visibility, err
}

// handleGet answers GetTask.
func handleGet(c *call) (any, error) {
	id, visibility, err := c.resolveTask(authz.TasksRead)
	if err != nil {
		return nil, err
	}
	n, err := historyLength("historyLength", c.HistoryLength, c.HistoryLengthSnake)
	if err != nil {
		return nil, err
	}
	// The history is only read from the store if at least one of its messages will be part of the answer.
	t, err := c.request.Tasks.Reader.Get(c.ctx(), visibility, id, store.TaskParts{History: n == nil || *n > 0, Artifacts: true})
	if err != nil {
		return nil, err
	}
	return c.codec.encodeTask(NewTask(t, n, true))
}

// handleList answers ListTasks with a page of the agent's tasks. Histories are left out unless historyLength asks
// for them.
func handleList(c *call) (any, error) {
	visibility, err := c.request.ResolveAgentVisibility(c.ctx(), authz.TasksRead, c.agent)
	if err != nil {
		return nil, err
	}
	q, history, err := c.toQuery()
	if err != nil {
		return nil, err
	}
	page, err := c.request.Tasks.Reader.List(c.ctx(), visibility, q)
	if err != nil {
		return nil, err
	}
	answer := spec.ListTasksResponse{Tasks: make([]*spec.Task, len(page.Tasks)), TotalSize: page.Total, PageSize: q.Size, NextPageToken: page.Next}
	for i, t := range page.Tasks {
		answer.Tasks[i] = NewTask(t, &history, q.Parts.Artifacts)
	}
	return c.codec.encodeList(&answer)
}

// handleCancel cancels a task and answers with it. It returns [apierror.ErrNotCancelable] for a task that has ended.
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

// handleSubscribe answers SubscribeToTask: a snapshot of the task and its events from there on until the task ends.
// With the header Last-Event-ID it answers with the events after that one and without the snapshot. Without that
// header a task that has ended is an error (A2A 1.0, UnsupportedOperationError); with it the client may still read
// the events that it missed.
func handleSubscribe(c *call) (*taskStream, error) {
	id, visibility, err := c.resolveTask(authz.TasksRead)
	if err != nil {
		return nil, err
	}
	after, err := decode.ParseAfter(c.r, nil)
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

// authorizeCard authorizes the caller for the extended card: permission to read agents or to call this one is enough.
func (c *call) authorizeCard() error {
	err := c.request.Authorize(c.ctx(), authz.AgentsRead, c.agent)
	if err != nil && c.request.Authorize(c.ctx(), authz.AgentsCall, c.agent) == nil {
		return nil
	}
	return err
}

// handleCard answers with the extended card: the agent's card as callers with a credential see it.
func handleCard(c *call) (any, error) {
	if err := c.authorizeCard(); err != nil {
		return nil, err
	}
	known, err := c.request.Card(c.agent)
	if err != nil {
		return nil, err
	}
	return c.options.Cards.Build(c.request, known)
}

// writeEvents writes the events of f as server-sent events until they end. envelope wraps each encoded event: in a
// JSON-RPC response for that binding, not at all for REST. The parameter final of the inner functions marks the
// last event of a stream, which version 0.3 writes as a member of a status update.
//
// A client that does not read a piece within sse.Options.PieceTimeout is disconnected; the task continues, and
// the client can resume with handleSubscribe and the last event ID that it has seen.
func (c *call) writeEvents(w http.ResponseWriter, f *taskStream, d stream.Encoder, envelope func(any) any) error {
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
