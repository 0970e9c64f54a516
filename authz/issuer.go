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

	"stoa/tenancy"
	"stoa/tenancy/db"
)

const (
	builtInAudience = "stoa"

	keyCheckInterval = time.Minute     // how often an issuer looks at its keys on its own
	keyCheckMinGap   = 5 * time.Second // how soon after a look an unknown key may cause another
	keyCheckTimeout  = 5 * time.Second // how long a look may take
)

// IssuerOptions tune an [Issuer]. The zero value works.
type IssuerOptions struct {
	Name string // what its tokens say in iss, if the database does not know yet: the public URL; "" = "stoa"
	Log  *slog.Logger
}

// Issuer is the built-in token issuer. Its Ed25519 keys live in the database, sealed, and are replaced every 90 days;
// all processes on one database are the same issuer. It is the [KeySet] of its own tokens and safe for concurrent use.
type Issuer struct {
	name     string
	keyStore keyStore
	log      *slog.Logger
	snapshot atomic.Pointer[keySnapshot]

	mu           sync.Mutex // one look at a time
	lastCheck    time.Time
	lastCheckErr error // of the last look
}

// keySnapshot is the set of keys as it was last seen.
type keySnapshot struct {
	generation uint64
	keys       []signingKey
	publicKeys map[string]jose.JSONWebKey
	jwks       []byte
}

// OpenIssuer makes the issuer's name and first key, or reads those that are there. It returns an error if a key that is
// there cannot be opened.
func OpenIssuer(ctx context.Context, d *db.DB, k *tenancy.Keyring, o IssuerOptions) (*Issuer, error) {
	if o.Name == "" {
		o.Name = "stoa"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	i := &Issuer{keyStore: keyStore{db: d.Platform(), masterKeys: k}, log: o.Log}
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

// Run follows the keys until ctx ends: it publishes the next in time, drops the old, and sees what other processes did.
func (i *Issuer) Run(ctx context.Context) error {
	return i.runEvery(ctx, keyCheckInterval, keyCheckMinGap)
}

func (i *Issuer) runEvery(ctx context.Context, every, gap time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := i.checkKeysIfDue(ctx, gap); err != nil && ctx.Err() == nil {
				i.log.WarnContext(ctx, "signing keys could not be looked at, the known ones stay", "error", err)
			}
		}
	}
}

// TrustedIssuer is the entry that makes a [Verifier] accept the issuer's tokens.
func (i *Issuer) TrustedIssuer() TrustedIssuer {
	return TrustedIssuer{Issuer: i.name, Audience: builtInAudience, Keys: i, BuiltIn: true}
}

// JWKS returns the public keys as a JSON Web Key Set (RFC 7517), those that will sign soon included.
func (i *Issuer) JWKS() []byte { return slices.Clone(i.snapshot.Load().jwks) }

// Generation changes whenever a key comes or goes.
func (i *Issuer) Generation() uint64 { return i.snapshot.Load().generation }

// FindKey returns the public key that kid names. An unknown one makes the issuer look whether another process has made it,
// though not more often than every few seconds.
func (i *Issuer) FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	if key, ok := i.snapshot.Load().publicKeys[kid]; ok {
		return key, nil
	}
	// The look serves everybody who waits: it does not end with the call that caused it.
	if err := i.checkKeysIfDue(context.WithoutCancel(ctx), keyCheckMinGap); err != nil {
		return jose.JSONWebKey{}, err
	}
	if key, ok := i.snapshot.Load().publicKeys[kid]; ok {
		return key, nil
	}
	return jose.JSONWebKey{}, ErrUnknownKey
}

// checkKeysIfDue brings the held keys up to date unless that was tried less than gap ago, which answers the same again.
func (i *Issuer) checkKeysIfDue(ctx context.Context, gap time.Duration) error {
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

func (i *Issuer) refreshKeys(ctx context.Context) error {
	old := i.snapshot.Load()
	keys, now, err := i.keyStore.loadKeys(ctx, old.keys)
	if err != nil {
		return err
	}
	if generation, from, due := nextKeyDue(keys, now); due {
		if err := i.keyStore.addKey(ctx, generation, from); err != nil {
			return err
		}
		if keys, now, err = i.keyStore.loadKeys(ctx, keys); err != nil {
			return err
		}
	}
	if n := countRetired(keys, now); n > 0 {
		if err := i.keyStore.removeKeysBefore(ctx, keys[n].generation); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return i.setKeys(keys)
}

// setKeys makes keys the ones that sign and verify.
func (i *Issuer) setKeys(keys []signingKey) error {
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
