package admin

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/duration"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
)

// keyHandler serves apps' API keys. It is read-only and used by value.
type keyHandler struct {
	apps *tenancy.Service
	keys *authz.APIKeys
}

// defaultOverlap is how long the previous key stays valid after a rotation that does not set overlap.
const defaultOverlap = 24 * time.Hour

// createKey creates an API key. Its text is only in this response: the database holds a hash, and a repetition
// under the same Idempotency-Key is answered without the text.
func (h keyHandler) createKey(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b keyBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	spec := authz.APIKeySpec{Name: b.Name, Roles: b.Roles, Scope: b.Scope}
	if b.ExpiresAt != "" {
		var err error
		if spec.Expires, err = decode.ParseTime("expires_at", b.ExpiresAt, time.Time{}); err != nil {
			return mutation.Result{}, err
		}
	}
	app, err := h.apps.LoadApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	text, key, app, err := h.keys.CreateKey(ctx, o.Actor, &app, spec)
	out := newKeyResult(http.StatusCreated, text, key, app)
	out.CreatedID = key.ID
	return out, err
}

// rotateKey replaces the text of a key; the previous text stays valid for the overlap. ID, roles and scope stay.
func (h keyHandler) rotateKey(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	b := rotateBody{}
	if err := o.DecodeBody(&b, true); err != nil {
		return mutation.Result{}, err
	}
	// An overlap of 0s makes the previous text invalid at once; "" means the default.
	overlap := defaultOverlap
	if b.Overlap != "" {
		var err error
		if overlap, err = duration.Parse(b.Overlap); err != nil {
			return mutation.Result{}, agentsvc.NewInvalidError("overlap", "must be a duration such as 24h or 2d, or 0s")
		}
	}
	text, key, app, err := h.keys.RotateKey(ctx, o.Actor, o.AppName(), surface.PathParam(o.HTTP, "key"), overlap)
	return newKeyResult(http.StatusOK, text, key, app), err
}

// newKeyResult returns a response with the key's text and, for repetitions, the same without it.
func newKeyResult(status int, text string, k apikey.Key, app tenancy.App) mutation.Result {
	replayed := newKeyRecord(app.Name, k)
	shown := replayed
	shown.Key = text
	return mutation.Result{Status: status, Body: shown, ReplayBody: replayed, AppID: app.ID}
}

// deleteKey deletes a key, which is refused from then on.
func (h keyHandler) deleteKey(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return mutation.Result{Status: http.StatusNoContent}, h.keys.Store.Delete(ctx, o.Actor, o.AppName(), surface.PathParam(o.HTTP, "key"))
}

// handleListAPIKeys answers with the keys of an app, the newest first, without their texts.
func (h keyHandler) handleListAPIKeys(w http.ResponseWriter, r *http.Request) error {
	app := surface.PathParam(r, "app")
	found, err := h.keys.Store.List(r.Context(), app)
	if err != nil {
		return err
	}
	out := keyList{Keys: make([]keyRecord, len(found))}
	for i, k := range found {
		out.Keys[i] = newKeyRecord(app, k)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleGetAPIKey answers with a key of an app, without its text.
func (h keyHandler) handleGetAPIKey(w http.ResponseWriter, r *http.Request) error {
	app := surface.PathParam(r, "app")
	key, err := h.keys.Store.Load(r.Context(), app, surface.PathParam(r, "key"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newKeyRecord(app, key))
}

// newKeyRecord returns a key as responses show it, without its text. Its tasks belong to the subject key:<id>, so
// they survive rotations.
func newKeyRecord(app string, k apikey.Key) keyRecord {
	r := keyRecord{
		ID: k.ID, Name: k.Name, Prefix: apikey.Prefix(app, k.ID), Sub: tenancy.APIKeySubjectPrefix + k.ID, Roles: append([]string{}, k.Roles...), Scope: k.Scope,
		CreatedAt: encode.FormatOptionalTime(k.CreatedAt), RotatedAt: encode.FormatOptionalTime(k.RotatedAt), ExpiresAt: encode.FormatOptionalTime(k.ExpiresAt), LastUsedAt: encode.FormatOptionalTime(k.LastUsedAt),
	}
	// FormerUntil stays in the row after it has passed.
	if time.Now().Before(k.FormerUntil) {
		r.FormerUntil = encode.FormatOptionalTime(k.FormerUntil)
	}
	return r
}
