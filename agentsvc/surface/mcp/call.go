package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// call sends the agent a message and answers with what comes of it, for a client that reads events as a stream: however long it
// takes, and with progress if the client wants to be told. In the newest revision a client that leaves before the end ends the task,
// unless a key says that the same call may be made again.
func (c caller) call(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, sub, err := received(r, rpc)
	if err != nil {
		return refused(r, rpc, err)
	}
	v, whole := surface.VisitOf(r), complete(r)
	f, err := v.Call(r.Context(), sub)
	if err != nil {
		return refused(r, rpc, err)
	}
	if modern(r) && sub.Key == "" {
		defer func() {
			if r.Context().Err() != nil {
				v.Abandon(r.Context(), f.Task)
			}
		}()
	}
	if !readsEvents(r) {
		t, err := f.Wait(c.blockFor)
		if err != nil {
			return err
		}
		return rpc.Reply(newResult(t, whole))
	}
	t := &teller{rpc: rpc, task: f.Task, token: p.Meta.ProgressToken, whole: whole}
	if st := f.Task.Status.State; st.Terminal() || st.Interrupted() {
		defer f.Close()
		return rpc.Reply(newResult(f.Task, whole)) // the same call came before
	}
	return v.Stream(w, f, surface.Dialect{Event: t.event, Fault: rpc.Fault, Rests: true, Single: true})
}

// received reads a call of the agent's one tool.
func received(r *http.Request, rpc *surface.RPC) (p callParams, sub task.Submission, err error) {
	agent := surface.Param(r, "agent")
	m, wrong := p.read(rpc, agent)
	if rpc.ID() == "" {
		wrong = surface.InvalidRequest("a call needs an id")
	}
	if sub, err = surface.VisitOf(r).Submission(r.Context(), agent, m, wrong); err != nil {
		return p, sub, err
	}
	if sub.Key, err = surface.IdempotencyKey(r); sub.Key == "" {
		sub.Key = keyOf(r, rpc.ID())
	}
	return p, sub, err
}

// read returns the message that a call is, or what is wrong with the call.
func (p *callParams) read(rpc *surface.RPC, agent string) (m agentsvc.Message, err error) {
	if err := rpc.Decode(p); err != nil {
		return m, err
	}
	if p.Name != agent {
		return m, agentsvc.Invalid("params.name", "there is no tool %.64q, only %s", p.Name, agent)
	}
	var a arguments
	if len(p.Arguments) > 0 {
		if err := surface.DecodeJSON(p.Arguments, &a, true); err != nil {
			return m, err
		}
	}
	if a.Message == "" {
		return m, agentsvc.Invalid("message", "is missing: what the agent is asked")
	}
	m = agentsvc.Message{Context: agentsvc.ContextID(a.ContextID), Task: agentsvc.TaskID(a.TaskID)}
	names := surface.MessageNames{Message: "message_id", Context: "context_id", Task: "task_id"}
	return m, names.Complete(&m, 1, func(int, string) (agentsvc.Part, error) { return agentsvc.TextPart(a.Message), nil })
}

// forModels are the errors that whoever chose the arguments of a call can do something about.
var forModels = []surface.Code{surface.InvalidArgument, surface.NotFound, surface.Aborted}

// refused tells of a call that came to nothing: to the model, where that may help, as the result of its call.
func refused(r *http.Request, rpc *surface.RPC, err error) error {
	if surface.VisitOf(r).Use(r.Context(), authz.AgentsCall, surface.Param(r, "agent"), "") != nil {
		return err
	}
	f := surface.FaultOf(surface.RequestID(r), err)
	if !slices.Contains(forModels, f.Code) || rpc.ID() == "" || strings.HasPrefix(f.Field, "params") {
		return err
	}
	return rpc.Reply(callResult{completion: complete(r), Content: []content{textContent(f.Text)}, IsError: true})
}

// cancelled ends the task of a call that its client does not want any more. A notification has no answer, whatever it comes to.
func cancelled(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	v, agent := surface.VisitOf(r), surface.Param(r, "agent")
	reach, err := v.Within(r.Context(), authz.TasksCancel, agent)
	if err != nil {
		return err
	}
	var p cancelledParams
	if err := rpc.Decode(&p); err != nil {
		return err
	}
	if key := keyOf(r, string(p.RequestID)); key != "" {
		if id, err := v.Tasks().Keyed(r.Context(), v.Principal.Owner(), agent, key); err == nil {
			_, _ = v.Cancel(r.Context(), reach, id) // it may have ended
		}
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// keyOf returns the key under which a request of the caller's session takes effect once, "" for one that shows no session.
func keyOf(r *http.Request, id string) string {
	session := r.Header.Get(sessionHeader)
	if session == "" || id == "" || modern(r) {
		return ""
	}
	sum := sha256.Sum256([]byte(session + "\n" + id))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// readsEvents reports whether the client accepts a stream.
func readsEvents(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream")
}
