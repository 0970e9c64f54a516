package ops

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/tenancy"
)

// queue answers with the queue at a glance, and with what this process has in memory beside it.
func (a admin) queue(w http.ResponseWriter, r *http.Request) error {
	s, err := store.NewRuns(a.db).Stats(r.Context(), a.memory...)
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

// deadLetters answers with a page of the runs that failed for good, those of the newest tasks first.
func (a admin) deadLetters(w http.ResponseWriter, r *http.Request) error {
	size, err := surface.PageSize(r, tenancy.PageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	f, err := deadFilter(q.Get("app"), q.Get("agent"), q.Get("error"))
	if err != nil {
		return err
	}
	f.Limit = size
	if token := q.Get("page_token"); token != "" {
		var ok bool
		if f.Before, ok = store.ParseDeadID(token); !ok {
			return agentsvc.Invalid("page_token", "is not one that this list gave")
		}
	}
	dead, total, err := a.dead.List(r.Context(), f)
	if err != nil {
		return err
	}
	out := deadList{Runs: make([]deadBody, len(dead)), TotalSize: total}
	for i, d := range dead {
		out.Runs[i] = deadBody{d.ID.String(), d.App, d.Agent, string(d.ID.Task), d.Attempts, d.Error, stamp(d.FailedAt)}
	}
	if len(dead) == size {
		out.NextPageToken = dead[size-1].ID.String()
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

func deadFilter(app, agent, text string) (store.DeadFilter, error) {
	for field, value := range map[string]string{"app": app, "agent": agent, "error": text} {
		if err := surface.CheckID(field, value); err != nil {
			return store.DeadFilter{}, err
		}
	}
	return store.DeadFilter{App: app, Agent: agent, Error: text}, nil
}

// requeue has a new task go on in place of one whose run failed for good.
func (a admin) requeue(ctx context.Context, o *order) (answer, error) {
	id, ok := store.ParseDeadID(surface.Param(o.r, "id"))
	if !ok {
		return answer{}, agentsvc.ErrNotFound
	}
	d, next, err := a.dead.Requeue(ctx, o.actor, id)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: requeuedBody{d.ID.String(), d.App, string(next)}, app: d.Tenant}, nil
}

// maxRequeued bounds how many runs one call requeues.
const maxRequeued = 1000

// requeueAll does so for all that a filter chooses, and tells how many they were and how many are left.
func (a admin) requeueAll(ctx context.Context, o *order) (answer, error) {
	var b requeueBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	f, err := deadFilter(b.App, b.Agent, b.Error)
	if err != nil {
		return answer{}, err
	}
	n, left, err := a.dead.RequeueAll(ctx, o.actor, f, maxRequeued)
	return answer{status: http.StatusOK, body: requeuedAllBody{n, left}}, err
}
