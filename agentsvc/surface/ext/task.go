package ext

import (
	"cmp"
	"errors"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// resolveTask decodes the params of a method about one task and returns which tasks of the agent the caller may act
// on: with the scope wide those of every user of the app, else its own. The ID is in p.ID, whichever spelling the
// client used.
func resolveTask(r *http.Request, rpc *jsonrpc.Call, wide authz.Scope) (taskParams, task.Visibility, error) {
	var p taskParams
	visibility, err := surface.RequestOf(r).ResolveAgentVisibility(r.Context(), wide, surface.PathParam(r, "agent"))
	if err == nil {
		err = decodeParams(r, rpc, &p, &p.Tenant)
	}
	if err != nil {
		return p, visibility, err
	}
	p.ID = cmp.Or(p.ID, p.TaskID, p.TaskIDCamel)
	if p.ID == "" {
		return p, visibility, agentsvc.NewInvalidError("id", "is missing: the id of a task")
	}
	return p, visibility, decode.CheckID("id", p.ID)
}

// handleGet answers tasks/get with the task, its artifacts and as much of its history as history_length asks for
// (without it all).
func handleGet(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	p, visibility, err := resolveTask(r, rpc, authz.TasksRead)
	if err != nil {
		return err
	}
	if p.HistoryLength == nil {
		p.HistoryLength = p.HistoryLengthCamel
	}
	if p.HistoryLength != nil {
		if err := decode.CheckHistoryLength("history_length", *p.HistoryLength); err != nil {
			return err
		}
	}
	t, err := surface.RequestOf(r).Tasks.Reader.Get(r.Context(), visibility, agentsvc.TaskID(p.ID), store.TaskParts{History: true, Artifacts: true})
	if err != nil {
		return err
	}
	return rpc.WriteResult(encode.NewTaskRecord(t, p.HistoryLength))
}

// handleList answers tasks/list with a page of the agent's tasks, without histories unless history_length asks for
// them. Params are optional.
func handleList(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	visibility, err := surface.RequestOf(r).ResolveAgentVisibility(r.Context(), authz.TasksRead, surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	p := listParams{HistoryLength: new(int)}
	if len(rpc.Params) > 0 {
		if err := decodeParams(r, rpc, &p, &p.Tenant); err != nil {
			return err
		}
	}
	state, err := decode.ParseState(p.Status)
	if err != nil {
		return err
	}
	q := task.Query{Context: agentsvc.ContextID(p.ContextID), State: state, Token: p.PageToken}
	if p.HistoryLength == nil {
		p.HistoryLength = new(int)
	}
	// The first of the errors decides the answer; joining keeps the order of the checks.
	err = errors.Join(decode.CheckHistoryLength("history_length", *p.HistoryLength), decode.CheckID("context_id", p.ContextID))
	if p.PageSize != nil {
		q.Size = *p.PageSize
		err = errors.Join(err, decode.CheckPageSize(q.Size, task.MaxPageSize))
	}
	if err != nil {
		return err
	}
	// The parts that the answer leaves out are not read from the store.
	q.Parts = store.TaskParts{History: *p.HistoryLength > 0, Artifacts: p.IncludeArtifacts}
	page, err := surface.RequestOf(r).Tasks.Reader.List(r.Context(), visibility, q)
	if err != nil {
		return err
	}
	answer := taskList{Tasks: make([]encode.TaskRecord, len(page.Tasks)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, t := range page.Tasks {
		answer.Tasks[i] = encode.NewTaskRecord(t, p.HistoryLength)
	}
	return rpc.WriteResult(answer)
}

// handleCancel answers tasks/cancel with the cancelled task. A task that has ended is [apierror.ErrNotCancelable].
func handleCancel(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	p, visibility, err := resolveTask(r, rpc, authz.TasksCancel)
	if err != nil {
		return err
	}
	t, err := surface.RequestOf(r).CancelTask(r.Context(), visibility, agentsvc.TaskID(p.ID))
	if err != nil {
		return err
	}
	return rpc.WriteResult(encode.NewTaskRecord(t, new(int)))
}

// maxReason bounds the reason for cancelling a tool call, in bytes; the agent's model reads it.
const maxReason = 1000

// handleCancelCall cancels one running tool call. The task continues: the agent receives the cancellation as the
// call's result. The route names no agent, so the visibility covers all agents that the caller may act on.
func handleCancelCall(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksCancel, "")
	if err != nil {
		return err
	}
	var b cancelBody
	if err := surface.DecodeBody(r, &b); err != nil {
		return err
	}
	if len(b.Reason) > maxReason {
		return agentsvc.NewInvalidError("reason", "must be at most %d bytes", maxReason)
	}
	id, call := surface.PathParam(r, "task"), surface.PathParam(r, "call")
	if err := v.Tasks.Canceller.CancelCall(r.Context(), visibility, agentsvc.TaskID(id), agentsvc.CallID(call), b.Reason); err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, callCancelled{Cancelled: true, TaskID: id, CallID: call})
}

// handleSubscribe answers tasks/subscribe with a snapshot of the task and its events until the task ends, or with
// the events after the one that Last-Event-ID or the param after names.
func handleSubscribe(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	p, visibility, err := resolveTask(r, rpc, authz.TasksRead)
	if err != nil {
		return err
	}
	after, err := decode.ParseAfter(r, p.After)
	if err != nil {
		return err
	}
	results := p.ToolResults && sendsToolResults(visibility)
	v := surface.RequestOf(r)
	f, err := v.SubscribeTask(r.Context(), visibility, agentsvc.TaskID(p.ID), after)
	if err != nil {
		return err
	}
	if rpc.IsNotification() {
		f.Close()
		return rpc.WriteResult(nil)
	}
	return v.StreamEvents(w, f, newStreamEncoder(f.Task, results, rpc.EncodeError))
}

// sendsToolResults reports whether a stream may contain what tools answered to the agent: only for callers who may read
// every user's tasks of the app, since a tool may return more than its agent shows to users.
func sendsToolResults(v task.Visibility) bool { return v.Owner == nil }
