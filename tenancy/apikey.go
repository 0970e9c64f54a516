package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// MaxAPIKeys bounds the keys of an app.
const MaxAPIKeys = 1000

// apiKeySubject is the subject whose mark tells of a change of the default app's keys: it has no row of its own to tell.
const apiKeySubject = "key:"

// APIKey is a key with which programs call an app. What it looks like nobody knows but who was shown it.
type APIKey struct {
	ID          string // public, and one in the whole platform
	Name        string
	Hash        []byte // of the key
	Former      []byte // hash of the key before the last rotation
	FormerUntil time.Time
	Roles       []string
	Scope       string
	CreatedAt   time.Time
	RotatedAt   time.Time // zero = never, as with those below
	ExpiresAt   time.Time
	LastUsedAt  time.Time // to the minute
}

const apiKeyColumns = `k.id, k.name, k.hash, k.former, k.former_until, k.roles, k.scope, k.created_at, k.rotated_at, k.expires_at, k.last_used_at`

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

// optionalTime returns the time that a column holds, in which 0 is none.
func optionalTime(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return timeFromMicros(n)
}

func optionalMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// CreateAPIKey keeps k, whose ID, Name, Hash, Roles, Scope and ExpiresAt are set, as a key of the named app, and
// returns it as it is kept.
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

// RotateAPIKey makes hash that of the key, which keeps its id and thereby all that it owns. The former one is good for
// overlap more; one from before it no longer. A key that is not there is [ErrNotFound].
func (s *Service) RotateAPIKey(ctx context.Context, actor, app, id string, hash []byte, overlap time.Duration) (APIKey, App, error) {
	detail := map[string]any{"id": id, "overlap": overlap.String()}
	return s.changeAPIKey(ctx, actor, "app.keys.rotate", app, id, detail, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		return requireKeyRow(tx.Exec(ctx, `UPDATE api_key SET former = hash, former_until = stoa_now() + CAST($4 AS BIGINT), hash = $3, rotated_at = stoa_now()
			WHERE tenant = $1 AND id = $2`, string(tenant), id, hash, overlap.Microseconds()))
	})
}

// DeleteAPIKey has the key refused from now on. One that is not there is [ErrNotFound].
func (s *Service) DeleteAPIKey(ctx context.Context, actor, app, id string) error {
	_, _, err := s.changeAPIKey(ctx, actor, "app.keys.delete", app, "", map[string]any{"id": id}, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		return requireKeyRow(tx.Exec(ctx, `DELETE FROM api_key WHERE tenant = $1 AND id = $2`, string(tenant), id))
	})
	return err
}

func requireKeyRow(n int64, err error) error {
	if err == nil && n == 0 {
		err = errorOfKind(ErrNotFound, "no such key")
	}
	return err
}

// changeAPIKey carries out f in a transaction that lets the app's generation grow, which is how other processes hear of
// it, and returns the key of that id, where one is named, and the app as they are then.
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

// ListAPIKeys lists an app's keys, the newest first.
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

// APIKeyOwner is the app that a key belongs to, as it was when the key was read: a key that was read at one generation is
// to be read again when the app is at a later one.
type APIKeyOwner struct {
	App        db.ID
	Name       string
	Generation int64
}

// FindAPIKey returns the key of that id and whose it is. It is [ErrNotFound] if there is none.
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

// RecordAPIKeyUse notes when keys were used last, for each no more often than once a minute.
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
