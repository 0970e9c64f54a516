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

// caller answers the JSON-RPC methods of an agent.
type caller struct {
	blockFor time.Duration
}

// method finds the method of that name.
func (c caller) method(name string) surface.Method {
	switch name {
	case "message:send", "message/send":
		return c.send
	case "message:stream", "message/stream":
		return c.stream
	case "tasks/get":
		return inTime(get)
	case "tasks/list":
		return inTime(list)
	case "tasks/cancel":
		return inTime(surface.Once(cancel))
	case "tasks/subscribe":
		return subscribe
	}
	if strings.HasPrefix(name, "tasks/pushNotificationConfig/") {
		return noPush
	}
	return nil
}

// inTime bounds how long a method may take that waits for no task.
func inTime(m surface.Method) surface.Method {
	return func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		ctx, stop := surface.VisitOf(r).InTime(r.Context())
		defer stop()
		return m(w, r.WithContext(ctx), rpc)
	}
}

func noPush(_ http.ResponseWriter, r *http.Request, _ *surface.RPC) error {
	return cmp.Or(surface.VisitOf(r).Use(r.Context(), authz.AgentsCall, surface.Param(r, "agent"), ""), surface.ErrNoPush)
}

// decode reads the params of a call, which must be for the agent that it was sent to: tenant, a part of them, may say so.
func decode(r *http.Request, rpc *surface.RPC, params any, tenant *string) error {
	if err := rpc.Decode(params); err != nil {
		return err
	}
	return surface.VisitOf(r).Named(*tenant, surface.Param(r, "agent"))
}

// send answers with the task: as it ends or comes to wait for somebody, or where the caller does not want to wait, as
// it was accepted.
func (c caller) send(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, sub, err := submission(r, rpc)
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
	if err := surface.CheckLength("history_length", *length); err != nil {
		return err
	}
	patience := c.blockFor
	if b := p.Configuration.Blocking; b != nil && !*b {
		patience = 0
	}
	t, err := surface.VisitOf(r).Send(r.Context(), sub, patience)
	if err != nil {
		return err
	}
	return rpc.Reply(surface.NewTaskRecord(t, length))
}

// stream answers with the task's events until it ends or waits for somebody.
func (c caller) stream(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	_, sub, err := submission(r, rpc)
	if err != nil {
		return err
	}
	v := surface.VisitOf(r)
	f, err := v.Call(r.Context(), sub)
	if err != nil {
		return err
	}
	return v.Stream(w, f, surface.Dialect{Event: new(teller).event, Fault: rpc.Fault, Rests: true})
}

// submission reads what the caller wants to tell the agent.
func submission(r *http.Request, rpc *surface.RPC) (messageParams, task.Submission, error) {
	var p messageParams
	if err := decode(r, rpc, &p, &p.Tenant); err != nil {
		return p, task.Submission{}, err
	}
	var m agentsvc.Message
	wrong := surface.InvalidRequest("params.message is missing")
	if p.Message != nil {
		m, wrong = p.Message.word()
	}
	if wrong == nil && p.Configuration.Given() != nil {
		wrong = surface.ErrNoPush
	}
	sub, err := surface.VisitOf(r).Submission(r.Context(), surface.Param(r, "agent"), m, wrong)
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	return p, sub, err
}
