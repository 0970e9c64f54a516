package ops

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/tenancy"
)

// handleQueueStats answers with the queue at a glance, and with what this process has in memory beside it.
func (a adminAPI) handleQueueStats(w http.ResponseWriter, r *http.Request) error {
	s, err := store.NewRunQueue(a.db).CountRuns(r.Context(), a.inMemoryRuns...)
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
	return surface.WriteJSON(w, http.StatusOK, out)
}

// handleListDeadLetters answers with a page of the runs that failed for good, those of the newest tasks first.
func (a adminAPI) handleListDeadLetters(w http.ResponseWriter, r *http.Request) error {
	size, err := surface.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
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
		var ok bool
		if f.Before, ok = store.ParseDeadLetterID(token); !ok {
			return agentsvc.NewInvalidError("page_token", "is not one that this list gave")
		}
	}
	dead, total, err := a.deadLetters.List(r.Context(), f)
	if err != nil {
		return err
	}
	out := deadLetterList{Runs: make([]deadLetterBody, len(dead)), TotalSize: total}
	for i, d := range dead {
		out.Runs[i] = deadLetterBody{d.ID.String(), d.App, d.Agent, string(d.ID.Task), d.Attempts, d.Error, formatTime(d.FailedAt)}
	}
	if len(dead) == size {
		out.NextPageToken = dead[size-1].ID.String()
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

func newDeadLetterFilter(app, agent, text string) (store.DeadLetterFilter, error) {
	for field, value := range map[string]string{"app": app, "agent": agent, "error": text} {
		if err := surface.CheckID(field, value); err != nil {
			return store.DeadLetterFilter{}, err
		}
	}
	return store.DeadLetterFilter{App: app, Agent: agent, Error: text}, nil
}

// requeueRun has a new task go on in place of one whose run failed for good.
func (a adminAPI) requeueRun(ctx context.Context, o *mutation) (mutationResult, error) {
	id, ok := store.ParseDeadLetterID(surface.PathParam(o.r, "id"))
	if !ok {
		return mutationResult{}, agentsvc.ErrNotFound
	}
	d, next, err := a.deadLetters.Requeue(ctx, o.actor, id)
	if err != nil {
		return mutationResult{}, err
	}
	return mutationResult{status: http.StatusOK, body: requeuedBody{d.ID.String(), d.App, string(next)}, appID: d.Tenant}, nil
}

// maxRequeued bounds how many runs one call requeues.
const maxRequeued = 1000

// requeueRuns does so for all that a filter chooses, and tells how many they were and how many are left.
func (a adminAPI) requeueRuns(ctx context.Context, o *mutation) (mutationResult, error) {
	var b requeueBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	f, err := newDeadLetterFilter(b.App, b.Agent, b.Error)
	if err != nil {
		return mutationResult{}, err
	}
	n, remaining, err := a.deadLetters.RequeueAll(ctx, o.actor, f, maxRequeued)
	return mutationResult{status: http.StatusOK, body: requeuedAllBody{n, remaining}}, err
}
