package authz

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"stoa/agentsvc"
	"stoa/tenancy"
)

const (
	keyCacheTTL        = time.Minute // how long a key is believed without another look, changes of its app aside
	keyLookupTimeout   = 5 * time.Second
	lastUseInterval    = 2 * time.Second // between two writes of when keys were used
	maxRotationOverlap = 30 * 24 * time.Hour
	maxKeyName         = 100

	// APIKeySubjectPrefix begins the subject of every key's principal. No token has such a subject.
	APIKeySubjectPrefix = "key:"
)

// A key is stoa_APP_ followed by its id, by which it is found, and 128 bits that nobody can guess.
const (
	keyIDLength     = 12
	keySecretLength = 26
)

var apiKeyPattern = regexp.MustCompile(`^stoa_[a-z0-9-]{1,63}_([a-z2-7]{12})[a-z2-7]{26}$`)

// IsAPIKey reports whether credential has the form of an API key, good or bad. Neither a token nor an admin secret has.
func IsAPIKey(credential string) bool { return apiKeyPattern.MatchString(credential) }

// APIKeySpec says what an API key is to be good for.
type APIKeySpec struct {
	Name    string    // for people, 1 to 100 characters
	Roles   []string  // of [Roles] or the app's own; none: caller
	Scope   string    // scopes with spaces between them, which narrow the roles; "": nothing does
	Expires time.Time // zero: never
}

// APIKeys makes API keys and knows them again. What it found good it remembers, but looks again once the key's app has
// changed, in whichever process. It is safe for concurrent use.
type APIKeys struct {
	apps             *tenancy.Service
	loadFromDatabase func(ctx context.Context, id string) (tenancy.APIKey, tenancy.APIKeyOwner, error) // that of apps
	issuer           string
	log              *slog.Logger
	cache            *otter.Cache[[sha256.Size]byte, *cachedKey]
	lookups          singleflight.Group

	mu       sync.Mutex
	lastUses map[string]time.Time // keys whose last use is to be noted
}

// cachedKey is a key that was found good.
type cachedKey struct {
	id            string
	principal     Principal
	generation    int64 // of the app, when the key was read
	validUntil    time.Time
	lastUseSecond atomic.Int64 // second of the last use that was or is to be noted
}

// NewAPIKeys returns the keys of apps. Their principals are vouched for by the built-in issuer.
func NewAPIKeys(apps *tenancy.Service, i *Issuer) *APIKeys {
	return &APIKeys{
		apps: apps, loadFromDatabase: apps.FindAPIKey, issuer: i.name, log: i.log, lastUses: map[string]time.Time{},
		cache: otter.Must(&otter.Options[[sha256.Size]byte, *cachedKey]{MaximumSize: maxCacheEntries}),
	}
}

// CreateKey makes a key of app and returns its text, which is known to nobody afterwards. A spec that asks for
// something that does not exist is an [agentsvc.InvalidError].
func (k *APIKeys) CreateKey(ctx context.Context, actor string, app *tenancy.App, spec APIKeySpec) (text string, stored tenancy.APIKey, of tenancy.App, err error) {
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
	id := randomText(keyIDLength)
	text = newKeyText(app.Name, id)
	stored, of, err = k.apps.CreateAPIKey(ctx, actor, app.Name, tenancy.APIKey{
		ID: id, Name: spec.Name, Hash: hashKey(text), Roles: spec.Roles, Scope: spec.Scope, ExpiresAt: spec.Expires,
	})
	return text, stored, of, err
}

func (s APIKeySpec) validate() error {
	switch n := utf8.RuneCountInString(s.Name); {
	case n == 0 || n > maxKeyName || !isValidSubject(s.Name):
		return agentsvc.NewInvalidError("name", "must be 1 to %d printable characters", maxKeyName)
	case !s.Expires.IsZero() && !s.Expires.After(time.Now()):
		return agentsvc.NewInvalidError("expires_at", "must lie in the future")
	}
	return nil
}

// RotateKey gives the key of that id another text and returns it. The one before is good for overlap more.
func (k *APIKeys) RotateKey(ctx context.Context, actor, app, id string, overlap time.Duration) (text string, stored tenancy.APIKey, of tenancy.App, err error) {
	if overlap < 0 || overlap > maxRotationOverlap {
		return "", stored, of, agentsvc.NewInvalidError("overlap", "must be between 0s and %dh (30 days)", int(maxRotationOverlap.Hours()))
	}
	text = newKeyText(app, id)
	stored, of, err = k.apps.RotateAPIKey(ctx, actor, app, id, hashKey(text), overlap)
	return text, stored, of, err
}

// KeyPrefix returns how the key of that id begins, by which people know it.
func KeyPrefix(app, id string) string { return "stoa_" + app + "_" + id }

func newKeyText(app, id string) string { return KeyPrefix(app, id) + randomText(keySecretLength) }

// randomText returns n letters and digits, five bits each.
func randomText(n int) string { return strings.ToLower(rand.Text()[:n]) }

func hashKey(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// VerifyKey returns whom the key speaks for. Whatever is wrong with it is an [ErrUnauthenticated]; any other error says that
// it could not be found out. generation is that of the key's app as the caller knows it, 0 for not at all: what was
// read of the key before that is read again.
func (k *APIKeys) VerifyKey(ctx context.Context, text string, generation int64) (Principal, error) {
	m := apiKeyPattern.FindStringSubmatch(text)
	if m == nil {
		return Principal{}, unauthenticated("not of the form of an API key")
	}
	hash := sha256.Sum256([]byte(text))
	now := time.Now()
	known, ok := k.cache.GetIfPresent(hash)
	if !ok || !now.Before(known.validUntil) || known.generation < generation {
		var err error
		if known, err = k.loadKey(ctx, m[1], hash, generation, known); err != nil {
			return Principal{}, err
		}
	}
	if generation > 0 {
		k.recordUse(known, now)
	}
	return known.principal, nil
}

// loadKey reads the key of that id, once however many wait for it who know the same generation of its app: a look that began
// before the app was known to have changed may have read what was there before. before is what was known of the key, nil if
// nothing was.
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
		k.cache.Invalidate(hash)
		if errors.Is(err, tenancy.ErrNotFound) {
			err = unauthenticated("an API key that is not there")
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

// validateKey returns what is remembered of a key whose hash is hash, if kept is that key and it is still good.
func (k *APIKeys) validateKey(stored tenancy.APIKey, of tenancy.APIKeyOwner, hash [sha256.Size]byte) (*cachedKey, error) {
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
		return nil, unauthenticated("an API key from before its rotation")
	default:
		return nil, unauthenticated("an API key that is not there")
	}
	if !expires.IsZero() && !now.Before(expires) {
		return nil, unauthenticated("an API key that has expired")
	}
	until := now.Add(keyCacheTTL)
	if !expires.IsZero() && expires.Before(until) {
		until = expires
	}
	return &cachedKey{id: stored.ID, generation: of.Generation, validUntil: until, principal: Principal{
		App: of.App, AppName: of.Name, Issuer: k.issuer, Subject: APIKeySubjectPrefix + stored.ID,
		Roles: stored.Roles, Scopes: parseNarrowingScopes(stored.Scope), Issued: stored.CreatedAt, Expires: expires,
	}}, nil
}

// recordUse has the use of a key noted, once a minute at most.
func (k *APIKeys) recordUse(known *cachedKey, now time.Time) {
	last := known.lastUseSecond.Load()
	if now.Unix()-last < 60 || !known.lastUseSecond.CompareAndSwap(last, now.Unix()) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastUses[known.id] = now
}

// Run notes when keys were used until ctx ends, and a last time then.
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

// writeLastUses writes down which keys were used. What cannot be written is lost: the next use comes.
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
	if err := k.apps.RecordAPIKeyUse(ctx, used); err != nil {
		k.log.WarnContext(ctx, "when API keys were used could not be noted", "keys", len(used), "error", err)
	}
}
