package admin

import (
	"cmp"
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store/deadletter"
	"stoa/agentsvc/store/queuestats"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/task"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// queueHandler serves the queue. It is read-only and used by value.
type queueHandler struct {
	db *db.DB
	// inMemoryDBs are the databases in this process's memory.
	inMemoryDBs []*db.DB
}

// deadLetterHandler serves runs that failed for good. It is read-only and used by value.
type deadLetterHandler struct {
	deadLetters *task.DeadLetters
}

// handleQueueStats answers with counts of runs by state, in the database and in this process's memory.
func (h queueHandler) handleQueueStats(w http.ResponseWriter, r *http.Request) error {
	s, err := queuestats.Count(r.Context(), h.db, h.inMemoryDBs...)
	if err != nil {
		return err
	}
	out := queueBody{
		Pending: s.Pending, Running: s.Running, Completed: s.Completed, Failed: s.Failed, InputRequired: s.InputRequired,
		OldestPendingSeconds: s.OldestPending.Seconds(), Apps: make([]queueApp, len(s.Apps)),
	}
	for i, app := range s.Apps {
		out.Apps[i] = queueApp(app)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleListDeadLetters answers with a page of the runs that failed for good, those of the newest tasks first. The
// page token is the ID of the last run of the previous page.
func (h deadLetterHandler) handleListDeadLetters(w http.ResponseWriter, r *http.Request) error {
	size, err := decode.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	f, err := newDeadLetterFilter(q.Get("app"), q.Get("agent"), q.Get("error"))
	if err != nil {
		return err
	}
	f.Limit = size
	if token := q.Get("page_token"); token != "" {
		// The page token is the ID of a run; an ID that does not parse was not returned by this list.
		var ok bool
		if f.Before, ok = deadletter.ParseID(token); !ok {
			return agentsvc.NewInvalidError("page_token", "is not a token of this list")
		}
	}
	dead, total, err := h.deadLetters.List(r.Context(), f)
	if err != nil {
		return err
	}
	out := deadLetterList{Runs: make([]deadLetterBody, len(dead)), TotalSize: total}
	for i, d := range dead {
		out.Runs[i] = deadLetterBody{d.ID.String(), d.App, d.Agent, string(d.ID.Task), d.Attempts, d.Error, encode.FormatOptionalTime(d.FailedAt)}
	}
	// A full page may be the last one; the next request then returns an empty page.
	if len(dead) == size {
		out.NextPageToken = dead[size-1].ID.String()
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// newDeadLetterFilter returns a filter; empty values select everything.
func newDeadLetterFilter(app, agent, text string) (deadletter.Filter, error) {
	// These are search terms of the operator; the check only keeps control characters and very long texts from the
	// database.
	for field, value := range map[string]string{"app": app, "agent": agent, "error": text} {
		if err := decode.CheckID(field, value); err != nil {
			return deadletter.Filter{}, err
		}
	}
	return deadletter.Filter{App: app, Agent: agent, Error: text}, nil
}

// requeueRun starts a new task that continues the one whose run failed for good. A run that was requeued or deleted
// meanwhile is not found.
func (h deadLetterHandler) requeueRun(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	id, ok := deadletter.ParseID(surface.PathParam(o.HTTP, "id"))
	if !ok {
		return mutation.Result{}, agentsvc.ErrNotFound
	}
	// appID ties the stored response to the app of the run, so that it is deleted with that app.
	d, next, err := h.deadLetters.Requeue(ctx, surface.MemoryOf(o.HTTP), o.Actor, id)
	if err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusOK, Body: requeuedBody{d.ID.String(), d.App, string(next)}, AppID: d.Tenant}, nil
}

// maxRequeued bounds the runs that one request requeues. The response says how many remain, so that the operator
// repeats the request.
const maxRequeued = 1000

// requeueRuns requeues the runs that a filter selects, at most maxRequeued, and answers with their number and how
// many remain.
func (h deadLetterHandler) requeueRuns(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b requeueBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	all := "requeue all runs"
	if err := cmp.Or(b.App.check("app", all), b.Agent.check("agent", all), b.Error.check("error", all)); err != nil {
		return mutation.Result{}, err
	}
	f, err := newDeadLetterFilter(b.App.text, b.Agent.text, b.Error.text)
	if err != nil {
		return mutation.Result{}, err
	}
	n, remaining, err := h.deadLetters.RequeueAll(ctx, surface.MemoryOf(o.HTTP), o.Actor, f, maxRequeued)
	return mutation.Result{Status: http.StatusOK, Body: requeuedAllBody{n, remaining}}, err
}
