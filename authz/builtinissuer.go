package authz

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"stoa/authz/jwks"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

const (
	// builtInAudience is the claim aud of the built-in issuer's tokens.
	builtInAudience = "stoa"

	// keyCheckInterval is the time between two looks at the keys in the database.
	keyCheckInterval = time.Minute
	// keyCheckMinGap is the least time between two looks, so that tokens with invented key ids do not load the
	// database.
	keyCheckMinGap = 5 * time.Second
	// keyCheckTimeout bounds one look.
	keyCheckTimeout = 5 * time.Second
)

// BuiltInIssuerOptions configure a [BuiltInIssuer]. The zero value works.
type BuiltInIssuerOptions struct {
	// Name is the claim iss of the issuer's tokens, usually the public URL; "" means "stoa". The first name used with a
	// database is stored there and used from then on, since existing tokens carry it.
	Name string
	Log  *slog.Logger
}

// BuiltInIssuer issues Stoa's own tokens. Its Ed25519 keys are stored in the database, encrypted, and replaced every
// 90 days; all processes on one database are the same issuer. It is the [KeySet] of its own tokens and safe for
// concurrent use.
type BuiltInIssuer struct {
	name     string
	keyStore keyStore
	log      *slog.Logger
	// snapshot is replaced as a whole by setKeys, under mu after OpenBuiltInIssuer.
	snapshot atomic.Pointer[keySnapshot]

	// mu serialises the looks at the keys and guards the fields below.
	mu        sync.Mutex
	lastCheck time.Time
	// lastCheckErr is the result of the last look, returned again within keyCheckMinGap.
	lastCheckErr error
}

// keySnapshot is an immutable set of keys as last read.
type keySnapshot struct {
	// generation grows with each change; it is local to this process.
	generation uint64
	// keys are ordered by generation and never empty after OpenBuiltInIssuer.
	keys []signingKey
	// publicKeys maps a key id (kid) to the public key; jwks is the same set as JSON.
	publicKeys map[string]jose.JSONWebKey
	jwks       []byte
}

// OpenBuiltInIssuer reads the issuer's name and keys from the database, or creates them. It returns an error if an
// existing key cannot be decrypted with k. Run [BuiltInIssuer.Run] to follow changes.
func OpenBuiltInIssuer(ctx context.Context, d *db.DB, k *keyring.Keyring, o BuiltInIssuerOptions) (*BuiltInIssuer, error) {
	if o.Name == "" {
		o.Name = "stoa"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	i := &BuiltInIssuer{keyStore: keyStore{db: d.Platform(), masterKeys: k}, log: o.Log}
	i.snapshot.Store(&keySnapshot{})
	var err error
	if i.name, err = i.keyStore.initSetting(ctx, "issuer", o.Name); err != nil {
		return nil, err
	}
	if err := i.refreshKeys(ctx); err != nil {
		return nil, err
	}
	i.lastCheck = time.Now()
	return i, nil
}

// Run keeps the keys current until ctx ends: it creates the next key in time, deletes old ones, and reads those that
// other processes created. After an error the known keys stay in use.
func (i *BuiltInIssuer) Run(ctx context.Context) error {
	return i.runEvery(ctx, keyCheckInterval, keyCheckMinGap)
}

// runEvery is Run with other intervals, for tests.
func (i *BuiltInIssuer) runEvery(ctx context.Context, every, gap time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := i.checkKeysIfDue(ctx, gap); err != nil && ctx.Err() == nil {
				i.log.WarnContext(ctx, "signing keys could not be read, the known ones stay in use", "error", err)
			}
		}
	}
}

// TrustedIssuer returns the entry with which a [Verifier] accepts the issuer's tokens.
func (i *BuiltInIssuer) TrustedIssuer() TrustedIssuer {
	return TrustedIssuer{Issuer: i.name, Audience: builtInAudience, Keys: i, BuiltIn: true}
}

// JWKS returns the public keys as a JSON Web Key Set (RFC 7517), with the key that will sign next.
func (i *BuiltInIssuer) JWKS() []byte { return slices.Clone(i.snapshot.Load().jwks) }

// Generation implements [KeySet].
func (i *BuiltInIssuer) Generation() uint64 { return i.snapshot.Load().generation }

// FindKey implements [KeySet]. For an unknown kid it reads the keys again, since another process may have created the
// key, but at most once in keyCheckMinGap.
func (i *BuiltInIssuer) FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	if key, ok := i.snapshot.Load().publicKeys[kid]; ok {
		return key, nil
	}
	// Other callers wait for the same look, so it must not end with this request.
	if err := i.checkKeysIfDue(context.WithoutCancel(ctx), keyCheckMinGap); err != nil {
		return jose.JSONWebKey{}, err
	}
	if key, ok := i.snapshot.Load().publicKeys[kid]; ok {
		return key, nil
	}
	return jose.JSONWebKey{}, jwks.ErrUnknownKey
}

// checkKeysIfDue reads the keys unless that was done less than gap ago; then it returns the result of that look again.
func (i *BuiltInIssuer) checkKeysIfDue(ctx context.Context, gap time.Duration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.lastCheck) < gap {
		return i.lastCheckErr
	}
	ctx, cancel := context.WithTimeout(ctx, keyCheckTimeout)
	defer cancel()
	i.lastCheck = time.Now()
	i.lastCheckErr = i.refreshKeys(ctx)
	return i.lastCheckErr
}

// refreshKeys reads the keys, creates the next generation if it is due, and deletes generations whose tokens have all
// expired. Concurrent processes may do the same: the generation is the primary key, so only one of their keys is
// stored.
func (i *BuiltInIssuer) refreshKeys(ctx context.Context) error {
	old := i.snapshot.Load()
	keys, now, err := i.keyStore.loadKeys(ctx, old.keys)
	if err != nil {
		return err
	}
	// Read again after adding: another process may have stored this generation first, with another key.
	if generation, from, due := nextKeyDue(keys, now); due {
		if err := i.keyStore.addKey(ctx, generation, from); err != nil {
			return err
		}
		if keys, now, err = i.keyStore.loadKeys(ctx, keys); err != nil {
			return err
		}
	}
	// countRetired never counts the last key, so keys[n] exists.
	if n := countRetired(keys, now); n > 0 {
		if err := i.keyStore.removeKeysBefore(ctx, keys[n].generation); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return i.setKeys(keys)
}

// setKeys makes keys the snapshot, unless they are the present ones.
func (i *BuiltInIssuer) setKeys(keys []signingKey) error {
	old := i.snapshot.Load()
	same := func(a, b signingKey) bool { return a.id == b.id && a.from.Equal(b.from) }
	if old.jwks != nil && slices.EqualFunc(old.keys, keys, same) {
		return nil
	}
	r := &keySnapshot{generation: old.generation + 1, keys: keys, publicKeys: make(map[string]jose.JSONWebKey, len(keys))}
	set := jose.JSONWebKeySet{}
	for _, k := range keys {
		public := jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(jose.EdDSA), Use: "sig"}
		r.publicKeys[k.id] = public
		set.Keys = append(set.Keys, public)
	}
	var err error
	if r.jwks, err = json.Marshal(set); err != nil {
		return err
	}
	i.snapshot.Store(r)
	return nil
}
