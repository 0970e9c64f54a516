package ops

import (
	"bytes"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// listTasks answers with a page of the tasks that the caller may see: the app's, or its own.
func listTasks(w http.ResponseWriter, r *http.Request) error {
	v, q := surface.VisitOf(r), r.URL.Query()
	reach, err := v.Reach(r.Context(), authz.TasksRead, q.Get("agent"))
	if err != nil {
		return err
	}
	size, err := surface.PageSize(r, task.DefaultPage, task.MaxPage)
	if err != nil {
		return err
	}
	for _, field := range []string{"agent", "context_id"} {
		if err := surface.CheckID(field, q.Get(field)); err != nil {
			return err
		}
	}
	page, err := v.Tasks().List(r.Context(), reach, task.Query{
		Context: agentsvc.ContextID(q.Get("context_id")), State: agentsvc.State(q.Get("status")), Size: size, Token: q.Get("page_token"),
		With: store.With{Approvals: true},
	})
	if err != nil {
		return err
	}
	out := taskList{Tasks: make([]surface.TaskRecord, len(page.Tasks)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, t := range page.Tasks {
		out.Tasks[i] = taskOf(t)
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// decide settles a tool call that waits for a human, and answers with the task as it then stands.
func decide(verdict agentsvc.Verdict) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var b decisionBody
		if err := surface.DecodeBody(r, &b); err != nil {
			return err
		}
		if err := surface.CheckID("call_id", b.CallID); err != nil {
			return err
		}
		v := surface.VisitOf(r)
		ruling := task.Ruling{Call: agentsvc.CallID(b.CallID), Verdict: verdict, Arguments: b.Arguments, Comment: b.Comment}
		if bytes.Equal(b.Arguments, []byte("null")) {
			ruling.Arguments = nil
		}
		t, err := v.Tasks().Decide(r.Context(), task.Reach{}, agentsvc.TaskID(surface.Param(r, "task")), v.Principal.Owner(), ruling)
		if err != nil {
			return err
		}
		t.History, t.Artifacts = nil, nil
		return surface.WriteJSON(w, http.StatusOK, taskOf(t))
	}
}

func taskOf(t agentsvc.Task) surface.TaskRecord {
	record := surface.NewTaskRecord(t, nil)
	record.Agent = t.Agent
	return record
}
