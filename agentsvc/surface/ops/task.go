package ops

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// listTasks answers with a page of the tasks that the caller may see: the app's, or its own.
func listTasks(w http.ResponseWriter, r *http.Request) error {
	v, q := surface.VisitOf(r), r.URL.Query()
	reach, err := v.Reach(authz.TasksRead, q.Get("agent"))
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
	})
	if err != nil {
		return err
	}
	out := taskList{Tasks: make([]surface.TaskRecord, len(page.Tasks)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, t := range page.Tasks {
		out.Tasks[i] = surface.NewTaskRecord(t, nil)
		out.Tasks[i].Agent = t.Agent
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}
