package ops

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/tenancy"
)

func (a admin) create(ctx context.Context, o *order) (answer, error) {
	var b createBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	app, err := a.apps.Create(ctx, o.actor, tenancy.Draft{
		Name: b.Name, DisplayName: b.DisplayName, Config: b.Config, Secrets: b.Secrets, Grants: b.Grants, Plan: b.Plan, Limits: b.Limits, Labels: b.Labels,
		Auth: b.Auth,
	}, o.dry)
	out := about(app)
	if !o.dry {
		out.status = http.StatusCreated
	}
	return out, err
}

func (a admin) update(ctx context.Context, o *order) (answer, error) {
	var b updateBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	revision, err := ifMatch(o.r)
	if err != nil {
		return answer{}, err
	}
	app, err := a.apps.Update(ctx, o.actor, o.app(), tenancy.Change{
		DisplayName: b.DisplayName, Config: b.Config, Secrets: b.Secrets, Grants: b.Grants, Plan: b.Plan, Limits: b.Limits, Labels: b.Labels,
		Auth: b.Auth.change(), IfRevision: revision,
	}, o.dry)
	return about(app), err
}

func (a admin) remove(ctx context.Context, o *order) (answer, error) {
	return answer{status: http.StatusNoContent}, a.apps.Delete(ctx, o.actor, o.app())
}

func (a admin) suspend(ctx context.Context, o *order) (answer, error) {
	return a.turn(ctx, o, a.apps.Suspend)
}

func (a admin) resume(ctx context.Context, o *order) (answer, error) {
	return a.turn(ctx, o, a.apps.Resume)
}

func (a admin) turn(ctx context.Context, o *order, to func(ctx context.Context, actor, name, reason string) (tenancy.App, error)) (answer, error) {
	var b reasonBody
	if err := o.decode(&b, true); err != nil {
		return answer{}, err
	}
	app, err := to(ctx, o.actor, o.app(), b.Reason)
	return about(app), err
}

func (a admin) restore(ctx context.Context, o *order) (answer, error) {
	n, err := strconv.ParseInt(surface.Param(o.r, "revision"), 10, 64)
	if err != nil {
		return answer{}, agentsvc.Invalid("revision", "must be the number of a revision")
	}
	app, err := a.apps.Restore(ctx, o.actor, o.app(), n)
	return about(app), err
}

func about(app tenancy.App) answer {
	return answer{status: http.StatusOK, body: newAppBody(app), app: app.ID, revision: app.Revision}
}

func (a admin) get(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.Get(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	out := newAppBody(app)
	if app.ID == tenancy.DefaultID && a.awaits != nil {
		out.AwaitsRestart = a.awaits()
	}
	return answer{status: http.StatusOK, body: out, revision: app.Revision}.write(w)
}

func (a admin) list(w http.ResponseWriter, r *http.Request) error {
	size, err := surface.PageSize(r, tenancy.PageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	page, err := a.apps.List(r.Context(), tenancy.Query{Status: tenancy.Status(q.Get("status")), Size: size, Token: q.Get("page_token")})
	if err != nil {
		return err
	}
	out := appList{Apps: make([]appBody, len(page.Apps)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, app := range page.Apps {
		app.Config = nil
		out.Apps[i] = newAppBody(app)
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

func (a admin) revisions(w http.ResponseWriter, r *http.Request) error {
	found, err := a.apps.Revisions(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	out := make([]revisionBody, len(found))
	for i, v := range found {
		out[i] = revisionBody{v.Number, v.Actor, stamp(v.CreatedAt), v.Current}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"revisions": out})
}

// ifMatch returns the revision that the caller requires, 0 for whichever.
func ifMatch(r *http.Request) (int64, error) {
	tag := strings.TrimSpace(r.Header.Get("If-Match"))
	if tag == "" || tag == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, agentsvc.Invalid("If-Match", `must be a revision, such as "3"`)
	}
	return n, nil
}
