package ext

import (
	"context"
	"net/http"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

const studioPath = "/api/config"

// Studio is the studio mode of the process.
type Studio struct {
	// File is the operator's file; nil = the studio is off, and its routes answer as if they did not exist.
	File ConfigFile
	// AllowedRoles are the roles of which a caller needs one while authentication is enabled.
	AllowedRoles []string
}

// ConfigFile is the operator's configuration file.
type ConfigFile interface {
	// ReadConfig returns the text of the file as it stands there and a tag that identifies it.
	ReadConfig() (text []byte, tag string, err error)
	// SaveConfig replaces the text and applies it, if the present text has one of the tags (nil = any). It changes nothing
	// if it returns an error: a [document.Error] with positions for a text that is not valid, or an error with
	// [agentsvc.CodePrecondition] if the file has changed. It returns the new tag, and a note for the person who saved.
	SaveConfig(ctx context.Context, actor audit.Actor, text []byte, ifMatch []string) (tag, note string, err error)
	// CheckConfig returns the error with which SaveConfig would refuse a text, and changes nothing.
	CheckConfig(text []byte, ifMatch []string) error
}

// studioHandler serves the studio.
type studioHandler struct {
	Studio
	auth config.Auth
}

// authorize returns nil if the caller may use the studio, which belongs to the default app. The studio of another app,
// and one that is off, do not exist. A scope of the caller's token must include what it does.
func (h studioHandler) authorize(v *surface.Request, scope authz.Scope) error {
	switch {
	case h.File == nil || v.App.ID != tenancy.DefaultID:
		return apierror.ErrNoPath
	case !h.auth.Enabled:
		return nil
	case !slices.ContainsFunc(v.Principal.Roles, func(role string) bool { return slices.Contains(h.AllowedRoles, role) }):
		return agentsvc.NewError(agentsvc.CodeDenied, "the studio needs one of the roles in server.studio.allowed_roles")
	}
	return v.Principal.RequireScope(scope)
}

// handleGetConfig answers with the text of the operator's file.
func (h studioHandler) handleGetConfig(w http.ResponseWriter, r *http.Request) error {
	if err := h.authorize(surface.RequestOf(r), authz.ConfigRead); err != nil {
		return err
	}
	text, tag, err := h.File.ReadConfig()
	if err != nil || response.WriteNotModified(w, r, tag) {
		return err
	}
	return response.WriteYAML(w, text)
}

// handleSaveConfig saves the body as the operator's file and applies it, or with dry_run only checks it.
func (h studioHandler) handleSaveConfig(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if err := h.authorize(v, authz.ConfigWrite); err != nil {
		return err
	}
	dryRun, err := mutation.ParseDryRun(r)
	if err != nil {
		return err
	}
	ifMatch, err := mutation.ParseIfMatch(r)
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
	if dryRun {
		if err := h.File.CheckConfig(text, ifMatch); err != nil {
			return err
		}
		return response.WriteJSON(w, http.StatusOK, savedConfig{"valid", "The configuration is valid. Nothing was changed."})
	}
	// The body's memory is used again after the request; the file's text is kept.
	tag, note, err := h.File.SaveConfig(r.Context(), v.Actor(), slices.Clone(text), ifMatch)
	if err != nil {
		return err
	}
	return mutation.Result{Status: http.StatusOK, Body: savedConfig{"saved", note}, Tag: tag}.WriteResult(w)
}
