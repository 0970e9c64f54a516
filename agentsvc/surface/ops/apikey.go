package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy"
)

// defaultOverlap is how long the previous key stays valid after a rotation that does not set overlap.
const defaultOverlap = 24 * time.Hour

// createKey creates an API key. Its text is only in this response: the database holds a hash, and a repetition
// under the same Idempotency-Key is answered without the text.
func (a adminAPI) createKey(ctx context.Context, o *mutation) (mutationResult, error) {
	var b keyBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	spec := authz.APIKeySpec{Name: b.Name, Roles: b.Roles, Scope: b.Scope}
	if b.ExpiresAt != "" {
		var err error
		if spec.Expires, err = parseTime("expires_at", b.ExpiresAt, time.Time{}); err != nil {
			return mutationResult{}, err
		}
	}
	app, err := a.apps.LoadApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	text, key, app, err := a.keys.CreateKey(ctx, o.actor, &app, spec)
	return newKeyResult(http.StatusCreated, text, key, app), err
}

// rotateKey replaces the text of a key; the previous text stays valid for the overlap. ID, roles and scope stay.
func (a adminAPI) rotateKey(ctx context.Context, o *mutation) (mutationResult, error) {
	b := rotateBody{}
	if err := o.decodeBody(&b, true); err != nil {
		return mutationResult{}, err
	}
	// An overlap of 0s makes the previous text invalid at once; "" means the default.
	overlap := defaultOverlap
	if b.Overlap != "" {
		var err error
		if overlap, err = time.ParseDuration(b.Overlap); err != nil {
			return mutationResult{}, agentsvc.NewInvalidError("overlap", "must be a duration such as 24h, or 0s")
		}
	}
	text, key, app, err := a.keys.RotateKey(ctx, o.actor, o.appName(), surface.PathParam(o.r, "key"), overlap)
	return newKeyResult(http.StatusOK, text, key, app), err
}

// newKeyResult returns a response with the key's text and, for repetitions, the same without it.
func newKeyResult(status int, text string, k tenancy.APIKey, app tenancy.App) mutationResult {
	replayed := newKeyRecord(app.Name, k)
	shown := replayed
	shown.Key = text
	return mutationResult{status: status, body: shown, replayBody: replayed, appID: app.ID}
}

// deleteKey deletes a key, which is refused from then on.
func (a adminAPI) deleteKey(ctx context.Context, o *mutation) (mutationResult, error) {
	return mutationResult{status: http.StatusNoContent}, a.apps.DeleteAPIKey(ctx, o.actor, o.appName(), surface.PathParam(o.r, "key"))
}

// handleListAPIKeys answers with the keys of an app, the newest first, without their texts.
func (a adminAPI) handleListAPIKeys(w http.ResponseWriter, r *http.Request) error {
	app := surface.PathParam(r, "app")
	found, err := a.apps.ListAPIKeys(r.Context(), app)
	if err != nil {
		return err
	}
	out := keyList{Keys: make([]keyRecord, len(found))}
	for i, k := range found {
		out.Keys[i] = newKeyRecord(app, k)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// newKeyRecord returns a key as responses show it, without its text. Its tasks belong to the subject key:<id>, so
// they survive rotations.
func newKeyRecord(app string, k tenancy.APIKey) keyRecord {
	r := keyRecord{
		ID: k.ID, Name: k.Name, Prefix: authz.KeyPrefix(app, k.ID), Sub: authz.APIKeySubjectPrefix + k.ID, Roles: k.Roles, Scope: k.Scope,
		CreatedAt: formatTime(k.CreatedAt), RotatedAt: formatTime(k.RotatedAt), ExpiresAt: formatTime(k.ExpiresAt), LastUsedAt: formatTime(k.LastUsedAt),
	}
	// FormerUntil stays in the row after it has passed.
	if time.Now().Before(k.FormerUntil) {
		r.FormerUntil = formatTime(k.FormerUntil)
	}
	return r
}
