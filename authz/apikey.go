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
	keyTrust   = time.Minute // how long a key is believed without another look, changes of its app aside
	keyLookup  = 5 * time.Second
	noteEvery  = 2 * time.Second // between two writes of when keys were used
	maxOverlap = 30 * 24 * time.Hour
	maxKeyName = 100

	// SubjectOfKey begins the subject of every key's principal. No token has such a subject.
	SubjectOfKey = "key:"
)

// A key is stoa_APP_ followed by its id, by which it is found, and 128 bits that nobody can guess.
const (
	keyIDLength     = 12
	keySecretLength = 26
)

var keyForm = regexp.MustCompile(`^stoa_[a-z0-9-]{1,63}_([a-z2-7]{12})[a-z2-7]{26}$`)

// IsAPIKey reports whether credential has the form of an API key, good or bad. Neither a token nor an admin secret has.
func IsAPIKey(credential string) bool { return keyForm.MatchString(credential) }

// KeySpec says what an API key is to be good for.
type KeySpec struct {
	Name    string    // for people, 1 to 100 characters
	Roles   []string  // of [Roles] or the app's own; none: caller
	Scope   string    // scopes with spaces between them, which narrow the roles; "": nothing does
	Expires time.Time // zero: never
}

// APIKeys makes API keys and knows them again. What it found good it remembers, but looks again once the key's app has
// changed, in whichever process. It is safe for concurrent use.
type APIKeys struct {
	apps    *tenancy.Service
	lookUp  func(ctx context.Context, id string) (tenancy.APIKey, tenancy.KeyHolder, error) // that of apps
	issuer  string
	log     *slog.Logger
	cache   *otter.Cache[[sha256.Size]byte, *knownKey]
	flights singleflight.Group

	mu   sync.Mutex
	used map[string]time.Time // keys whose last use is to be noted
}

// knownKey is a key that was found good.
type knownKey struct {
	id         string
	principal  Principal
	generation int64 // of the app, when the key was read
	until      time.Time
	noted      atomic.Int64 // second of the last use that was or is to be noted
}

// NewAPIKeys returns the keys of apps. Their principals are vouched for by the built-in issuer.
func NewAPIKeys(apps *tenancy.Service, i *Issuer) *APIKeys {
	return &APIKeys{
		apps: apps, lookUp: apps.APIKey, issuer: i.name, log: i.log, used: map[string]time.Time{},
		cache: otter.Must(&otter.Options[[sha256.Size]byte, *knownKey]{MaximumSize: maxCached}),
	}
}

// Create makes a key of app and returns its text, which is known to nobody afterwards. A spec that asks for
// something that does not exist is an [agentsvc.InvalidError].
func (k *APIKeys) Create(ctx context.Context, actor string, app *tenancy.App, spec KeySpec) (text string, kept tenancy.APIKey, of tenancy.App, err error) {
	if len(spec.Roles) == 0 {
		spec.Roles = []string{RoleCaller}
	}
	if err = spec.check(); err != nil {
		return "", kept, of, err
	}
	if err = checkRoles(app, spec.Roles); err != nil {
		return "", kept, of, err
	}
	if spec.Scope, err = checkScope(spec.Scope); err != nil {
		return "", kept, of, err
	}
	for word := range strings.FieldsSeq(spec.Scope) {
		if agent, _ := Scope(word).split(); agent != every {
			if err = app.CheckAgent("scope", agent); err != nil {
				return "", kept, of, err
			}
		}
	}
	id := random(keyIDLength)
	text = keyText(app.Name, id)
	kept, of, err = k.apps.CreateAPIKey(ctx, actor, app.Name, tenancy.APIKey{
		ID: id, Name: spec.Name, Hash: keyHash(text), Roles: spec.Roles, Scope: spec.Scope, ExpiresAt: spec.Expires,
	})
	return text, kept, of, err
}

func (s KeySpec) check() error {
	switch n := utf8.RuneCountInString(s.Name); {
	case n == 0 || n > maxKeyName || !validSubject(s.Name):
		return agentsvc.Invalid("name", "must be 1 to %d printable characters", maxKeyName)
	case !s.Expires.IsZero() && !s.Expires.After(time.Now()):
		return agentsvc.Invalid("expires_at", "must lie in the future")
	}
	return nil
}

// Rotate gives the key of that id another text and returns it. The one before is good for overlap more.
func (k *APIKeys) Rotate(ctx context.Context, actor, app, id string, overlap time.Duration) (text string, kept tenancy.APIKey, of tenancy.App, err error) {
	if overlap < 0 || overlap > maxOverlap {
		return "", kept, of, agentsvc.Invalid("overlap", "must be between 0s and %dh (30 days)", int(maxOverlap.Hours()))
	}
	text = keyText(app, id)
	kept, of, err = k.apps.RotateAPIKey(ctx, actor, app, id, keyHash(text), overlap)
	return text, kept, of, err
}

// KeyPrefix returns how the key of that id begins, by which people know it.
func KeyPrefix(app, id string) string { return "stoa_" + app + "_" + id }

func keyText(app, id string) string { return KeyPrefix(app, id) + random(keySecretLength) }

// random returns n letters and digits, five bits each.
func random(n int) string { return strings.ToLower(rand.Text()[:n]) }

func keyHash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// Check returns whom the key speaks for. Whatever is wrong with it is an [ErrUnauthenticated]; any other error says that
// it could not be found out. generation is that of the key's app as the caller knows it, 0 for not at all: what was
// read of the key before that is read again.
func (k *APIKeys) Check(ctx context.Context, text string, generation int64) (Principal, error) {
	m := keyForm.FindStringSubmatch(text)
	if m == nil {
		return Principal{}, refuse("not of the form of an API key")
	}
	hash := sha256.Sum256([]byte(text))
	now := time.Now()
	known, ok := k.cache.GetIfPresent(hash)
	if !ok || !now.Before(known.until) || known.generation < generation {
		var err error
		if known, err = k.find(ctx, m[1], hash, generation, known); err != nil {
			return Principal{}, err
		}
	}
	if generation > 0 {
		k.use(known, now)
	}
	return known.principal, nil
}

// find reads the key of that id, once however many wait for it who know the same generation of its app: a look that began
// before the app was known to have changed may have read what was there before. before is what was known of the key, nil if
// nothing was.
func (k *APIKeys) find(ctx context.Context, id string, hash [sha256.Size]byte, generation int64, before *knownKey) (*knownKey, error) {
	looking := k.flights.DoChan(fmt.Sprintf("%s %d", hash, generation), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keyLookup)
		defer cancel()
		kept, of, err := k.lookUp(ctx, id)
		if err == nil {
			var known *knownKey
			if known, err = k.know(kept, of, hash); err == nil {
				if before != nil {
					known.noted.Store(before.noted.Load())
				}
				k.cache.Set(hash, known)
				return known, nil
			}
		}
		k.cache.Invalidate(hash)
		if errors.Is(err, tenancy.ErrNotFound) {
			err = refuse("an API key that is not there")
		}
		return (*knownKey)(nil), err
	})
	select {
	case got := <-looking:
		return got.Val.(*knownKey), got.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// know returns what is remembered of a key whose hash is hash, if kept is that key and it is still good.
func (k *APIKeys) know(kept tenancy.APIKey, of tenancy.KeyHolder, hash [sha256.Size]byte) (*knownKey, error) {
	now := time.Now()
	expires := kept.ExpiresAt
	current := subtle.ConstantTimeCompare(kept.Hash, hash[:]) == 1
	former := subtle.ConstantTimeCompare(kept.Former, hash[:]) == 1
	switch {
	case current:
	case former && now.Before(kept.FormerUntil):
		if expires.IsZero() || kept.FormerUntil.Before(expires) {
			expires = kept.FormerUntil
		}
	case former:
		return nil, refuse("an API key from before its rotation")
	default:
		return nil, refuse("an API key that is not there")
	}
	if !expires.IsZero() && !now.Before(expires) {
		return nil, refuse("an API key that has expired")
	}
	until := now.Add(keyTrust)
	if !expires.IsZero() && expires.Before(until) {
		until = expires
	}
	return &knownKey{id: kept.ID, generation: of.Generation, until: until, principal: Principal{
		App: of.App, AppName: of.Name, Issuer: k.issuer, Subject: SubjectOfKey + kept.ID,
		Roles: kept.Roles, Scopes: narrowing(kept.Scope), Issued: kept.CreatedAt, Expires: expires,
	}}, nil
}

// use has the use of a key noted, once a minute at most.
func (k *APIKeys) use(known *knownKey, now time.Time) {
	last := known.noted.Load()
	if now.Unix()-last < 60 || !known.noted.CompareAndSwap(last, now.Unix()) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used[known.id] = now
}

// Run notes when keys were used until ctx ends, and a last time then.
func (k *APIKeys) Run(ctx context.Context) error {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.note(ctx)
		case <-ctx.Done():
			k.note(ctx)
			return ctx.Err()
		}
	}
}

// note writes down which keys were used. What cannot be written is lost: the next use comes.
func (k *APIKeys) note(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = map[string]time.Time{}
	k.mu.Unlock()
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := k.apps.APIKeysUsed(ctx, used); err != nil {
		k.log.WarnContext(ctx, "when API keys were used could not be noted", "keys", len(used), "error", err)
	}
}
