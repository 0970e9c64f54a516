package ops

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// setSecret stores a secret of an app. The value is a pointer in the body to distinguish an empty secret from a missing
// one. A value with which the current configuration no longer loads is refused.
func (a adminAPI) setSecret(ctx context.Context, o *mutation) (mutationResult, error) {
	var b secretBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	if b.Value == nil {
		return mutationResult{}, agentsvc.NewInvalidError("value", "is missing")
	}
	return mutationResult{status: http.StatusNoContent}, a.apps.StoreSecret(ctx, o.actor, o.appName(), surface.PathParam(o.r, "name"), *b.Value)
}

// deleteSecret deletes a secret; one that the current configuration needs is refused.
func (a adminAPI) deleteSecret(ctx context.Context, o *mutation) (mutationResult, error) {
	return mutationResult{status: http.StatusNoContent}, a.apps.DeleteSecret(ctx, o.actor, o.appName(), surface.PathParam(o.r, "name"))
}

// handleListSecrets answers with names and dates; values are never returned.
func (a adminAPI) handleListSecrets(w http.ResponseWriter, r *http.Request) error {
	found, err := a.apps.ListSecrets(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	out := make([]secretInfo, len(found))
	for i, s := range found {
		out[i] = secretInfo{s.Name, formatTime(s.CreatedAt), formatTime(s.UpdatedAt)}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"secrets": out})
}
