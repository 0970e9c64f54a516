package v1

import (
	"net/http"
	"net/url"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// named finds out which task the path names and how far the caller reaches.
func named(r *http.Request, wide authz.Scope) (agentsvc.TaskID, task.Reach, error) {
	id := surface.Param(r, "task")
	reach, err := surface.VisitOf(r).Within(r.Context(), wide, surface.Param(r, "agent"))
	if err == nil {
		err = surface.CheckID("task", id)
	}
	return agentsvc.TaskID(id), reach, err
}

// detail is how much of a task the query asks for.
type detail struct {
	length    *int // of its history, nil = not said
	artifacts bool
}

func detailOf(q url.Values) (d detail, err error) {
	if text := q.Get("history_length"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return d, agentsvc.Invalid("history_length", "must be a number")
		}
		if err := surface.CheckLength("history_length", n); err != nil {
			return d, err
		}
		d.length = &n
	}
	if text := q.Get("include_artifacts"); text != "" {
		if d.artifacts, err = strconv.ParseBool(text); err != nil {
			return d, agentsvc.Invalid("include_artifacts", "must be true or false")
		}
	}
	return d, nil
}

// get answers with a task and its history.
func get(w http.ResponseWriter, r *http.Request) error {
	id, reach, err := named(r, authz.TasksRead)
	if err != nil {
		return err
	}
	if err := surface.CheckQuery(r, "history_length", "include_artifacts"); err != nil {
		return err
	}
	d, err := detailOf(r.URL.Query())
	if err != nil {
		return err
	}
	with := store.With{History: d.length == nil || *d.length > 0, Artifacts: d.artifacts}
	t, err := surface.VisitOf(r).Tasks().Get(r.Context(), reach, id, with)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newTask(t, d.length, d.artifacts))
}

// listTasks answers with a page of an agent's tasks, without their histories where their length is not said.
func listTasks(w http.ResponseWriter, r *http.Request) error {
	v, q := surface.VisitOf(r), r.URL.Query()
	reach, err := v.Within(r.Context(), authz.TasksRead, surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	if err := surface.CheckQuery(r, "context_id", "status", "page_size", "page_token", "history_length", "include_artifacts"); err != nil {
		return err
	}
	query := task.Query{Context: agentsvc.ContextID(q.Get("context_id")), Token: q.Get("page_token")}
	if query.State, err = stateOf(q.Get("status")); err != nil {
		return err
	}
	if query.Size, err = surface.PageSize(r, task.DefaultPage, task.MaxPage); err != nil {
		return err
	}
	d, err := detailOf(q)
	if err != nil {
		return err
	}
	if d.length == nil {
		d.length = new(int)
	}
	query.With = store.With{History: *d.length > 0, Artifacts: d.artifacts}
	page, err := v.Tasks().List(r.Context(), reach, query)
	if err != nil {
		return err
	}
	body, err := page.Memo.Get("v1", func() ([]byte, error) {
		tasks := make([][]byte, len(page.Tasks))
		for i, t := range page.Tasks {
			var err error
			tasks[i], err = page.Memos[i].Get("v1", func() ([]byte, error) { return surface.JSON(newTask(t, d.length, d.artifacts)) })
			if err != nil {
				return nil, err
			}
		}
		return surface.JSONList("tasks", tasks, listEnd{NextPageToken: page.Next, TotalSize: page.Total})
	})
	if err != nil {
		return err
	}
	return surface.WriteMade(w, body)
}

// cancel ends a task and answers with it.
func cancel(w http.ResponseWriter, r *http.Request) error {
	id, reach, err := named(r, authz.TasksCancel)
	if err != nil {
		return err
	}
	t, err := surface.VisitOf(r).Cancel(r.Context(), reach, id)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newTask(t, new(int), false))
}

// subscribe answers with the task as it stands and its events from there on until it ends, or with the events after the
// last one that the caller has seen.
func subscribe(w http.ResponseWriter, r *http.Request) error {
	id, reach, err := named(r, authz.TasksRead)
	if err != nil {
		return err
	}
	if err := surface.CheckQuery(r, "format", "after"); err != nil {
		return err
	}
	shape, err := shapeOf(r)
	if err != nil {
		return err
	}
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	v := surface.VisitOf(r)
	f, err := v.Follow(r.Context(), reach, id, after)
	if err != nil {
		return err
	}
	d := shape(&teller{r: r, context: f.Task.Context})
	d.Rests = false
	return v.Stream(w, f, d)
}

// afterOf returns the event after which the caller wants to go on, nil where it begins anew.
func afterOf(r *http.Request) (*int64, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return surface.After(r, nil)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, agentsvc.Invalid("after", "must be the id of an event")
	}
	return surface.After(r, &n)
}
