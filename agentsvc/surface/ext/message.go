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
	if _, err := addressed(r, authz.AgentsCall, ""); err != nil {
		return err
	}
	return surface.ErrNoPush
}

// decode reads the params of a call, which must be for the agent that it was sent to: tenant, a part of them, may say so.
func decode(r *http.Request, rpc *surface.RPC, params any, tenant *string) error {
	if err := rpc.Decode(params); err != nil {
		return err
	}
	return surface.VisitOf(r).Named(*tenant, surface.Param(r, "agent"))
}

// addressed admits the caller to an action with the agent that the path names, and returns that agent.
func addressed(r *http.Request, action authz.Scope, session agentsvc.ContextID) (agent string, err error) {
	v, agent := surface.VisitOf(r), surface.Param(r, "agent")
	if err := v.Admit(r.Context(), action, agent, session); err != nil {
		return "", err
	}
	_, err = v.Callee(agent)
	return agent, err
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
	if err := checkLength(*length); err != nil {
		return err
	}
	v := surface.VisitOf(r)
	if b := p.Configuration.Blocking; b != nil && !*b {
		t, err := v.Submit(r.Context(), sub)
		if err != nil {
			return err
		}
		return rpc.Reply(surface.NewTaskRecord(t, length))
	}
	f, err := v.Call(r.Context(), sub)
	if err != nil {
		return err
	}
	t, err := f.Wait(c.blockFor)
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
	if p.Message == nil {
		_, err := addressed(r, authz.AgentsCall, "")
		return p, task.Submission{}, cmp.Or(err, surface.InvalidRequest("params.message is missing"))
	}
	session := agentsvc.ContextID(cmp.Or(p.Message.ContextID, p.Message.ContextIDCamel))
	m, wrong := p.Message.word()
	if wrong != nil {
		_, err := addressed(r, authz.AgentsCall, session)
		return p, task.Submission{}, cmp.Or(err, wrong)
	}
	sub, err := surface.VisitOf(r).Submission(r.Context(), surface.Param(r, "agent"), session, m)
	if err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	return p, sub, err
}

func checkLength(n int) error {
	if n < 0 {
		return agentsvc.Invalid("history_length", "must not be negative")
	}
	return nil
}
