package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// MaxAPIKeys bounds the API keys of one app.
const MaxAPIKeys = 1000

// apiKeySubject is the subject of the row in app_mark that is written with each change of the default app's API keys.
// It makes the generation of the default app grow ([queryDefaultGeneration]), which has no row of its own. No token has
// this subject.
const apiKeySubject = "key:"

// APIKey is an API key as it is stored. The key itself is not stored; it is returned only once, by package authz.
type APIKey struct {
	// ID is public and unique in the whole installation.
	ID   string
	Name string
	// Hash is the SHA-256 of the key.
	Hash []byte
	// Former is the hash of the key before the last rotation; it is accepted until FormerUntil.
	Former      []byte
	FormerUntil time.Time
	// Roles and Scope limit what the key may do, as the claims of a token do.
	Roles     []string
	Scope     string
	CreatedAt time.Time
	// RotatedAt is zero if the key was never rotated, ExpiresAt if it does not expire, LastUsedAt if it was never used.
	RotatedAt time.Time
	ExpiresAt time.Time
	// LastUsedAt is accurate to about a minute; see [Service.RecordAPIKeyUse].
	LastUsedAt time.Time
}

// apiKeyColumns are the columns that [APIKey.scanRow] reads, in its order, of the table api_key under the alias k.
const apiKeyColumns = `k.id, k.name, k.hash, k.former, k.former_until, k.roles, k.scope, k.created_at, k.rotated_at, k.expires_at, k.last_used_at`

// scanRow reads a row of apiKeyColumns; more are the destinations of further columns.
func (k *APIKey) scanRow(row db.Row, more ...any) error {
	var until, created, rotated, expires, used int64
	var roles string
	dest := append([]any{&k.ID, &k.Name, &k.Hash, &k.Former, &until, &roles, &k.Scope, &created, &rotated, &expires, &used}, more...)
	if err := row.Scan(dest...); err != nil {
		return err
	}
	k.FormerUntil, k.CreatedAt, k.RotatedAt, k.ExpiresAt, k.LastUsedAt = optionalTime(until), optionalTime(created), optionalTime(rotated), optionalTime(expires), optionalTime(used)
	if err := json.Unmarshal([]byte(roles), &k.Roles); err != nil {
		return fmt.Errorf("roles of API key %s: %w", k.ID, err)
	}
	return nil
}

// optionalTime converts the microseconds of a column in which 0 means no time.
func optionalTime(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return timeFromMicros(n)
}

// optionalMicros is the inverse of optionalTime.
func optionalMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// CreateAPIKey stores k as a key of the named app and returns it as stored, with the app. The caller sets ID, Name,
// Hash, Roles, Scope and ExpiresAt. The number of keys is checked by the inserting statement itself; beyond MaxAPIKeys
// the error is [ErrPrecondition].
func (s *Service) CreateAPIKey(ctx context.Context, actor, app string, k APIKey) (APIKey, App, error) {
	roles, err := json.Marshal(k.Roles)
	if err != nil {
		return APIKey{}, App{}, err
	}
	detail := map[string]any{"id": k.ID, "name": k.Name, "roles": k.Roles, "scope": k.Scope}
	if !k.ExpiresAt.IsZero() {
		detail["expires_at"] = k.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return s.changeAPIKey(ctx, actor, "app.keys.create", app, k.ID, detail, func(ctx context.Context, tx *db.Tx, id db.ID) error {
		// Count and insertion are one statement, and the lock on the app's row, which changeApp takes, serialises it
		// with other creations. The default app has no row to lock, so concurrent creations may exceed its bound by a
		// few.
		n, err := tx.Exec(ctx, `INSERT INTO api_key (tenant, id, name, hash, former, former_until, roles, scope, actor, created_at, rotated_at, expires_at, last_used_at)
			SELECT CAST($1 AS TEXT), $2, $3, $4, $5, 0, $6, $7, $8, stoa_now(), 0, CAST($9 AS BIGINT), 0
			WHERE (SELECT COUNT(*) FROM api_key WHERE tenant = $1) < CAST($10 AS BIGINT)`,
			string(id), k.ID, k.Name, k.Hash, []byte{}, string(roles), k.Scope, actor, optionalMicros(k.ExpiresAt), MaxAPIKeys)
		if err == nil && n == 0 {
			err = errorOfKind(ErrPrecondition, "the app %s has %d keys, more are not allowed: delete one first", app, MaxAPIKeys)
		}
		return err
	})
}

// RotateAPIKey replaces the key's hash. The key keeps its id, and with it the tasks and sessions that it owns. The
// former hash is accepted for overlap; a hash from before that no longer. An unknown id is [ErrNotFound].
func (s *Service) RotateAPIKey(ctx context.Context, actor, app, id string, hash []byte, overlap time.Duration) (APIKey, App, error) {
	detail := map[string]any{"id": id, "overlap": overlap.String()}
	return s.changeAPIKey(ctx, actor, "app.keys.rotate", app, id, detail, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		return requireKeyRow(tx.Exec(ctx, `UPDATE api_key SET former = hash, former_until = stoa_now() + CAST($4 AS BIGINT), hash = $3, rotated_at = stoa_now()
			WHERE tenant = $1 AND id = $2`, string(tenant), id, hash, overlap.Microseconds()))
	})
}

// DeleteAPIKey deletes a key, which is refused from then on. An unknown id is [ErrNotFound].
func (s *Service) DeleteAPIKey(ctx context.Context, actor, app, id string) error {
	_, _, err := s.changeAPIKey(ctx, actor, "app.keys.delete", app, "", map[string]any{"id": id}, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		return requireKeyRow(tx.Exec(ctx, `DELETE FROM api_key WHERE tenant = $1 AND id = $2`, string(tenant), id))
	})
	return err
}

// requireKeyRow turns the result of a statement that changed no row into [ErrNotFound].
func requireKeyRow(n int64, err error) error {
	if err == nil && n == 0 {
		err = errorOfKind(ErrNotFound, "no such key")
	}
	return err
}

// changeAPIKey runs f in a transaction that also increments the app's generation and writes an audit entry. By the
// generation other processes notice the change and read cached keys again. It returns the app, and the key with that id
// unless id is "".
func (s *Service) changeAPIKey(ctx context.Context, actor, action, app, id string, detail map[string]any,
	f func(ctx context.Context, tx *db.Tx, id db.ID) error,
) (k APIKey, a App, err error) {
	do := func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		if err := f(ctx, tx, tenant); err != nil || id == "" {
			return err
		}
		return tx.Query(ctx, func(row db.Row) error { return k.scanRow(row) },
			`SELECT `+apiKeyColumns+` FROM api_key k WHERE k.tenant = $1 AND k.id = $2`, string(tenant), id)
	}
	if app == DefaultName {
		a, err = s.changeDefaultApp(ctx, actor, action, detail, func(ctx context.Context, tx *db.Tx) error {
			if err := do(ctx, tx, DefaultID); err != nil {
				return err
			}
			return insertRevocation(ctx, tx, DefaultID, apiKeySubject)
		})
		return k, a, err
	}
	a, err = s.changeApp(ctx, actor, action, app, false, func(e *appEdit) error {
		e.additional, e.detail = do, detail
		return nil
	})
	return k, a, err
}

// ListAPIKeys returns an app's API keys, the newest first, or [ErrNotFound] if there is no such app.
func (s *Service) ListAPIKeys(ctx context.Context, app string) ([]APIKey, error) {
	id, err := s.requireAppID(ctx, app)
	if err != nil {
		return nil, err
	}
	keys := []APIKey{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var k APIKey
		err := k.scanRow(row)
		keys = append(keys, k)
		return err
	}, `SELECT `+apiKeyColumns+` FROM api_key k WHERE k.tenant = $1 ORDER BY k.created_at DESC, k.id`, string(id))
	if err := s.db.Tenant(id).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list keys of app %s: %w", app, err)
	}
	return keys, nil
}

// APIKeyOwner is the app of a key, with its generation when the key was read. A cached key must be read again when the
// app is at a later generation: the key may have been rotated or deleted.
type APIKeyOwner struct {
	App        db.ID
	Name       string
	Generation int64
}

// FindAPIKey returns the key with that id and its app, or [ErrNotFound]. It uses the platform's handle, because the app
// is known only from the key.
func (s *Service) FindAPIKey(ctx context.Context, id string) (k APIKey, of APIKeyOwner, err error) {
	var databaseGeneration int64
	var b db.Batch
	b.Query(func(row db.Row) error {
		var tenant string
		err := k.scanRow(row, &tenant, &of.Name, &of.Generation)
		of.App = db.ID(tenant)
		return err
	}, `SELECT `+apiKeyColumns+`, k.tenant, COALESCE(a.name, ''), COALESCE(a.generation, 0) FROM api_key k
		LEFT JOIN app a ON a.tenant = k.tenant WHERE k.id = $1`, id)
	queryDefaultGeneration(&b, &databaseGeneration)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return APIKey{}, APIKeyOwner{}, fmt.Errorf("look up an API key: %w", err)
	}
	if configured := s.defaultApp.Load(); of.App == DefaultID && configured != nil {
		of.Name, of.Generation = DefaultName, configured.app.Generation+databaseGeneration
	}
	if of.Name == "" {
		return APIKey{}, APIKeyOwner{}, errorOfKind(ErrNotFound, "no such key")
	}
	return k, of, nil
}

// RecordAPIKeyUse stores the times at which keys were last used, by id. A time less than a minute after the stored one
// is skipped, so that processes that use the same key do not all write.
func (s *Service) RecordAPIKeyUse(ctx context.Context, at map[string]time.Time) error {
	var b db.Batch
	for id, t := range at {
		b.Exec(nil, `UPDATE api_key SET last_used_at = $2 WHERE id = $1 AND last_used_at <= $3`, id, t.UnixMicro(), t.Add(-time.Minute).UnixMicro())
	}
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("note the use of API keys: %w", err)
	}
	return nil
}
