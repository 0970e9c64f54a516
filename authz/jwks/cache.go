package jwks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

const (
	// cacheTimeout bounds reading or writing the cache.
	cacheTimeout = 3 * time.Second
	// cacheTTL is the age at which cached keys are deleted.
	cacheTTL = 48 * time.Hour
)

// Cache stores, in the database, the keys of OpenID providers as any process fetched them last. A process that starts
// while a provider does not answer uses them for as long as if it had fetched them itself. A nil Cache stores nothing.
type Cache struct{ db *db.Handle }

// NewCache returns the cache in d.
func NewCache(d *db.DB) *Cache { return &Cache{d.Platform()} }

// hashURL returns the key of the keys of url; the hash bounds its length.
func hashURL(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}

// save stores the key set that was just fetched from url, and deletes key sets older than cacheTTL.
func (c *Cache) save(ctx context.Context, url string, set []byte) error {
	if c == nil {
		return nil
	}
	var b db.Batch
	b.Exec(nil, `INSERT INTO jwks (url_hash, document, fetched_at) VALUES ($1, $2, stoa_now())
		ON CONFLICT (url_hash) DO UPDATE SET document = excluded.document, fetched_at = excluded.fetched_at`, hashURL(url), string(set))
	b.Exec(nil, `DELETE FROM jwks WHERE fetched_at < stoa_now() - $1`, cacheTTL.Microseconds())
	if err := c.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("store the keys: %w", err)
	}
	return nil
}

// load returns the key set last fetched from url and its age by the database's clock; nil if there is none.
func (c *Cache) load(ctx context.Context, url string) (set []byte, age time.Duration, err error) {
	if c == nil {
		return nil, 0, nil
	}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var document string
		var micros int64
		err := r.Scan(&document, &micros)
		set, age = []byte(document), time.Duration(micros)*time.Microsecond
		return err
	}, `SELECT document, stoa_now() - fetched_at FROM jwks WHERE url_hash = $1`, hashURL(url))
	if err := c.db.Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("read the stored keys: %w", err)
	}
	return set, age, nil
}

// Delete deletes the keys of url, for an app that is deleted.
func (c *Cache) Delete(ctx context.Context, url string) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM jwks WHERE url_hash = $1`, hashURL(url))
	if err := c.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("delete the keys of an issuer: %w", err)
	}
	return nil
}
