package tenantapi

import (
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handleListTasks answers with a page of tasks of all agents: those of every user if the caller may read the app's
// tasks, else its own. Tasks include their open approvals.
func handleListTasks(w http.ResponseWriter, r *http.Request) error {
	v, q := surface.RequestOf(r), r.URL.Query()
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksRead, q.Get("agent"))
	if err != nil {
		return err
	}
	size, err := decode.ParsePageSize(r, task.DefaultPageSize, task.MaxPageSize)
	if err != nil {
		return err
	}
	state, err := decode.ParseState(q.Get("status"))
	if err != nil {
		return err
	}
	for _, field := range []string{"agent", "context_id"} {
		if err := decode.CheckID(field, q.Get(field)); err != nil {
			return err
		}
	}
	since, err := decode.ParseTime("since", q.Get("since"), time.Time{})
	if err != nil {
		return err
	}
	until, err := decode.ParseTime("until", q.Get("until"), time.Time{})
	if err != nil {
		return err
	}
	// Approvals are included: this list is how operators find the calls that wait for them.
	page, err := v.Tasks.Reader.List(r.Context(), visibility, task.Query{
		Context: agentsvc.ContextID(q.Get("context_id")), State: state, Since: since, Until: until, Text: strings.TrimSpace(q.Get("text")),
		Size: size, Token: q.Get("page_token"),
		Parts: store.TaskParts{Approvals: true, Opening: true},
	})
	if err != nil {
		return err
	}
	out := taskList{Tasks: make([]encode.TaskRecord, len(page.Tasks)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, t := range page.Tasks {
		out.Tasks[i] = newTaskRecord(t)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleGetTask answers with a task of any agent, with its open approvals, its artifacts and as much of its history as
// history_length asks for (without it all). The caller sees the same tasks as in the list.
func handleGetTask(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	length, err := decode.ParseHistoryLength(r)
	if err != nil {
		return err
	}
	parts := store.TaskParts{History: length == nil || *length > 0, Artifacts: true, Approvals: true}
	t, err := v.Tasks.Reader.Get(r.Context(), visibility, agentsvc.TaskID(surface.PathParam(r, "task")), parts)
	if err != nil {
		return err
	}
	record := encode.NewTaskRecord(t, length)
	record.Agent, record.Own = t.Agent, new(t.Owner == v.Principal.Owner())
	return response.WriteJSON(w, http.StatusOK, record)
}

// newTaskRecord returns a task with the name of its agent, since these lists are about all agents.
func newTaskRecord(t agentsvc.Task) encode.TaskRecord {
	record := encode.NewTaskRecord(t, nil)
	record.Agent = t.Agent
	return record
}

// handleCancelTask cancels a task of any agent and answers with it.
func handleCancelTask(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksCancel, "")
	if err != nil {
		return err
	}
	if err := surface.DecodeBody(r, &struct{}{}); err != nil {
		return err
	}
	t, err := v.CancelTask(r.Context(), visibility, agentsvc.TaskID(surface.PathParam(r, "task")))
	if err != nil {
		return err
	}
	t.History, t.Artifacts = nil, nil
	return response.WriteJSON(w, http.StatusOK, newTaskRecord(t))
}
