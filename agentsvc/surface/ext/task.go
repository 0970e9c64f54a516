package ext

import (
	"cmp"
	"errors"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// named reads the params of a method about one task.
func named(r *http.Request, rpc *surface.RPC, wide authz.Scope) (taskParams, task.Reach, error) {
	var p taskParams
	if err := decode(r, rpc, &p, &p.Tenant); err != nil {
		return p, task.Reach{}, err
	}
	reach, err := surface.VisitOf(r).Within(wide, surface.Param(r, "agent"))
	if err != nil {
		return p, reach, err
	}
	p.ID = cmp.Or(p.ID, p.TaskID, p.TaskIDCamel)
	if p.ID == "" {
		return p, reach, agentsvc.Invalid("id", "is missing: the id of a task")
	}
	return p, reach, surface.CheckID("id", p.ID)
}

func get(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, reach, err := named(r, rpc, authz.TasksRead)
	if err != nil {
		return err
	}
	if p.HistoryLength == nil {
		p.HistoryLength = p.HistoryLengthCamel
	}
	if p.HistoryLength != nil {
		if err := surface.CheckLength("history_length", *p.HistoryLength); err != nil {
			return err
		}
	}
	t, err := surface.VisitOf(r).Tasks().Get(r.Context(), reach, agentsvc.TaskID(p.ID), store.With{History: true, Artifacts: true})
	if err != nil {
		return err
	}
	return rpc.Reply(surface.NewTaskRecord(t, p.HistoryLength))
}

func list(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p := listParams{HistoryLength: new(int)}
	if len(rpc.Params) > 0 {
		if err := decode(r, rpc, &p, &p.Tenant); err != nil {
			return err
		}
	}
	reach, err := surface.VisitOf(r).Within(authz.TasksRead, surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	q := task.Query{Context: agentsvc.ContextID(p.ContextID), State: agentsvc.State(p.Status), Token: p.PageToken}
	if p.HistoryLength == nil {
		p.HistoryLength = new(int)
	}
	err = errors.Join(surface.CheckLength("history_length", *p.HistoryLength), surface.CheckID("context_id", p.ContextID))
	if p.PageSize != nil {
		q.Size = *p.PageSize
		err = errors.Join(err, surface.CheckPageSize(q.Size, task.MaxPage))
	}
	if err != nil {
		return err
	}
	q.With = store.With{History: *p.HistoryLength > 0, Artifacts: p.IncludeArtifacts}
	page, err := surface.VisitOf(r).Tasks().List(r.Context(), reach, q)
	if err != nil {
		return err
	}
	answer := taskList{Tasks: make([]surface.TaskRecord, len(page.Tasks)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, t := range page.Tasks {
		answer.Tasks[i] = surface.NewTaskRecord(t, p.HistoryLength)
	}
	return rpc.Reply(answer)
}

func cancel(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, reach, err := named(r, rpc, authz.TasksCancel)
	if err != nil {
		return err
	}
	t, err := surface.VisitOf(r).Cancel(r.Context(), reach, agentsvc.TaskID(p.ID))
	if err != nil {
		return err
	}
	return rpc.Reply(surface.NewTaskRecord(t, new(int)))
}

// maxReason bounds why a tool call is cancelled, in bytes.
const maxReason = 1000

// cancelCall ends one running tool call; its task goes on.
func cancelCall(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	reach, err := v.Reach(authz.TasksCancel, "")
	if err != nil {
		return err
	}
	var b cancelBody
	if err := surface.DecodeBody(r, &b); err != nil {
		return err
	}
	if len(b.Reason) > maxReason {
		return agentsvc.Invalid("reason", "must be at most %d bytes", maxReason)
	}
	id, call := surface.Param(r, "task"), surface.Param(r, "call")
	if err := v.Tasks().CancelCall(r.Context(), reach, agentsvc.TaskID(id), agentsvc.CallID(call), b.Reason); err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, callCancelled{Cancelled: true, TaskID: id, CallID: call})
}

// subscribe answers with the task as it stands and its events from there on until it ends, or with the events after
// the last one that the caller has seen.
func subscribe(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	p, reach, err := named(r, rpc, authz.TasksRead)
	if err != nil {
		return err
	}
	after, err := surface.After(r, p.After)
	if err != nil {
		return err
	}
	v := surface.VisitOf(r)
	f, err := v.Follow(r.Context(), reach, agentsvc.TaskID(p.ID), after)
	if err != nil {
		return err
	}
	return v.Stream(w, f, surface.Dialect{Event: new(teller).event, Fault: rpc.Fault})
}
