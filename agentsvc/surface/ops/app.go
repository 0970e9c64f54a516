package ops

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
)

// createApp answers POST /admin/apps with 201 and the app, or with dry_run 200 and the app that would be created. A
// configuration that does not load is an error with the list of problems.
func (a adminAPI) createApp(ctx context.Context, o *mutation) (mutationResult, error) {
	var b createBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	app, err := a.apps.CreateApp(ctx, o.actor, tenancy.Draft{
		Name: b.Name, DisplayName: b.DisplayName, Config: b.Config, Secrets: b.Secrets, Grants: b.Grants, Plan: b.Plan, Limits: b.Limits, Labels: b.Labels,
		Auth: b.Auth,
	}, o.dryRun)
	out := newAppResult(app)
	// A dry run has created nothing, so it answers 200.
	if !o.dryRun {
		out.status = http.StatusCreated
	}
	return out, err
}

// updateApp answers PUT /admin/apps/{app}. Members that are left out stay unchanged; with If-Match the change is
// only made if that revision is still current (412 otherwise).
func (a adminAPI) updateApp(ctx context.Context, o *mutation) (mutationResult, error) {
	var b updateBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	revision, err := parseIfMatch(o.r)
	if err != nil {
		return mutationResult{}, err
	}
	app, err := a.apps.UpdateApp(ctx, o.actor, o.appName(), tenancy.AppChange{
		DisplayName: b.DisplayName, Config: b.Config, Secrets: b.Secrets, Grants: b.Grants, Plan: b.Plan, Limits: b.Limits, Labels: b.Labels,
		Auth: b.Auth.toChange(), IfRevision: revision,
	}, o.dryRun)
	return newAppResult(app), err
}

// deleteApp deletes an app with all of its rows; the response is sent when they are gone. The audit trail and the
// ledger remain. If the deletion takes longer than the request may last, it continues in the background and the
// request can be repeated.
func (a adminAPI) deleteApp(ctx context.Context, o *mutation) (mutationResult, error) {
	return mutationResult{status: http.StatusNoContent}, a.apps.DeleteApp(ctx, o.actor, o.appName())
}

// suspendApp makes an app refuse every request until it is resumed.
func (a adminAPI) suspendApp(ctx context.Context, o *mutation) (mutationResult, error) {
	return a.setAppStatus(ctx, o, a.apps.SuspendApp)
}

// resumeApp ends a suspension.
func (a adminAPI) resumeApp(ctx context.Context, o *mutation) (mutationResult, error) {
	return a.setAppStatus(ctx, o, a.apps.ResumeApp)
}

// setAppStatus calls to with the reason of the optional body, which goes to the audit trail.
func (a adminAPI) setAppStatus(ctx context.Context, o *mutation, to func(ctx context.Context, actor, name, reason string) (tenancy.App, error)) (mutationResult, error) {
	var b reasonBody
	if err := o.decodeBody(&b, true); err != nil {
		return mutationResult{}, err
	}
	app, err := to(ctx, o.actor, o.appName(), b.Reason)
	return newAppResult(app), err
}

// restoreRevision makes an earlier configuration current again, under a new revision number. It must load with the
// present secrets and grants.
func (a adminAPI) restoreRevision(ctx context.Context, o *mutation) (mutationResult, error) {
	n, err := strconv.ParseInt(surface.PathParam(o.r, "revision"), 10, 64)
	if err != nil {
		return mutationResult{}, agentsvc.NewInvalidError("revision", "must be the number of a revision")
	}
	app, err := a.apps.RestoreRevision(ctx, o.actor, o.appName(), n)
	return newAppResult(app), err
}

// newAppResult returns the response for an app. On an error of the service app is zero and the result is not used.
func newAppResult(app tenancy.App) mutationResult {
	return mutationResult{status: http.StatusOK, body: newAppBody(app), appID: app.ID, revision: app.Revision}
}

// handleGetApp answers with an app and its configuration, in which secrets are masked. For the default app it adds
// the keys of its file that await a restart.
func (a adminAPI) handleGetApp(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	out := newAppBody(app)
	// Only the default app has a file; the answer is that of this process.
	if app.ID == tenancy.DefaultID && a.restartKeys != nil {
		out.AwaitsRestart = a.restartKeys()
	}
	return mutationResult{status: http.StatusOK, body: out, revision: app.Revision}.writeResult(w)
}

// handleListApps answers with a page of apps without their configurations.
func (a adminAPI) handleListApps(w http.ResponseWriter, r *http.Request) error {
	size, err := decode.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	page, err := a.apps.ListApps(r.Context(), tenancy.AppQuery{Status: tenancy.Status(q.Get("status")), Size: size, Token: q.Get("page_token")})
	if err != nil {
		return err
	}
	out := appList{Apps: make([]appBody, len(page.Apps)), NextPageToken: page.Next, TotalSize: page.Total}
	for i, app := range page.Apps {
		// A page of configurations would be large.
		app.Config = nil
		out.Apps[i] = newAppBody(app)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleListRevisions answers with the stored revisions of an app, the newest first.
func (a adminAPI) handleListRevisions(w http.ResponseWriter, r *http.Request) error {
	found, err := a.apps.ListRevisions(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	out := make([]revisionBody, len(found))
	for i, v := range found {
		out[i] = revisionBody{v.Number, v.Actor, formatTime(v.CreatedAt), v.Current}
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"revisions": out})
}

// parseIfMatch returns the revision that If-Match requires, 0 for any. Weak and multiple tags are refused, since
// only the current revision could match.
func parseIfMatch(r *http.Request) (int64, error) {
	tag := strings.TrimSpace(r.Header.Get("If-Match"))
	if tag == "" || tag == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, agentsvc.NewInvalidError("If-Match", `must be a revision, such as "3"`)
	}
	return n, nil
}
