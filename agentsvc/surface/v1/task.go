package v1

import (
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// resolveTask returns the task ID of the path and which tasks of the agent the caller may act on: with the scope
// wide those of every user of the app, else its own. A task outside this visibility is later reported as not found.
func resolveTask(r *http.Request, wide authz.Scope) (agentsvc.TaskID, task.Visibility, error) {
	id := surface.PathParam(r, "task")
	visibility, err := surface.RequestOf(r).ResolveAgentVisibility(r.Context(), wide, surface.PathParam(r, "agent"))
	if err == nil {
		err = decode.CheckID("task", id)
	}
	return agentsvc.TaskID(id), visibility, err
}

// taskDetail is how much of a task the query asks for.
type taskDetail struct {
	length    *int // messages of its history, nil = not given
	artifacts bool
}

// parseDetail parses history_length and include_artifacts. An error names the parameter.
func parseDetail(r *http.Request) (d taskDetail, err error) {
	if d.length, err = decode.ParseHistoryLength(r); err != nil {
		return d, err
	}
	d.artifacts, err = decode.ParseBool(r.URL.Query(), "include_artifacts")
	return d, err
}

// handleGetTask answers with a task and its whole history, or as much of it as history_length asks for.
func handleGetTask(w http.ResponseWriter, r *http.Request) error {
	id, visibility, err := resolveTask(r, authz.TasksRead)
	if err != nil {
		return err
	}
	d, err := parseDetail(r)
	if err != nil {
		return err
	}
	// The parts that the answer leaves out are not read from the store.
	with := store.TaskParts{History: d.length == nil || *d.length > 0, Artifacts: d.artifacts}
	t, err := surface.RequestOf(r).Tasks.Reader.Get(r.Context(), visibility, id, with)
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newTask(t, d.length, d.artifacts))
}

// handleListTasks answers with a page of the agent's tasks. Histories are left out unless history_length asks for
// them.
func handleListTasks(w http.ResponseWriter, r *http.Request) error {
	v, q := surface.RequestOf(r), r.URL.Query()
	visibility, err := v.ResolveAgentVisibility(r.Context(), authz.TasksRead, surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	query := task.Query{Context: agentsvc.ContextID(q.Get("context_id")), Token: q.Get("page_token")}
	if query.State, err = decode.ParseState(q.Get("status")); err != nil {
		return err
	}
	if query.Size, err = decode.ParsePageSize(r, task.DefaultPageSize, task.MaxPageSize); err != nil {
		return err
	}
	d, err := parseDetail(r)
	if err != nil {
		return err
	}
	// Without history_length a list has no histories, while a single task has its whole history.
	if d.length == nil {
		d.length = new(int)
	}
	query.Parts = store.TaskParts{History: *d.length > 0, Artifacts: d.artifacts}
	page, err := v.Tasks.Reader.List(r.Context(), visibility, query)
	if err != nil {
		return err
	}
	// Pages and tasks that were read without history and artifacts are cached by the store together with their
	// encoded form, under the name of this surface; the encoding then depends on the task alone, not on the query
	// or the caller. Polling clients get the same bytes again without a new encoding. The caches are nil for other
	// queries.
	body, err := page.EncodedCache.GetOrEncode("v1", func() ([]byte, error) {
		tasks := make([][]byte, len(page.Tasks))
		for i, t := range page.Tasks {
			var err error
			tasks[i], err = page.TaskEncodedCaches[i].GetOrEncode("v1", func() ([]byte, error) { return encode.JSON(newTask(t, d.length, d.artifacts)) })
			if err != nil {
				return nil, err
			}
		}
		return encode.List("tasks", tasks, listTrailer{NextPageToken: page.Next, TotalSize: page.Total})
	})
	if err != nil {
		return err
	}
	return response.WriteEncoded(w, body)
}

// handleCancelTask cancels a task and answers with it, without history and artifacts. A task that has ended is
// [apierror.ErrNotCancelable].
func handleCancelTask(w http.ResponseWriter, r *http.Request) error {
	id, visibility, err := resolveTask(r, authz.TasksCancel)
	if err != nil {
		return err
	}
	t, err := surface.RequestOf(r).CancelTask(r.Context(), visibility, id)
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newTask(t, new(int), false))
}

// handleSubscribe answers with a snapshot of the task and its events from there on until the task ends, or with the
// events after the one that Last-Event-ID or the query parameter after names. The stream stays open while the task
// waits for input.
func handleSubscribe(w http.ResponseWriter, r *http.Request) error {
	id, visibility, err := resolveTask(r, authz.TasksRead)
	if err != nil {
		return err
	}
	format, err := negotiateFormat(r)
	if err != nil {
		return err
	}
	after, err := parseAfter(r)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	f, err := v.SubscribeTask(r.Context(), visibility, id, after)
	if err != nil {
		return err
	}
	d := format(&eventEncoder{r: r, context: f.Task.Context})
	// A subscriber also wants to see how the task continues after its input has arrived.
	d.EndsWhenSettled = false
	return v.StreamEvents(w, f, d)
}

// parseAfter returns the sequence number after which the client continues, or nil if it starts with a snapshot.
// Last-Event-ID takes precedence over the query: browsers repeat the URL unchanged when they reconnect.
func parseAfter(r *http.Request) (*int64, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return decode.ParseAfter(r, nil)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, agentsvc.NewInvalidError("after", "must be the id of an event")
	}
	return decode.ParseAfter(r, &n)
}
