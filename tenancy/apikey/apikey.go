// Package apikey stores the API keys of apps. Package authz creates and verifies them.
package apikey

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// MaxKeys bounds the API keys of one app.
const MaxKeys = 1000

// Key is an API key as it is stored. The key itself is not stored; it is returned only once, by package authz.
type Key struct {
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
	// LastUsedAt is accurate to about a minute; see [Store.RecordUse].
	LastUsedAt time.Time
}

// keyColumns are the columns that [Key.scanRow] reads, in its order, of the table api_key under the alias k.
const keyColumns = `k.id, k.name, k.hash, k.former, k.former_until, k.roles, k.scope, k.created_at, k.rotated_at, k.expires_at, k.last_used_at`

// scanRow reads a row of keyColumns; more are the destinations of further columns.
func (k *Key) scanRow(row db.Row, more ...any) error {
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
	return time.UnixMicro(n).UTC()
}

// optionalMicros is the inverse of optionalTime.
func optionalMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Store reads and writes the API keys of all apps. It is safe for concurrent use.
type Store struct {
	db   *db.DB
	apps *tenancy.Service
}

// NewStore returns the API keys in d of the apps of s.
func NewStore(d *db.DB, s *tenancy.Service) *Store { return &Store{db: d, apps: s} }

// Create stores k as a key of the named app and returns it as stored, with the app. The caller sets ID, Name,
// Hash, Roles, Scope and ExpiresAt. The number of keys is checked by the inserting statement itself; beyond MaxKeys
// the error is [agentsvc.CodePrecondition].
func (s *Store) Create(ctx context.Context, actor audit.Actor, app string, k Key) (Key, tenancy.App, error) {
	roles, err := json.Marshal(k.Roles)
	if err != nil {
		return Key{}, tenancy.App{}, err
	}
	detail := map[string]any{"id": k.ID, "name": k.Name, "roles": k.Roles, "scope": k.Scope}
	if !k.ExpiresAt.IsZero() {
		detail["expires_at"] = k.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return s.change(ctx, actor, "app.keys.create", app, k.ID, detail, func(ctx context.Context, tx *db.Tx, id db.ID) error {
		// Count and insertion are one statement, and the lock on the app's row, which changeApp takes, serialises it
		// with other creations. The default app has no row to lock, so concurrent creations may exceed its bound by a
		// few.
		n, err := tx.Exec(ctx, `INSERT INTO api_key (tenant, id, name, hash, former, former_until, roles, scope, actor, created_at, rotated_at, expires_at, last_used_at)
			SELECT CAST($1 AS TEXT), $2, $3, $4, $5, 0, $6, $7, $8, stoa_now(), 0, CAST($9 AS BIGINT), 0
			WHERE (SELECT COUNT(*) FROM api_key WHERE tenant = $1) < CAST($10 AS BIGINT)`,
			string(id), k.ID, k.Name, k.Hash, []byte{}, string(roles), k.Scope, actor.Name, optionalMicros(k.ExpiresAt), MaxKeys)
		if err == nil && n == 0 {
			err = agentsvc.NewError(agentsvc.CodePrecondition, "the app %s has %d keys, more are not allowed: delete one first", app, MaxKeys)
		}
		return err
	})
}

// Rotate replaces the key's hash. The key keeps its id, and with it the tasks and sessions that it owns. The
// former hash is accepted for overlap; a hash from before that no longer. An unknown id is [agentsvc.CodeNotFound].
func (s *Store) Rotate(ctx context.Context, actor audit.Actor, app, id string, hash []byte, overlap time.Duration) (Key, tenancy.App, error) {
	detail := map[string]any{"id": id, "overlap": overlap.String()}
	return s.change(ctx, actor, "app.keys.rotate", app, id, detail, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		return requireKeyRow(tx.Exec(ctx, `UPDATE api_key SET former = hash, former_until = stoa_now() + CAST($4 AS BIGINT), hash = $3, rotated_at = stoa_now()
			WHERE tenant = $1 AND id = $2`, string(tenant), id, hash, overlap.Microseconds()))
	})
}

// Delete deletes a key, which is refused from then on. An unknown id is [agentsvc.CodeNotFound].
func (s *Store) Delete(ctx context.Context, actor audit.Actor, app, id string) error {
	_, _, err := s.change(ctx, actor, "app.keys.delete", app, "", map[string]any{"id": id}, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		return requireKeyRow(tx.Exec(ctx, `DELETE FROM api_key WHERE tenant = $1 AND id = $2`, string(tenant), id))
	})
	return err
}

// requireKeyRow turns the result of a statement that changed no row into [agentsvc.CodeNotFound].
func requireKeyRow(n int64, err error) error {
	if err == nil && n == 0 {
		err = agentsvc.NewError(agentsvc.CodeNotFound, "no such key")
	}
	return err
}

// change runs f in a transaction that also increments the app's generation and writes an audit entry; see
// [tenancy.Service.ChangeRelated]. It returns the app, and the key with that id unless id is "".
func (s *Store) change(ctx context.Context, actor audit.Actor, action, app, id string, detail map[string]any,
	f func(ctx context.Context, tx *db.Tx, id db.ID) error,
) (k Key, a tenancy.App, err error) {
	a, err = s.apps.ChangeRelated(ctx, actor, action, app, detail, func(ctx context.Context, tx *db.Tx, tenant db.ID) error {
		if err := f(ctx, tx, tenant); err != nil || id == "" {
			return err
		}
		return tx.Query(ctx, func(row db.Row) error { return k.scanRow(row) },
			`SELECT `+keyColumns+` FROM api_key k WHERE k.tenant = $1 AND k.id = $2`, string(tenant), id)
	})
	return k, a, err
}

// List returns an app's API keys, the newest first, or [agentsvc.CodeNotFound] if there is no such app.
func (s *Store) List(ctx context.Context, app string) ([]Key, error) {
	return s.query(ctx, app, "")
}

// Load returns the API key of an app with that id, or [agentsvc.CodeNotFound].
func (s *Store) Load(ctx context.Context, app, id string) (Key, error) {
	keys, err := s.query(ctx, app, id)
	if err = requireKeyRow(int64(len(keys)), err); err != nil {
		return Key{}, err
	}
	return keys[0], nil
}

// query returns the key of an app with that id, "" = all of its keys.
func (s *Store) query(ctx context.Context, app, keyID string) ([]Key, error) {
	id, err := s.apps.RequireAppID(ctx, app)
	if err != nil {
		return nil, err
	}
	keys := []Key{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var k Key
		err := k.scanRow(row)
		keys = append(keys, k)
		return err
	}, `SELECT `+keyColumns+` FROM api_key k WHERE k.tenant = $1 AND (CAST($2 AS TEXT) = '' OR k.id = $2) ORDER BY k.created_at DESC, k.id`, string(id), keyID)
	if err := s.db.Tenant(id).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read keys of app %s: %w", app, err)
	}
	return keys, nil
}

// Owner is the app of a key, with its generation when the key was read. A cached key must be read again when the
// app is at a later generation: the key may have been rotated or deleted.
type Owner struct {
	App        db.ID
	Name       string
	Generation int64
}

// Find returns the key with that id and its app, or [agentsvc.CodeNotFound]. It uses the platform's handle, because the
// app is known only from the key.
func (s *Store) Find(ctx context.Context, id string) (k Key, of Owner, err error) {
	var defaultGeneration int64
	var b db.Batch
	b.Query(func(row db.Row) error {
		var tenant string
		err := k.scanRow(row, &tenant, &of.Name, &of.Generation)
		of.App = db.ID(tenant)
		return err
	}, `SELECT `+keyColumns+`, k.tenant, COALESCE(a.name, ''), COALESCE(a.generation, 0) FROM api_key k
		LEFT JOIN app a ON a.tenant = k.tenant WHERE k.id = $1`, id)
	s.apps.QueryDefaultGeneration(&b, &defaultGeneration)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return Key{}, Owner{}, fmt.Errorf("look up an API key: %w", err)
	}
	if of.App == tenancy.DefaultID && defaultGeneration > 0 {
		of.Name, of.Generation = tenancy.DefaultName, defaultGeneration
	}
	if of.Name == "" {
		return Key{}, Owner{}, agentsvc.NewError(agentsvc.CodeNotFound, "no such key")
	}
	return k, of, nil
}

// RecordUse stores the times at which keys were last used, by id. A time less than a minute after the stored one
// is skipped, so that processes that use the same key do not all write.
func (s *Store) RecordUse(ctx context.Context, at map[string]time.Time) error {
	var b db.Batch
	for id, t := range at {
		b.Exec(nil, `UPDATE api_key SET last_used_at = $2 WHERE id = $1 AND last_used_at <= $3`, id, t.UnixMicro(), t.Add(-time.Minute).UnixMicro())
	}
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("record the use of API keys: %w", err)
	}
	return nil
}
