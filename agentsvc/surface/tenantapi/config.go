package tenantapi

import (
	"context"
	"net/http"
	"runtime"

	"stoa/agentsvc"
	"stoa/agentsvc/processor"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// configHandler serves an app's own configuration and its secrets. It is read-only and used by value. Grants, plan
// and limits belong to the operator: no request here can change them.
type configHandler struct {
	apps *tenancy.Service
	// turns bounds the processors that tenants' configurations take: parsing and checking a large one takes a second, and
	// nothing else bounds how often a tenant sends one. It is not [processor.Shared], because a holder also waits for the
	// database.
	turns *processor.Semaphore
}

// newConfigHandler returns the handler of the configurations of apps.
func newConfigHandler(apps *tenancy.Service) configHandler {
	return configHandler{apps, processor.NewSemaphore(runtime.GOMAXPROCS(0))}
}

// takeTurn calls do when it is the turn of the app.
func (h configHandler) takeTurn(ctx context.Context, app db.ID, do func() (tenancy.App, error)) (tenancy.App, error) {
	if err := h.turns.Acquire(ctx, string(app)); err != nil {
		return tenancy.App{}, err
	}
	defer h.turns.Release()
	return do()
}

// errDefaultConfig refuses the default app, whose configuration is the operator's file of the whole process.
var errDefaultConfig = agentsvc.NewError(agentsvc.CodePrecondition, "the configuration of the default app is the file of its server: it is neither read nor changed here")

// handleGetConfig answers with the configuration as it was sent, with its secrets masked: the text for a client that
// accepts YAML, else JSON in the order of the text.
func (h configHandler) handleGetConfig(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if v.App.ID == tenancy.DefaultID {
		return errDefaultConfig
	}
	app, err := h.takeTurn(r.Context(), v.App.ID, func() (tenancy.App, error) { return h.apps.Revisions.LoadCurrent(r.Context(), v.App.ID) })
	if err != nil {
		return err
	}
	return mutation.WriteConfig(w, r, app.ConfigTag(), app.Config.Text, func() error {
		return response.WriteEncoded(w, app.Config.JSON)
	})
}

// handlePutConfig saves the configuration in the body, YAML or JSON, as a new revision, or with dry_run only checks it.
// With If-Match it is only saved over that revision.
func (h configHandler) handlePutConfig(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if v.App.ID == tenancy.DefaultID {
		return errDefaultConfig
	}
	dryRun, precondition, err := parseChange(r)
	if err != nil {
		return err
	}
	if err := mutation.CheckConfigType(r); err != nil {
		return err
	}
	text, err := surface.ReadBody(r)
	if err != nil {
		return err
	}
	change := tenancy.AppChange{Config: append([]byte{}, text...), Precondition: precondition}
	app, err := h.takeTurn(r.Context(), v.App.ID, func() (tenancy.App, error) {
		return h.apps.UpdateApp(r.Context(), v.Actor(), v.App.Name, change, dryRun)
	})
	if err != nil {
		return err
	}
	return writeSavedConfig(w, app, dryRun)
}

// handleRestoreConfig saves the configuration of an earlier revision as a new one, or with dry_run only checks that it
// loads. With If-Match it is only saved over that revision.
func (h configHandler) handleRestoreConfig(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if v.App.ID == tenancy.DefaultID {
		return errDefaultConfig
	}
	n, err := mutation.ParseRevision(r)
	if err != nil {
		return err
	}
	dryRun, precondition, err := parseChange(r)
	if err != nil {
		return err
	}
	app, err := h.takeTurn(r.Context(), v.App.ID, func() (tenancy.App, error) {
		return h.apps.Revisions.Restore(r.Context(), v.Actor(), v.App.Name, n, dryRun, precondition)
	})
	if err != nil {
		return err
	}
	return writeSavedConfig(w, app, dryRun)
}

// parseChange returns dry_run and the state in which the app of the credential may be changed.
func parseChange(r *http.Request) (dryRun bool, p tenancy.Precondition, err error) {
	p.ID = surface.RequestOf(r).App.ID
	if dryRun, err = mutation.ParseDryRun(r); err == nil {
		p.IfMatch, err = mutation.ParseIfMatch(r)
	}
	return dryRun, p, err
}

// writeSavedConfig answers with the revision that app's configuration has, or would have after dry_run.
func writeSavedConfig(w http.ResponseWriter, app tenancy.App, dryRun bool) error {
	out := savedConfig{Revision: app.Revision, Warnings: []configWarning{}}
	for _, warning := range app.Config.Warnings {
		out.Warnings = append(out.Warnings, configWarning(warning))
	}
	// The revision of a dry run does not exist, so that nothing may be made conditional on it.
	result := mutation.Result{Status: http.StatusOK, Body: out}
	if !dryRun {
		result.Tag = app.ConfigTag()
	}
	return result.WriteResult(w)
}

// handleListConfigRevisions answers with the stored revisions of the configuration, the newest first.
func (h configHandler) handleListConfigRevisions(w http.ResponseWriter, r *http.Request) error {
	id := surface.RequestOf(r).App.ID
	if id == tenancy.DefaultID {
		return errDefaultConfig
	}
	found, err := h.apps.Revisions.ListByID(r.Context(), id)
	if err != nil {
		return err
	}
	return mutation.WriteRevisions(w, found)
}

// handleGetConfigRevision answers with a stored revision and its configuration, see [mutation.WriteRevision].
func (h configHandler) handleGetConfigRevision(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if v.App.ID == tenancy.DefaultID {
		return errDefaultConfig
	}
	n, err := mutation.ParseRevision(r)
	if err != nil {
		return err
	}
	var revision tenancy.Revision
	app, err := h.takeTurn(r.Context(), v.App.ID, func() (app tenancy.App, err error) {
		revision, app, err = h.apps.Revisions.Load(r.Context(), v.App.ID, n)
		return app, err
	})
	if err != nil {
		return err
	}
	return mutation.WriteRevision(w, r, revision, app)
}
