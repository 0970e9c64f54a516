package admin

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// appHandler serves the apps themselves. It is read-only and used by value.
type appHandler struct {
	apps *tenancy.Service
	// restartKeys is [Options].RestartKeys.
	restartKeys func() []string
}

// revisionHandler serves apps' revisions. It is read-only and used by value.
type revisionHandler struct {
	apps *tenancy.Service
}

// createApp answers POST /admin/apps with 201 and the app, or with dry_run 200 and the app that would be created. A
// configuration that does not load is an error with the list of problems.
func (h appHandler) createApp(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b createBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	app, err := h.apps.CreateApp(ctx, o.Actor, tenancy.Draft{
		Name: b.Name, DisplayName: b.DisplayName, Config: b.Config, Secrets: b.Secrets, Grants: b.Grants, Plan: b.Plan, Limits: b.Limits.toChange(), Labels: b.Labels,
		Auth: tenancy.IssuerConfig(b.Auth),
	}, o.DryRun)
	// A dry run has created nothing that an id or an ETag could identify, so it answers 200.
	if o.DryRun {
		surface.SetLoggedApp(o.HTTP, app.Name)
		body := newAppBody(app)
		body.ID, body.ETag = "", ""
		return mutation.Result{Status: http.StatusOK, Body: body}, err
	}
	surface.SetLoggedApp(o.HTTP, app.Name)
	out := newAppResult(app)
	out.Status, out.CreatedID = http.StatusCreated, app.Name
	return out, err
}

// replaceApp answers PUT /admin/apps/{app}: members that are left out are cleared, except secrets, which no answer has and
// which are added to the stored ones.
func (h appHandler) replaceApp(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b settingsBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	if b.Config == nil {
		return mutation.Result{}, agentsvc.NewInvalidError("config", "is missing: PUT replaces the whole app, PATCH changes a part of it")
	}
	change := b.toChange()
	change.IfMatch = o.IfMatch
	app, err := h.apps.UpdateApp(ctx, o.Actor, o.AppName(), change, o.DryRun)
	return newAppResult(app), err
}

// deleteApp deletes an app with all of its rows; the response is sent when they are gone. The audit trail and the
// ledger remain. If the deletion takes longer than the request may last, it continues in the background and the
// request can be repeated.
func (h appHandler) deleteApp(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	moved, err := decode.ParseBool(o.HTTP.URL.Query(), "moved")
	if err != nil {
		return mutation.Result{}, err
	}
	remove := h.apps.DeleteApp
	if moved {
		remove = h.apps.Moves.DeleteApp
	}
	return mutation.Result{Status: http.StatusNoContent}, remove(ctx, o.Actor, o.AppName(), o.IfMatch...)
}

// suspendApp makes an app refuse every request until it is resumed.
func (h appHandler) suspendApp(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return h.setAppStatus(ctx, o, h.apps.SuspendApp)
}

// resumeApp ends a suspension.
func (h appHandler) resumeApp(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return h.setAppStatus(ctx, o, h.apps.ResumeApp)
}

// setAppStatus calls to with the reason of the optional body, which goes to the audit trail.
func (h appHandler) setAppStatus(ctx context.Context, o *mutation.Request, to func(ctx context.Context, actor audit.Actor, name, reason string, ifMatch ...string) (tenancy.App, error)) (mutation.Result, error) {
	var b reasonBody
	if err := o.DecodeBody(&b, true); err != nil {
		return mutation.Result{}, err
	}
	app, err := to(ctx, o.Actor, o.AppName(), b.Reason, o.IfMatch...)
	return newAppResult(app), err
}

// restoreRevision makes an earlier configuration current again, under a new revision number. It must load with the
// present secrets and grants; with dry_run only that is checked.
func (h revisionHandler) restoreRevision(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	n, err := mutation.ParseRevision(o.HTTP)
	if err != nil {
		return mutation.Result{}, err
	}
	app, err := h.apps.Revisions.Restore(ctx, o.Actor, o.AppName(), n, o.DryRun, tenancy.Precondition{IfMatch: o.IfMatch})
	return newAppResult(app), err
}

// newAppResult returns the response for an app. On an error of the service app is zero and the result is not used.
func newAppResult(app tenancy.App) mutation.Result {
	return mutation.Result{Status: http.StatusOK, Body: newAppBody(app), AppID: app.ID, Tag: app.Tag()}
}

// handleGetApp answers with an app and its configuration, in which secrets are masked, or for a client that accepts YAML
// with the text of the configuration. For the default app it adds the keys of its file that await a restart.
func (h appHandler) handleGetApp(w http.ResponseWriter, r *http.Request) error {
	app, err := h.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return mutation.WriteConfig(w, r, app.Tag(), app.Config.Text, func() error {
		out := newAppBody(app)
		// Only the default app has a file; the answer is that of this process.
		if app.ID == tenancy.DefaultID && h.restartKeys != nil {
			out.AwaitsRestart = h.restartKeys()
		}
		return response.WriteJSON(w, http.StatusOK, out)
	})
}

// handleListApps answers with a page of apps without their configurations.
func (h appHandler) handleListApps(w http.ResponseWriter, r *http.Request) error {
	size, err := decode.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	page, err := h.apps.ListApps(r.Context(), tenancy.AppQuery{Status: tenancy.Status(q.Get("status")), Size: size, Token: q.Get("page_token")})
	if err != nil {
		return err
	}
	out := appList{Apps: make([]appBody, len(page.Apps)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, app := range page.Apps {
		// A page of configurations would be large.
		app.Config = tenancy.MaskedConfig{}
		out.Apps[i] = newAppBody(app)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleGetRevision answers with a stored revision and its configuration, in which secrets are masked, or for a client
// that accepts YAML with the text of the configuration.
func (h revisionHandler) handleGetRevision(w http.ResponseWriter, r *http.Request) error {
	id, err := h.apps.RequireAppID(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	n, err := mutation.ParseRevision(r)
	if err != nil {
		return err
	}
	revision, app, err := h.apps.Revisions.Load(r.Context(), id, n)
	if err != nil {
		return err
	}
	return mutation.WriteRevision(w, r, revision, app)
}

// handleListRevisions answers with the stored revisions of an app, the newest first.
func (h revisionHandler) handleListRevisions(w http.ResponseWriter, r *http.Request) error {
	found, err := h.apps.Revisions.List(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return mutation.WriteRevisions(w, found)
}
