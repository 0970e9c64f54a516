package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handleCallTool answers tools/call: it submits the arguments as a message and answers with the task's result. A
// client that accepts an event stream gets the result as the last event, after progress notifications if it sent a
// progressToken; the stream lasts as long as the task. Other clients wait up to blockFor.
//
// In the newest revision the end of the connection cancels the call (docs/api/mcp.md), and the task is cancelled
// with it, except with an Idempotency-Key, under which the client may ask again. In older revisions only
// notifications/cancelled does that.
func (h handler) handleCallTool(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
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
		t, err := f.WaitSettled(h.blockFor)
		if err != nil {
			return err
		}
		return rpc.WriteResult(newCallResult(t, base))
	}
	t := &eventEncoder{rpc: rpc, task: f.Task, progressToken: p.Meta.ProgressToken, base: base}
	// A repeated call found its finished task: there is nothing to stream.
	if st := f.Task.Status.State; st.IsTerminal() || st.IsInterrupted() {
		defer f.Close()
		return rpc.WriteResult(newCallResult(f.Task, base))
	}
	return v.StreamEvents(w, f, stream.Encoder{EncodeEvent: t.encodeEvent, EncodeError: rpc.EncodeError, EndsWhenSettled: true, NotResumable: true, KeepsFacts: true})
}

// admitToolCall decodes a call, authorizes the caller and reserves its budgets and limits. Validation errors are
// passed to [surface.Request.AdmitMessage], which returns them only to callers that may call the agent. The
// idempotency key is that of the header or else made of session and request ID.
func admitToolCall(r *http.Request, rpc *jsonrpc.Call) (p callParams, sub task.Submission, err error) {
	agent := surface.PathParam(r, "agent")
	m, wrong := p.toMessage(rpc, agent)
	if rpc.ID() == "" { // null
		wrong = agentsvc.NewError(apierror.CodeMalformed, "a call needs an id")
	}
	if sub, err = surface.RequestOf(r).AdmitMessage(r.Context(), agent, m, wrong); err != nil {
		return p, sub, err
	}
	if sub.Key, err = idempotency.Key(r); sub.Key == "" {
		sub.Key = requestKey(r, rpc.ID())
	}
	return p, sub, err
}

// toMessage decodes the params of rpc into p and returns the message of the call, or an error that names the wrong
// member.
func (p *callParams) toMessage(rpc *jsonrpc.Call, agent string) (m agentsvc.Message, err error) {
	if err := rpc.DecodeParams(p); err != nil {
		return m, err
	}
	if p.Name != agent {
		return m, agentsvc.NewInvalidError("params.name", "there is no tool %.64q, only %s", p.Name, agent)
	}
	var a arguments
	if len(p.Arguments) > 0 {
		if err := decode.JSON(p.Arguments, &a, true); err != nil {
			return m, err
		}
	}
	if a.Message == "" {
		return m, agentsvc.NewInvalidError("message", "is missing: what the agent is asked")
	}
	m = agentsvc.Message{Context: agentsvc.ContextID(a.ContextID), Task: agentsvc.TaskID(a.TaskID)}
	names := decode.MessageFields{Message: "message_id", Context: "context_id", Task: "task_id"}
	return m, names.CompleteMessage(&m, 1, func(int, string) (agentsvc.Part, error) { return agentsvc.TextPart(a.Message), nil })
}

// modelErrorCodes are the errors that the model of the client can correct, since it chose the arguments of the
// call.
var modelErrorCodes = []apierror.Code{apierror.InvalidArgument, apierror.NotFound, apierror.Aborted}

// writeToolError answers a call that started no task. An error that the model may correct is a result with isError,
// which clients show to their model; JSON-RPC errors often end the conversation. All others, errors in the params
// themselves and errors for callers without permission are returned as JSON-RPC or HTTP errors.
func writeToolError(r *http.Request, rpc *jsonrpc.Call, err error) error {
	if surface.RequestOf(r).AuthorizeAgent(r.Context(), authz.AgentsCall, surface.PathParam(r, "agent")) != nil {
		return err
	}
	f := apierror.NewFault(surface.RequestID(r), err)
	if !slices.Contains(modelErrorCodes, f.Code) || rpc.ID() == "" || strings.HasPrefix(f.Field, "params") {
		return err
	}
	return rpc.WriteResult(callResult{resultBase: newResultBase(r), Content: []content{newTextContent(f.Text)}, IsError: true})
}

// handleCancelled answers notifications/cancelled: it cancels the task of the named request of the same session.
// The client gets no information about the outcome, since a notification has no response; an unknown request is
// ignored.
func handleCancelled(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
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
		if id, err := v.Tasks.Reader.FindByKey(r.Context(), v.Principal.Owner(), agent, key); err == nil {
			_, _ = v.CancelTask(r.Context(), visibility, id) // it may have ended
		}
	}
	return rpc.WriteResult(nil)
}

// requestKey returns the idempotency key of a request: a hash of session and request ID, so that its length is
// bounded. It is "" without a session or ID, and in the newest revision, which has no sessions. Keys are per user,
// so another user's session ID gives no access.
func requestKey(r *http.Request, id string) string {
	session := r.Header.Get(sessionHeader)
	if session == "" || id == "" || isNewestRevision(r) {
		return ""
	}
	sum := sha256.Sum256([]byte(session + "\n" + id))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// acceptsEventStream reports whether the Accept header contains text/event-stream.
func acceptsEventStream(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream")
}
