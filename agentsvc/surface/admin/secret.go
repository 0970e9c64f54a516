package admin

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
)

// secretHandler serves apps' secrets. It is read-only and used by value.
type secretHandler struct {
	apps *tenancy.Service
}

// setSecret stores a secret of an app. The value is a pointer in the body to distinguish an empty secret from a missing
// one. A value with which the current configuration no longer loads is refused.
func (h secretHandler) setSecret(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b secretBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	if b.Value == nil {
		return mutation.Result{}, agentsvc.NewInvalidError("value", "is missing")
	}
	return mutation.Result{Status: http.StatusNoContent}, h.apps.Secrets.Store(ctx, o.Actor, o.AppName(), surface.PathParam(o.HTTP, "name"), *b.Value, tenancy.Precondition{IfMatch: o.IfMatch})
}

// deleteSecret deletes a secret; one that the current configuration needs is refused.
func (h secretHandler) deleteSecret(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return mutation.Result{Status: http.StatusNoContent}, h.apps.Secrets.Delete(ctx, o.Actor, o.AppName(), surface.PathParam(o.HTTP, "name"), tenancy.Precondition{IfMatch: o.IfMatch})
}

// handleListSecrets answers with names and dates; values are never returned.
func (h secretHandler) handleListSecrets(w http.ResponseWriter, r *http.Request) error {
	found, err := h.apps.Secrets.List(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	out := make([]secretInfo, len(found))
	for i, s := range found {
		out[i] = secretInfo{s.Name, encode.FormatOptionalTime(s.CreatedAt), encode.FormatOptionalTime(s.UpdatedAt)}
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"secrets": out})
}
