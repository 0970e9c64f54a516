package authz

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"stoa/tenancy/db"
)

const (
	// jwksCacheTimeout bounds reading or writing the cache.
	jwksCacheTimeout = 3 * time.Second
	// jwksCacheTTL is the age at which cached keys are deleted.
	jwksCacheTTL = 48 * time.Hour
	// jwksSettingPrefix begins the names of cached key sets in the table setting.
	jwksSettingPrefix = "issuer_keys:"
)

// JWKSCache stores, in the database, the keys of OpenID providers as any process fetched them last. A process that
// starts while a provider does not answer uses them for as long as if it had fetched them itself. A nil JWKSCache
// stores nothing.
type JWKSCache struct{ db *db.Handle }

// NewJWKSCache returns the cache in d.
func NewJWKSCache(d *db.DB) *JWKSCache { return &JWKSCache{d.Platform()} }

// jwksSettingName returns the name of the setting with the keys of url; the hash bounds its length.
func jwksSettingName(url string) string {
	sum := sha256.Sum256([]byte(url))
	return jwksSettingPrefix + hex.EncodeToString(sum[:])
}

// saveJWKS stores the key set that was just fetched from url, and deletes key sets older than jwksCacheTTL. The value
// is the time of the fetch in microseconds, which has 16 digits, a space, and the key set. The CASE keeps the cast from
// being evaluated for other settings.
func (k *JWKSCache) saveJWKS(ctx context.Context, url string, set []byte) error {
	if k == nil {
		return nil
	}
	var b db.Batch
	b.Exec(nil, `INSERT INTO setting (name, value) VALUES ($1, CAST(stoa_now() AS TEXT) || ' ' || CAST($2 AS TEXT))
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, jwksSettingName(url), string(set))
	b.Exec(nil, `DELETE FROM setting WHERE CASE WHEN name LIKE '`+jwksSettingPrefix+`%' THEN CAST(substr(value, 1, 16) AS BIGINT) ELSE stoa_now() END < stoa_now() - $1`,
		jwksCacheTTL.Microseconds())
	if err := k.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("keep the keys: %w", err)
	}
	return nil
}

// loadJWKS returns the key set last fetched from url and its age by the database's clock; nil if there is none.
func (k *JWKSCache) loadJWKS(ctx context.Context, url string) (set []byte, age time.Duration, err error) {
	if k == nil {
		return nil, 0, nil
	}
	var value string
	var now int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&value, &now) }, `SELECT value, stoa_now() FROM setting WHERE name = $1`, jwksSettingName(url))
	if err := k.db.Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("recall the keys: %w", err)
	}
	at, body, found := strings.Cut(value, " ")
	if !found {
		return nil, 0, nil
	}
	fetched, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("recall the keys: %w", err)
	}
	return []byte(body), time.Duration(now-fetched) * time.Microsecond, nil
}

// Delete deletes the keys of url, for an app that is deleted.
func (k *JWKSCache) Delete(ctx context.Context, url string) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM setting WHERE name = $1`, jwksSettingName(url))
	if err := k.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("forget the keys of an issuer: %w", err)
	}
	return nil
}
