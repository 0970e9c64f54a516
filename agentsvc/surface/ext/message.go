package ext

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handler answers the JSON-RPC methods of an agent.
type handler struct {
	blockFor time.Duration
}

// findMethod finds the method of that name.
func (c handler) findMethod(name string) surface.Method {
	switch name {
	case "message:send", "message/send":
		return c.handleSend
	case "message:stream", "message/stream":
		return c.handleStream
	case "tasks/get":
		return withDeadline(handleGet)
	case "tasks/list":
		return withDeadline(handleList)
	case "tasks/cancel":
		return withDeadline(surface.NewIdempotentMethod(handleCancel))
	case "tasks/subscribe":
		return handleSubscribe
	}
	if strings.HasPrefix(name, "tasks/pushNotificationConfig/") {
		return refusePush
	}
	return nil
}

// withDeadline bounds how long a method may take that waits for no task.
func withDeadline(m surface.Method) surface.Method {
	return func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		ctx, stop := surface.RequestOf(r).WithDeadline(r.Context())
		defer stop()
		return m(w, r.WithContext(ctx), rpc)
	}
}

func refusePush(_ http.ResponseWriter, r *http.Request, _ *surface.RPC) error {
	return cmp.Or(surface.RequestOf(r).AuthorizeAgent(r.Context(), authz.AgentsCall, surface.PathParam(r, "agent"), ""), surface.ErrNoPush)
}

// decodeParams reads the params of a call, which must be for the agent that it was sent to: tenant, a part of them, may say so.
func decodeParams(r *http.Request, rpc *surface.RPC, params any, tenant *string) error {
	if err := rpc.DecodeParams(params); err != nil {
		return err
	}
	return surface.RequestOf(r).CheckTenant(*tenant, surface.PathParam(r, "agent"))
}

// handleSend answers with the task: as it ends or comes to wait for somebody, or where the caller does not want to wait, as
// it was accepted.
func (c handler) handleSend(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, sub, err := admitMessage(r, rpc)
	if err != nil {
		return err
	}
	length := p.Configuration.HistoryLength
	if length == nil {
		length = p.Configuration.HistoryLengthCamel
	}
	if length == nil {
		length = new(int) // who sends a message knows what was said
	}
	if err := surface.CheckHistoryLength("history_length", *length); err != nil {
		return err
	}
	timeout := c.blockFor
	if b := p.Configuration.Blocking; b != nil && !*b {
		timeout = 0
	}
	t, err := surface.RequestOf(r).SubmitAndWait(r.Context(), sub, timeout)
	if err != nil {
		return err
	}
	return rpc.WriteResult(surface.NewTaskRecord(t, length))
}

// handleStream answers with the task's events until it ends or waits for somebody.
func (c handler) handleStream(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	_, sub, err := admitMessage(r, rpc)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return err
	}
	return v.StreamEvents(w, f, surface.StreamEncoder{EncodeEvent: new(eventEncoder).encodeEvent, EncodeError: rpc.EncodeError, EndsWhenSettled: true})
}

// admitMessage reads what the caller wants to tell the agent.
func admitMessage(r *http.Request, rpc *surface.RPC) (messageParams, task.Submission, error) {
	var p messageParams
	if err := decodeParams(r, rpc, &p, &p.Tenant); err != nil {
		return p, task.Submission{}, err
	}
	var m agentsvc.Message
	wrong := surface.NewInvalidRequestError("params.message is missing")
	if p.Message != nil {
		m, wrong = p.Message.toDomain()
	}
	if wrong == nil && p.Configuration.FirstConfig() != nil {
		wrong = surface.ErrNoPush
	}
	sub, err := surface.RequestOf(r).AdmitMessage(r.Context(), surface.PathParam(r, "agent"), m, wrong)
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	return p, sub, err
}
