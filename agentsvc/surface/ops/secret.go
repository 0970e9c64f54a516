package ops

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

func (a admin) putSecret(ctx context.Context, o *order) (answer, error) {
	var b secretBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	if b.Value == nil {
		return answer{}, agentsvc.Invalid("value", "is missing")
	}
	return answer{status: http.StatusNoContent}, a.apps.PutSecret(ctx, o.actor, o.app(), surface.Param(o.r, "name"), *b.Value)
}

func (a admin) deleteSecret(ctx context.Context, o *order) (answer, error) {
	return answer{status: http.StatusNoContent}, a.apps.DeleteSecret(ctx, o.actor, o.app(), surface.Param(o.r, "name"))
}

func (a admin) secrets(w http.ResponseWriter, r *http.Request) error {
	found, err := a.apps.Secrets(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	out := make([]secretInfo, len(found))
	for i, s := range found {
		out[i] = secretInfo{s.Name, stamp(s.CreatedAt), stamp(s.UpdatedAt)}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"secrets": out})
}
