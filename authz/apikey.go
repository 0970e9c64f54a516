package authz

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
)

const (
	// keyCacheTTL is how long a verified key is accepted without reading it again, as long as its app does not change.
	keyCacheTTL = time.Minute
	// keyLookupTimeout bounds one read of a key, which several requests may wait for.
	keyLookupTimeout = 5 * time.Second
	// lastUseInterval is the time between two writes of the times of last use.
	lastUseInterval = 2 * time.Second
	// maxRotationOverlap bounds how long the former key remains valid after a rotation.
	maxRotationOverlap = 30 * 24 * time.Hour
	// maxKeyName bounds the name of a key, in characters.
	maxKeyName = 100
)

// APIKeySpec describes an API key to create.
type APIKeySpec struct {
	// Name is for people; 1 to 100 characters.
	Name string
	// Roles are built-in roles or roles of the app; none means [RoleCaller].
	Roles []string
	// Scope is a list of scopes, separated by spaces, that narrow the roles; "" does not narrow them.
	Scope string
	// Expires is the end of validity; zero means that the key does not expire.
	Expires time.Time
}

// APIKeys creates and verifies API keys. A verified key is cached, and read again when its app has changed in any
// process. It is safe for concurrent use.
type APIKeys struct {
	// Store has the stored keys, without their texts.
	Store *apikey.Store
	// loadFromDatabase is [apikey.Store.Find]; tests replace it.
	loadFromDatabase func(ctx context.Context, id string) (apikey.Key, apikey.Owner, error)
	issuer           string
	log              *slog.Logger
	// cache is keyed by the SHA-256 of the key, so that no usable key is kept in memory.
	cache *otter.Cache[[sha256.Size]byte, *cachedKey]
	// lookups merges concurrent reads of the same key at the same generation.
	lookups singleflight.Group

	// mu guards lastUses, the times of last use that Run has not written yet, by key id.
	mu       sync.Mutex
	lastUses map[string]time.Time
}

// cachedKey is a verified key.
type cachedKey struct {
	id        string
	principal Principal
	// generation is that of the app when the key was read. The cache entry is not used for a request that knows a later
	// one.
	generation int64
	validUntil time.Time
	// lastUseSecond is the Unix time of the last recorded use.
	lastUseSecond atomic.Int64
}

// NewAPIKeys returns the API keys of all apps. The issuer of their principals is the built-in issuer.
func NewAPIKeys(store *apikey.Store, i *BuiltInIssuer) *APIKeys {
	return &APIKeys{
		Store: store, loadFromDatabase: store.Find, issuer: i.name, log: i.log, lastUses: map[string]time.Time{},
		cache: otter.Must(&otter.Options[[sha256.Size]byte, *cachedKey]{MaximumSize: maxCacheEntries}),
	}
}

// CreateKey creates a key of app and returns its text, which is not stored and cannot be read again, with the stored
// key and the app's new record. A spec with an unknown role, scope or agent is an error with [agentsvc.CodeInvalid].
func (k *APIKeys) CreateKey(ctx context.Context, actor audit.Actor, app *tenancy.App, spec APIKeySpec) (text string, stored apikey.Key, of tenancy.App, err error) {
	if len(spec.Roles) == 0 {
		spec.Roles = []string{RoleCaller}
	}
	if err = spec.validate(); err != nil {
		return "", stored, of, err
	}
	if err = checkRoles(app, spec.Roles); err != nil {
		return "", stored, of, err
	}
	if spec.Scope, err = normalizeScope(spec.Scope); err != nil {
		return "", stored, of, err
	}
	for word := range strings.FieldsSeq(spec.Scope) {
		if agent, _ := Scope(word).splitAgent(); agent != anyObject {
			if err = app.CheckAgent("scope", agent); err != nil {
				return "", stored, of, err
			}
		}
	}
	id := apikey.NewID()
	text = apikey.NewText(app.Name, id)
	stored, of, err = k.Store.Create(ctx, actor, app.Name, apikey.Key{
		ID: id, Name: spec.Name, Hash: apikey.Hash(text), Roles: spec.Roles, Scope: spec.Scope, ExpiresAt: spec.Expires,
	})
	return text, stored, of, err
}

// validate checks the name and the expiry.
func (s APIKeySpec) validate() error {
	switch n := utf8.RuneCountInString(s.Name); {
	case n == 0 || n > maxKeyName || !isValidSubject(s.Name):
		return agentsvc.NewInvalidError("name", "must be 1 to %d printable characters", maxKeyName)
	case !s.Expires.IsZero() && !s.Expires.After(time.Now()):
		return agentsvc.NewInvalidError("expires_at", "must lie in the future")
	}
	return nil
}

// RotateKey replaces the secret part of the key with that id and returns the new text. The former text remains valid
// for overlap, at most maxRotationOverlap.
func (k *APIKeys) RotateKey(ctx context.Context, actor audit.Actor, app, id string, overlap time.Duration) (text string, stored apikey.Key, of tenancy.App, err error) {
	if overlap < 0 || overlap > maxRotationOverlap {
		return "", stored, of, agentsvc.NewInvalidError("overlap", "must be between 0s and %dh (30 days)", int(maxRotationOverlap.Hours()))
	}
	text = apikey.NewText(app, id)
	stored, of, err = k.Store.Rotate(ctx, actor, app, id, apikey.Hash(text), overlap)
	return text, stored, of, err
}

// VerifyKey returns the principal of a key. A key that is not valid is an [ErrUnauthenticated]; any other error means
// that it could not be read. generation is the generation of the key's app that the caller knows, 0 if it does not know
// any: a cache entry from an earlier generation is read again. A request calls VerifyKey twice, first with 0 to find
// the app; only the second call records the use.
func (k *APIKeys) VerifyKey(ctx context.Context, text string, generation int64) (Principal, error) {
	id, ok := apikey.ParseID(text)
	if !ok {
		return Principal{}, unauthenticated("not of the form of an API key")
	}
	hash := sha256.Sum256([]byte(text))
	now := time.Now()
	known, ok := k.cache.GetIfPresent(hash)
	if !ok || !now.Before(known.validUntil) || known.generation < generation {
		var err error
		if known, err = k.loadKey(ctx, id, hash, generation, known); err != nil {
			return Principal{}, err
		}
	}
	if generation > 0 {
		k.recordUse(known, now)
	}
	return known.principal, nil
}

// loadKey reads and verifies a key. Concurrent calls with the same generation share one read; calls with different
// generations do not, since a read that began before the app changed may return the former state. before is the cache
// entry that is replaced, nil if there was none; the time of last use is taken over from it.
func (k *APIKeys) loadKey(ctx context.Context, id string, hash [sha256.Size]byte, generation int64, before *cachedKey) (*cachedKey, error) {
	lookup := k.lookups.DoChan(fmt.Sprintf("%s %d", hash, generation), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keyLookupTimeout)
		defer cancel()
		stored, of, err := k.loadFromDatabase(ctx, id)
		if err == nil {
			var known *cachedKey
			if known, err = k.validateKey(stored, of, hash); err == nil {
				if before != nil {
					known.lastUseSecond.Store(before.lastUseSecond.Load())
				}
				k.cache.Set(hash, known)
				return known, nil
			}
		}
		// The key is not valid or could not be read: an earlier entry must not be used for later requests either.
		k.cache.Invalidate(hash)
		if errors.Is(err, agentsvc.CodeNotFound) {
			err = unauthenticated("an API key that does not exist")
		}
		return (*cachedKey)(nil), err
	})
	select {
	case got := <-lookup:
		return got.Val.(*cachedKey), got.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// validateKey returns the cache entry for a key with this hash, if stored is that key and it is valid now. A former key
// is valid until the end of its overlap. Hashes are compared in constant time.
func (k *APIKeys) validateKey(stored apikey.Key, of apikey.Owner, hash [sha256.Size]byte) (*cachedKey, error) {
	now := time.Now()
	expires := stored.ExpiresAt
	current := subtle.ConstantTimeCompare(stored.Hash, hash[:]) == 1
	former := subtle.ConstantTimeCompare(stored.Former, hash[:]) == 1
	switch {
	case current:
	case former && now.Before(stored.FormerUntil):
		if expires.IsZero() || stored.FormerUntil.Before(expires) {
			expires = stored.FormerUntil
		}
	case former:
		return nil, (&Refusal{App: of.App, Expired: true, Reason: "an API key that was rotated"}).newError()
	default:
		return nil, (&Refusal{App: of.App, Reason: "an API key that does not exist"}).newError()
	}
	if !expires.IsZero() && !now.Before(expires) {
		return nil, (&Refusal{App: of.App, Expired: true, Reason: "an API key that has expired"}).newError()
	}
	until := now.Add(keyCacheTTL)
	if !expires.IsZero() && expires.Before(until) {
		until = expires
	}
	return &cachedKey{id: stored.ID, generation: of.Generation, validUntil: until, principal: Principal{
		App: of.App, AppName: of.Name, Issuer: k.issuer, Subject: tenancy.APIKeySubjectPrefix + stored.ID,
		Roles: stored.Roles, Scopes: parseNarrowingScopes(stored.Scope), Issued: stored.CreatedAt, Expires: expires,
	}}, nil
}

// recordUse schedules the time of use to be written, at most once a minute for each key in this process.
func (k *APIKeys) recordUse(known *cachedKey, now time.Time) {
	last := known.lastUseSecond.Load()
	if now.Unix()-last < 60 || !known.lastUseSecond.CompareAndSwap(last, now.Unix()) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastUses[known.id] = now
}

// Run writes the times of last use until ctx ends, and once more then. It returns the error of ctx.
func (k *APIKeys) Run(ctx context.Context) error {
	tick := time.NewTicker(lastUseInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.writeLastUses(ctx)
		case <-ctx.Done():
			k.writeLastUses(ctx)
			return ctx.Err()
		}
	}
}

// writeLastUses writes the recorded times. If that fails they are lost; later uses replace them.
func (k *APIKeys) writeLastUses(ctx context.Context) {
	k.mu.Lock()
	used := k.lastUses
	k.lastUses = map[string]time.Time{}
	k.mu.Unlock()
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := k.Store.RecordUse(ctx, used); err != nil {
		k.log.WarnContext(ctx, "the last use of API keys could not be recorded", "keys", len(used), "error", err)
	}
}
