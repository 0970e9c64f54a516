package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
	"stoa/tenancy"
)

// defaultOverlap is how long the key before a rotation stays good where nobody says.
const defaultOverlap = 24 * time.Hour

// createKey makes an API key. This answer is the only one that ever shows it.
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

// rotateKey gives a key another text; the former one stays good for a while.
func (a adminAPI) rotateKey(ctx context.Context, o *mutation) (mutationResult, error) {
	b := rotateBody{}
	if err := o.decodeBody(&b, true); err != nil {
		return mutationResult{}, err
	}
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

func newKeyResult(status int, text string, k tenancy.APIKey, app tenancy.App) mutationResult {
	replayed := newKeyRecord(app.Name, k)
	shown := replayed
	shown.Key = text
	return mutationResult{status: status, body: shown, replayBody: replayed, appID: app.ID}
}

func (a adminAPI) deleteKey(ctx context.Context, o *mutation) (mutationResult, error) {
	return mutationResult{status: http.StatusNoContent}, a.apps.DeleteAPIKey(ctx, o.actor, o.appName(), surface.PathParam(o.r, "key"))
}

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
	return surface.WriteJSON(w, http.StatusOK, out)
}

func newKeyRecord(app string, k tenancy.APIKey) keyRecord {
	r := keyRecord{
		ID: k.ID, Name: k.Name, Prefix: authz.KeyPrefix(app, k.ID), Sub: authz.APIKeySubjectPrefix + k.ID, Roles: k.Roles, Scope: k.Scope,
		CreatedAt: formatTime(k.CreatedAt), RotatedAt: formatTime(k.RotatedAt), ExpiresAt: formatTime(k.ExpiresAt), LastUsedAt: formatTime(k.LastUsedAt),
	}
	if time.Now().Before(k.FormerUntil) {
		r.FormerUntil = formatTime(k.FormerUntil)
	}
	return r
}
