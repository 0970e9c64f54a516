package ext

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handler holds the options that the JSON-RPC methods need.
type handler struct {
	blockFor time.Duration // see Options.BlockFor
}

// findMethod returns the JSON-RPC method of a name, or nil, which becomes the error -32601. Methods that wait for a
// task have no deadline; all others run under withDeadline. The message methods have two spellings.
func (h handler) findMethod(name string) jsonrpc.Method {
	switch name {
	case "message:send", "message/send":
		return h.handleSend
	case "message:stream", "message/stream":
		return h.handleStream
	case "tasks/get":
		return withDeadline(handleGet)
	case "tasks/list":
		return withDeadline(handleList)
	case "tasks/cancel":
		return withDeadline(jsonrpc.NewIdempotentMethod(handleCancel))
	case "tasks/subscribe":
		return handleSubscribe
	}
	if strings.HasPrefix(name, "tasks/pushNotificationConfig/") {
		return refusePush
	}
	return nil
}

// withDeadline bounds a method by the server's deadline for requests that do not wait for a task. The route has
// none, because it also serves the methods that wait.
func withDeadline(m jsonrpc.Method) jsonrpc.Method {
	return func(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
		ctx, stop := surface.RequestOf(r).WithDeadline(r.Context())
		defer stop()
		return m(w, r.WithContext(ctx), rpc)
	}
}

// refusePush answers the push notification methods, which this surface does not have: with a refusal for callers
// that may not call the agent, else with [apierror.ErrNoPush].
func refusePush(_ http.ResponseWriter, r *http.Request, _ *jsonrpc.Call) error {
	return cmp.Or(surface.RequestOf(r).AuthorizeAgent(r.Context(), authz.AgentsCall, surface.PathParam(r, "agent")), apierror.ErrNoPush)
}

// decodeParams decodes the params of a call into params, in which unknown names are errors, except in a message. tenant must point into params; after decoding, what it
// names must be the caller's app or the agent of the path.
func decodeParams(r *http.Request, rpc *jsonrpc.Call, params any, tenant *string) error {
	if err := rpc.DecodeKnownParams(params, "configuration"); err != nil {
		return err
	}
	return surface.RequestOf(r).CheckTenant(*tenant, surface.PathParam(r, "agent"))
}

// handleSend answers message/send: with the task when it has ended, needs input or blockFor is over, or at once if
// blocking is false.
func (h handler) handleSend(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	p, sub, err := admitMessage(r, rpc)
	if err != nil {
		return err
	}
	length := p.Configuration.HistoryLength
	if length == nil {
		length = p.Configuration.HistoryLengthCamel
	}
	if length == nil {
		length = new(int) // no history: the client knows the message that it sends
	}
	if err := decode.CheckHistoryLength("history_length", *length); err != nil {
		return err
	}
	timeout := h.blockFor
	if b := p.Configuration.Blocking; b != nil && !*b || rpc.IsNotification() {
		timeout = 0
	}
	t, err := surface.RequestOf(r).SubmitAndWait(r.Context(), sub, timeout)
	if err != nil {
		return err
	}
	return rpc.WriteResult(encode.NewTaskRecord(t, length))
}

// handleStream answers message/stream with the task's events until it ends or needs input.
func (h handler) handleStream(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	p, sub, err := admitMessage(r, rpc)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	results := false
	if p.Configuration.ToolResults {
		// A caller without a scope to read any task may still call the agent: then there are no results.
		visibility, err := v.ResolveAgentVisibility(r.Context(), authz.TasksRead, surface.PathParam(r, "agent"))
		results = err == nil && sendsToolResults(visibility)
	}
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return err
	}
	if rpc.IsNotification() {
		f.Close()
		return rpc.WriteResult(nil)
	}
	encoder := newStreamEncoder(f.Task, results, rpc.EncodeError)
	encoder.EndsWhenSettled = true
	return v.StreamEvents(w, f, encoder)
}

// admitMessage decodes the message, authorizes the caller and reserves its budgets and limits. A validation error
// is passed to [surface.Request.AdmitMessage], which returns it only to callers that may call the agent. A push
// notification config is refused, since ignoring it would leave the client waiting for notifications.
func admitMessage(r *http.Request, rpc *jsonrpc.Call) (messageParams, task.Submission, error) {
	var p messageParams
	var m agentsvc.Message
	var wrong error
	if len(rpc.Params) > 0 {
		wrong = decodeParams(r, rpc, &p, &p.Tenant)
	}
	switch {
	case wrong != nil:
	case p.Message == nil: // the same where params are missing (docs/api/extension.md)
		wrong = agentsvc.NewError(apierror.CodeMalformed, "params.message is missing")
	default:
		m, wrong = p.Message.toDomain()
	}
	// This surface has no push notifications; a2a has.
	if wrong == nil && p.Configuration.FirstConfig() != nil {
		wrong = apierror.ErrNoPush
	}
	sub, err := surface.RequestOf(r).AdmitMessage(r.Context(), surface.PathParam(r, "agent"), m, wrong)
	if err == nil {
		sub.Key, err = idempotency.Key(r)
	}
	return p, sub, err
}
