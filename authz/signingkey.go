package authz

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

const (
	// signingPeriod is how long a key signs.
	signingPeriod = 90 * 24 * time.Hour
	// publishAhead is how long a key is published before it signs, so that verifiers with cached key sets know it in
	// time.
	publishAhead = 7 * 24 * time.Hour
	// retireMargin is how much longer than the last token it signed a key is kept.
	retireMargin = time.Hour

	// sealScope is the scope of the encrypted keys; see [keyring.Keyring].
	sealScope = "signing_key"
)

// signingKey is one generation of the built-in issuer's keys. It signs from its time from until the next generation
// does, is published before, and is kept until every token it signed has expired.
type signingKey struct {
	generation int64
	id         string
	from       time.Time
	private    ed25519.PrivateKey
}

// currentSigningKey returns the key that signs at now. keys are ordered by generation and not empty.
func currentSigningKey(keys []signingKey, now time.Time) signingKey {
	for i := len(keys) - 1; i > 0; i-- {
		if !keys[i].from.After(now) {
			return keys[i]
		}
	}
	return keys[0]
}

// nextKeyDue returns the number of the next generation and the time from which it signs, if it has to be created at
// now. If the processes were stopped for long, the new key still is published for publishAhead before it signs.
func nextKeyDue(keys []signingKey, now time.Time) (generation int64, from time.Time, due bool) {
	if len(keys) == 0 {
		return 1, now, true
	}
	last := keys[len(keys)-1]
	from = last.from.Add(signingPeriod)
	if now.Before(from.Add(-publishAhead)) {
		return 0, time.Time{}, false
	}
	if soonest := now.Add(publishAhead); from.Before(soonest) {
		from = soonest
	}
	return last.generation + 1, from, true
}

// countRetired returns how many of keys, the oldest first, have no unexpired token at now. The last key is always kept.
func countRetired(keys []signingKey, now time.Time) int {
	for i := range keys {
		if i == len(keys)-1 || now.Before(keys[i+1].from.Add(maxTokenTTL+retireMargin)) {
			return i
		}
	}
	return 0
}

// keyStore reads and writes the signing keys in the database, encrypted with masterKeys.
type keyStore struct {
	db         *db.Handle
	masterKeys *keyring.Keyring
}

// loadKeys returns all keys, ordered by generation, and the database's time. Private keys in known are not decrypted
// again. Keys under a former master key are encrypted with the current one.
func (s keyStore) loadKeys(ctx context.Context, known []signingKey) ([]signingKey, time.Time, error) {
	type row struct {
		key    signingKey
		sealed []byte
		master string
	}
	var rows []row
	var now int64
	var b db.Batch
	b.Query(func(r db.Row) error {
		var k row
		var from int64
		if err := r.Scan(&k.key.generation, &k.key.id, &k.sealed, &k.master, &from); err != nil {
			return err
		}
		k.key.from = time.UnixMicro(from)
		rows = append(rows, k)
		return nil
	}, `SELECT generation, id, seed, master, signs_from FROM signing_key ORDER BY generation`)
	b.Query(func(r db.Row) error { return r.Scan(&now) }, `SELECT stoa_now()`)
	if err := s.db.Do(ctx, &b); err != nil {
		return nil, time.Time{}, fmt.Errorf("read the signing keys: %w", err)
	}
	keys := make([]signingKey, len(rows))
	for i, r := range rows {
		keys[i] = r.key
		for _, k := range known {
			if k.id == r.key.id {
				keys[i].private = k.private
			}
		}
		if keys[i].private == nil {
			var err error
			if keys[i].private, err = openSigningKey(s.masterKeys, r.key.id, r.sealed); err != nil {
				return nil, time.Time{}, err
			}
		}
		if r.master != s.masterKeys.CurrentKeyID() {
			if err := s.resealKey(ctx, keys[i]); err != nil {
				return nil, time.Time{}, err
			}
		}
	}
	return keys, time.UnixMicro(now), nil
}

// openSigningKey decrypts the private key with an id.
func openSigningKey(masterKeys *keyring.Keyring, id string, sealed []byte) (ed25519.PrivateKey, error) {
	seed, err := masterKeys.OpenValue(sealScope, id, sealed)
	if err == nil && len(seed) != ed25519.SeedSize {
		err = fmt.Errorf("it has %d bytes", len(seed))
	}
	if err != nil {
		return nil, fmt.Errorf("the signing key %s cannot be decrypted, start with the master key that encrypted it: %w", id, err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// CheckSigningKeys returns an error if the master keys do not decrypt one of the signing keys in d. It changes nothing.
func CheckSigningKeys(ctx context.Context, d *db.DB, masterKeys *keyring.Keyring) error {
	var failed error
	var b db.Batch
	b.Query(func(r db.Row) error {
		var id string
		var sealed []byte
		if err := r.Scan(&id, &sealed); err != nil {
			return err
		}
		if _, err := openSigningKey(masterKeys, id, sealed); err != nil && failed == nil {
			failed = err
		}
		return nil
	}, `SELECT id, seed FROM signing_key ORDER BY generation`)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("read the signing keys: %w", err)
	}
	return failed
}

// addKey creates the key of a generation, unless another process has created it already.
func (s keyStore) addKey(ctx context.Context, generation int64, from time.Time) error {
	id := agentsvc.NewID()
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	sealed, err := s.masterKeys.SealValue(sealScope, id, seed)
	if err != nil {
		return fmt.Errorf("seal a signing key: %w", err)
	}
	var b db.Batch
	b.Exec(nil, `INSERT INTO signing_key (generation, id, seed, master, signs_from, created_at) VALUES ($1, $2, $3, $4, $5, stoa_now())
		ON CONFLICT (generation) DO NOTHING`, generation, id, sealed, s.masterKeys.CurrentKeyID(), from.UnixMicro())
	if err := s.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("store a signing key: %w", err)
	}
	return nil
}

// resealKey encrypts k with the current master key, so that former ones can be removed.
func (s keyStore) resealKey(ctx context.Context, k signingKey) error {
	sealed, err := s.masterKeys.SealValue(sealScope, k.id, k.private.Seed())
	if err != nil {
		return fmt.Errorf("seal a signing key: %w", err)
	}
	var b db.Batch
	b.Exec(nil, `UPDATE signing_key SET seed = $2, master = $3 WHERE id = $1`, k.id, sealed, s.masterKeys.CurrentKeyID())
	if err := s.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("store a signing key: %w", err)
	}
	return nil
}

// removeKeysBefore deletes the generations before first.
func (s keyStore) removeKeysBefore(ctx context.Context, first int64) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM signing_key WHERE generation < $1`, first)
	if err := s.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("remove old signing keys: %w", err)
	}
	return nil
}

// initSetting stores value under name unless there is a value, and returns the stored one. Concurrent calls all return
// the same value.
func (s keyStore) initSetting(ctx context.Context, name, value string) (initial string, err error) {
	var b db.Batch
	b.Exec(nil, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, value)
	b.Query(func(r db.Row) error { return r.Scan(&initial) }, `SELECT value FROM setting WHERE name = $1`, name)
	if err := s.db.Do(ctx, &b); err != nil {
		return "", fmt.Errorf("store the setting %s: %w", name, err)
	}
	return initial, nil
}

// databaseNow returns the database's time.
func (s keyStore) databaseNow(ctx context.Context) (time.Time, error) {
	var now int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&now) }, `SELECT stoa_now()`)
	if err := s.db.Do(ctx, &b); err != nil {
		return time.Time{}, fmt.Errorf("read the database's time: %w", err)
	}
	return time.UnixMicro(now), nil
}
