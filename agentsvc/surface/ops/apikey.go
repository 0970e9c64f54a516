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
func (a admin) createKey(ctx context.Context, o *order) (answer, error) {
	var b keyBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	spec := authz.KeySpec{Name: b.Name, Roles: b.Roles, Scope: b.Scope}
	if b.ExpiresAt != "" {
		var err error
		if spec.Expires, err = parseTime("expires_at", b.ExpiresAt, time.Time{}); err != nil {
			return answer{}, err
		}
	}
	app, err := a.apps.Get(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	text, key, app, err := a.keys.Create(ctx, o.actor, &app, spec)
	return shownOnce(http.StatusCreated, text, key, app), err
}

// rotateKey gives a key another text; the former one stays good for a while.
func (a admin) rotateKey(ctx context.Context, o *order) (answer, error) {
	b := rotateBody{}
	if err := o.decode(&b, true); err != nil {
		return answer{}, err
	}
	overlap := defaultOverlap
	if b.Overlap != "" {
		var err error
		if overlap, err = time.ParseDuration(b.Overlap); err != nil {
			return answer{}, agentsvc.Invalid("overlap", "must be a duration such as 24h, or 0s")
		}
	}
	text, key, app, err := a.keys.Rotate(ctx, o.actor, o.app(), surface.Param(o.r, "key"), overlap)
	return shownOnce(http.StatusOK, text, key, app), err
}

func shownOnce(status int, text string, k tenancy.APIKey, app tenancy.App) answer {
	again := newKeyRecord(app.Name, k)
	shown := again
	shown.Key = text
	return answer{status: status, body: shown, again: again, app: app.ID}
}

func (a admin) deleteKey(ctx context.Context, o *order) (answer, error) {
	return answer{status: http.StatusNoContent}, a.apps.DeleteAPIKey(ctx, o.actor, o.app(), surface.Param(o.r, "key"))
}

func (a admin) apiKeys(w http.ResponseWriter, r *http.Request) error {
	app := surface.Param(r, "app")
	found, err := a.apps.APIKeys(r.Context(), app)
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
		ID: k.ID, Name: k.Name, Prefix: authz.KeyPrefix(app, k.ID), Sub: authz.SubjectOfKey + k.ID, Roles: k.Roles, Scope: k.Scope,
		CreatedAt: stamp(k.CreatedAt), RotatedAt: stamp(k.RotatedAt), ExpiresAt: stamp(k.ExpiresAt), LastUsedAt: stamp(k.LastUsedAt),
	}
	if time.Now().Before(k.FormerUntil) {
		r.FormerUntil = stamp(k.FormerUntil)
	}
	return r
}
