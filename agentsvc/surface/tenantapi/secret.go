package tenantapi

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
)

// handleListSecrets answers with the names of the app's secrets and their times; values are never returned.
func (h configHandler) handleListSecrets(w http.ResponseWriter, r *http.Request) error {
	id := surface.RequestOf(r).App.ID
	if id == tenancy.DefaultID {
		return errDefaultConfig
	}
	found, err := h.apps.Secrets.ListByID(r.Context(), id)
	if err != nil {
		return err
	}
	out := secretList{Secrets: make([]secretInfo, len(found))}
	for i, s := range found {
		out.Secrets[i] = secretInfo{s.Name, encode.FormatOptionalTime(s.CreatedAt), encode.FormatOptionalTime(s.UpdatedAt)}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handlePutSecret stores a secret of the app. A value with which the current configuration no longer loads is refused.
func (h configHandler) handlePutSecret(w http.ResponseWriter, r *http.Request) error {
	raw, err := surface.ReadBody(r)
	if err != nil {
		return err
	}
	var b secretBody
	if err := decode.JSON(raw, &b, true); err != nil {
		return err
	}
	if b.Value == nil {
		return agentsvc.NewInvalidError("value", "is missing")
	}
	return h.changeSecret(w, r, func(v *surface.Request, name string, p tenancy.Precondition) error {
		return h.apps.Secrets.Store(r.Context(), v.Actor(), v.App.Name, name, *b.Value, p)
	})
}

// handleDeleteSecret deletes a secret of the app. One that the current configuration needs is refused.
func (h configHandler) handleDeleteSecret(w http.ResponseWriter, r *http.Request) error {
	return h.changeSecret(w, r, func(v *surface.Request, name string, p tenancy.Precondition) error {
		return h.apps.Secrets.Delete(r.Context(), v.Actor(), v.App.Name, name, p)
	})
}

// changeSecret calls change for the secret in the path when it is the turn of the app: each change checks the
// configuration.
func (h configHandler) changeSecret(w http.ResponseWriter, r *http.Request, change func(v *surface.Request, name string, p tenancy.Precondition) error) error {
	v := surface.RequestOf(r)
	if v.App.ID == tenancy.DefaultID {
		return errDefaultConfig
	}
	tags, err := mutation.ParseIfMatch(r)
	if err != nil {
		return err
	}
	_, err = h.takeTurn(r.Context(), v.App.ID, func() (tenancy.App, error) {
		return tenancy.App{}, change(v, surface.PathParam(r, "name"), tenancy.Precondition{ID: v.App.ID, IfMatch: tags})
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
