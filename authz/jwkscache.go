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
	jwksCacheTimeout  = 3 * time.Second // how long keeping and recalling may take
	jwksCacheTTL      = 48 * time.Hour  // then they are forgotten
	jwksSettingPrefix = "issuer_keys:"  // of their names among the settings
)

// JWKSCache are the keys of issuers elsewhere as the processes of a database have fetched them last. One that starts while an
// issuer does not answer believes them as long as if it had fetched them itself. A nil one keeps nothing.
type JWKSCache struct{ db *db.Handle }

// NewJWKSCache returns those of d.
func NewJWKSCache(d *db.DB) *JWKSCache { return &JWKSCache{d.Platform()} }

// jwksSettingName is what the keys at url are kept under.
func jwksSettingName(url string) string {
	sum := sha256.Sum256([]byte(url))
	return jwksSettingPrefix + hex.EncodeToString(sum[:])
}

// saveJWKS keeps the set that was just fetched from url, and forgets those that nobody has fetched for long. A set stands behind
// the time at which it was fetched, in microseconds: sixteen digits.
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
		return fmt.Errorf("keep the keys of %s: %w", url, err)
	}
	return nil
}

// loadJWKS returns the set that was fetched from url last and how long ago, nil for none.
func (k *JWKSCache) loadJWKS(ctx context.Context, url string) (set []byte, age time.Duration, err error) {
	if k == nil {
		return nil, 0, nil
	}
	var value string
	var now int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&value, &now) }, `SELECT value, stoa_now() FROM setting WHERE name = $1`, jwksSettingName(url))
	if err := k.db.Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("recall the keys of %s: %w", url, err)
	}
	at, body, found := strings.Cut(value, " ")
	if !found {
		return nil, 0, nil
	}
	fetched, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("recall the keys of %s: %w", url, err)
	}
	return []byte(body), time.Duration(now-fetched) * time.Microsecond, nil
}
