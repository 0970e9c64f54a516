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

// handleCallTool sends the agent a message and answers with what comes of it, for a client that reads events as a stream: however long it
// takes, and with progress if the client wants to be told. In the newest revision a client that leaves before the end ends the task,
// unless a key says that the same call may be made again.
func (c handler) handleCallTool(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, sub, err := admitToolCall(r, rpc)
	if err != nil {
		return writeToolError(r, rpc, err)
	}
	v, base := surface.RequestOf(r), newResultBase(r)
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return writeToolError(r, rpc, err)
	}
	if isNewestRevision(r) && sub.Key == "" {
		defer func() {
			if r.Context().Err() != nil {
				v.AbandonTask(r.Context(), f.Task)
			}
		}()
	}
	if !acceptsEventStream(r) {
		t, err := f.WaitSettled(c.blockFor)
		if err != nil {
			return err
		}
		return rpc.WriteResult(newCallResult(t, base))
	}
	t := &eventEncoder{rpc: rpc, task: f.Task, progressToken: p.Meta.ProgressToken, base: base}
	if st := f.Task.Status.State; st.IsTerminal() || st.IsInterrupted() {
		defer f.Close()
		return rpc.WriteResult(newCallResult(f.Task, base)) // the same call came before
	}
	return v.StreamEvents(w, f, surface.StreamEncoder{EncodeEvent: t.encodeEvent, EncodeError: rpc.EncodeError, EndsWhenSettled: true, NotResumable: true})
}

// admitToolCall reads a call of the agent's one tool.
func admitToolCall(r *http.Request, rpc *surface.RPC) (p callParams, sub task.Submission, err error) {
	agent := surface.PathParam(r, "agent")
	m, wrong := p.toMessage(rpc, agent)
	if rpc.ID() == "" {
		wrong = surface.NewInvalidRequestError("a call needs an id")
	}
	if sub, err = surface.RequestOf(r).AdmitMessage(r.Context(), agent, m, wrong); err != nil {
		return p, sub, err
	}
	if sub.Key, err = surface.IdempotencyKey(r); sub.Key == "" {
		sub.Key = requestKey(r, rpc.ID())
	}
	return p, sub, err
}

// toMessage returns the message that a call is, or what is wrong with the call.
func (p *callParams) toMessage(rpc *surface.RPC, agent string) (m agentsvc.Message, err error) {
	if err := rpc.DecodeParams(p); err != nil {
		return m, err
	}
	if p.Name != agent {
		return m, agentsvc.NewInvalidError("params.name", "there is no tool %.64q, only %s", p.Name, agent)
	}
	var a arguments
	if len(p.Arguments) > 0 {
		if err := surface.DecodeJSON(p.Arguments, &a, true); err != nil {
			return m, err
		}
	}
	if a.Message == "" {
		return m, agentsvc.NewInvalidError("message", "is missing: what the agent is asked")
	}
	m = agentsvc.Message{Context: agentsvc.ContextID(a.ContextID), Task: agentsvc.TaskID(a.TaskID)}
	names := surface.MessageFields{Message: "message_id", Context: "context_id", Task: "task_id"}
	return m, names.CompleteMessage(&m, 1, func(int, string) (agentsvc.Part, error) { return agentsvc.TextPart(a.Message), nil })
}

// modelErrorCodes are the errors that whoever chose the arguments of a call can do something about.
var modelErrorCodes = []surface.Code{surface.InvalidArgument, surface.NotFound, surface.Aborted}

// writeToolError tells of a call that came to nothing: to the model, where that may help, as the result of its call.
func writeToolError(r *http.Request, rpc *surface.RPC, err error) error {
	if surface.RequestOf(r).AuthorizeAgent(r.Context(), authz.AgentsCall, surface.PathParam(r, "agent"), "") != nil {
		return err
	}
	f := surface.NewFault(surface.RequestID(r), err)
	if !slices.Contains(modelErrorCodes, f.Code) || rpc.ID() == "" || strings.HasPrefix(f.Field, "params") {
		return err
	}
	return rpc.WriteResult(callResult{resultBase: newResultBase(r), Content: []content{newTextContent(f.Text)}, IsError: true})
}

// handleCancelled ends the task of a call that its client does not want any more. A notification has no answer, whatever it comes to.
func handleCancelled(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	v, agent := surface.RequestOf(r), surface.PathParam(r, "agent")
	visibility, err := v.ResolveAgentVisibility(r.Context(), authz.TasksCancel, agent)
	if err != nil {
		return err
	}
	var p cancelledParams
	if err := rpc.DecodeParams(&p); err != nil {
		return err
	}
	if key := requestKey(r, string(p.RequestID)); key != "" {
		if id, err := v.Tasks().FindByKey(r.Context(), v.Principal.Owner(), agent, key); err == nil {
			_, _ = v.CancelTask(r.Context(), visibility, id) // it may have ended
		}
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// requestKey returns the key under which a request of the caller's session takes effect once, "" for one that shows no session.
func requestKey(r *http.Request, id string) string {
	session := r.Header.Get(sessionHeader)
	if session == "" || id == "" || isNewestRevision(r) {
		return ""
	}
	sum := sha256.Sum256([]byte(session + "\n" + id))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// acceptsEventStream reports whether the client accepts a stream.
func acceptsEventStream(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream")
}
