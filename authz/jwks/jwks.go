// Package jwks has the public keys that token issuers publish as JSON Web Key Sets (RFC 7517). A [RemoteSet] fetches
// them from the issuer's address; a [Cache] keeps them in the database for processes that start while the issuer does
// not answer.
package jwks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc"

	"github.com/go-jose/go-jose/v4"
)

const (
	// minFetchInterval is the least time between two fetches, so that tokens with invented key ids cannot cause more.
	minFetchInterval = 30 * time.Second
	// fetchTimeout bounds one fetch.
	fetchTimeout = 10 * time.Second
	// maxOutage is how long keys remain in use after their next fetch was due, while the issuer does not answer.
	maxOutage = time.Hour
	// maxJWKSBytes bounds the issuer's response, in bytes.
	maxJWKSBytes = 1 << 20
	// maxKeysPerIssuer bounds the keys of a set.
	maxKeysPerIssuer = 100
)

// ErrUnavailable reports that the keys of an issuer cannot be fetched at present, so that its tokens can be neither
// accepted nor refused.
var ErrUnavailable = agentsvc.NewError(agentsvc.CodeUnavailable, "the keys of the token's issuer are not available at present")

// Options configure a [RemoteSet]. HTTP is required.
type Options struct {
	// HTTP fetches the keys; it enforces the rules for outgoing connections.
	HTTP *http.Client
	// Refresh is the age at which keys are fetched again; at least 30 seconds.
	Refresh time.Duration
	// Cache supplies keys if the first fetch fails; nil means none.
	Cache *Cache
	Log   *slog.Logger
}

// RemoteSet is the key set that an issuer publishes at its JWKS address (RFC 7517). It is fetched when a token needs
// it and it is older than Refresh, one request at a time and at most once in 30 seconds. While the issuer does not
// answer, the known keys, or those of the Cache, remain in use for maxOutage. It is safe for concurrent use.
type RemoteSet struct {
	url     string
	logURL  string // url without its query, which may hold a credential
	options Options
	// snapshot is replaced as a whole by the fetching goroutine.
	snapshot atomic.Pointer[remoteSnapshot]
	// fetchCtx is the context of fetches; Close cancels it.
	fetchCtx    context.Context
	cancelFetch context.CancelFunc
	fetches     sync.WaitGroup

	// mu guards the fields below.
	mu sync.Mutex
	// fetchDone is closed when the fetch under way ends; nil if there is none.
	fetchDone chan struct{}
	// fetchBegan and fetchErr are the start and the result of the last fetch.
	fetchBegan time.Time
	fetchErr   error
}

// remoteSnapshot is an issuer's key set as fetched at fetchedAt. It is immutable.
type remoteSnapshot struct {
	generation uint64
	hash       [sha256.Size]byte
	// keys maps a key id to the key; "" maps to the only key of an issuer that has just one. nil before the first
	// fetch.
	keys      map[string]jose.JSONWebKey
	fetchedAt time.Time
}

// NewRemoteSet returns the key set at url without fetching it. Call Close when done.
func NewRemoteSet(address string, o Options) *RemoteSet {
	o.Refresh = max(o.Refresh, minFetchInterval)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &RemoteSet{url: address, options: o}
	r.logURL, _, _ = strings.Cut(address, "?")
	r.fetchCtx, r.cancelFetch = context.WithCancel(context.Background())
	r.snapshot.Store(&remoteSnapshot{})
	return r
}

// Close cancels a fetch under way and waits for it.
func (r *RemoteSet) Close() {
	r.mu.Lock()
	r.cancelFetch()
	r.mu.Unlock()
	r.fetches.Wait()
}

// Generation implements authz.KeySet: it changes when a fetch returns a different document.
func (r *RemoteSet) Generation() uint64 { return r.snapshot.Load().generation }

// EnsureFetched fetches the keys unless usable ones are present, and returns an error if there are none afterwards.
func (r *RemoteSet) EnsureFetched(ctx context.Context) error {
	if r.snapshot.Load().isUsable(r.options.Refresh) {
		return nil
	}
	err := r.waitForFetch(ctx)
	if errors.Is(err, ErrUnavailable) && r.snapshot.Load().isUsable(r.options.Refresh) { // keys from the Cache
		return nil
	}
	return err
}

// FindKey implements authz.KeySet. A known key is returned at once; if the set is older than Refresh a fetch is started
// that no caller waits for. An unknown kid waits for a fetch, since the issuer may have a new key. "" stands for the
// key of an issuer that has only one.
func (r *RemoteSet) FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	snapshot := r.snapshot.Load()
	if snapshot.isUsable(r.options.Refresh) {
		if time.Since(snapshot.fetchedAt) >= r.options.Refresh {
			r.startFetch() // in the background
		}
		if key, ok := snapshot.keys[kid]; ok {
			return key, nil
		}
	}
	err := r.waitForFetch(ctx)
	if snapshot = r.snapshot.Load(); err == nil || errors.Is(err, ErrUnavailable) && snapshot.isUsable(r.options.Refresh) {
		if key, ok := snapshot.keys[kid]; ok {
			return key, nil
		}
	}
	return jose.JSONWebKey{}, cmp.Or(err, ErrUnknownKey)
}

// isUsable reports whether the keys may be used at their age.
func (s *remoteSnapshot) isUsable(refresh time.Duration) bool {
	return s.keys != nil && time.Since(s.fetchedAt) < refresh+maxOutage
}

// waitForFetch waits for the fetch that is under way or due, if any, and returns the result of the last one.
func (r *RemoteSet) waitForFetch(ctx context.Context) error {
	if done := r.startFetch(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetchErr
}

// startFetch starts a fetch if one is due. It returns a channel that is closed when the fetch under way ends, nil if
// there is none.
func (r *RemoteSet) startFetch() (done <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fetchDone != nil || !r.fetchBegan.IsZero() && time.Since(r.fetchBegan) < minFetchInterval || r.fetchCtx.Err() != nil {
		return r.fetchDone
	}
	r.fetchDone, r.fetchBegan = make(chan struct{}), time.Now()
	r.fetches.Go(r.runFetch)
	return r.fetchDone
}

// runFetch fetches the keys and replaces the snapshot. After a failure the known keys stay; if none are usable, those
// of the Cache are loaded.
func (r *RemoteSet) runFetch() {
	ctx, cancel := context.WithTimeout(r.fetchCtx, fetchTimeout)
	defer cancel()
	body, err := r.downloadJWKS(ctx)
	if err == nil {
		err = r.setJWKS(body, 0)
	}
	if err == nil {
		r.saveJWKS()
	} else {
		r.restoreJWKS()
		if r.fetchCtx.Err() == nil {
			r.options.Log.Warn("the keys of an issuer could not be fetched, the known ones stay in use", "url", r.logURL, "error", err)
		}
		err = fmt.Errorf("%w: fetch %s: %w", ErrUnavailable, r.logURL, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetchErr = err
	close(r.fetchDone)
	r.fetchDone = nil
}

// downloadJWKS returns the document at the JWKS address.
func (r *RemoteSet) downloadJWKS(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := r.options.HTTP.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) { // its text repeats the whole URL
			err = failed.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxJWKSBytes+1))
	if err == nil && len(body) > maxJWKSBytes {
		err = fmt.Errorf("the answer is longer than %d bytes", maxJWKSBytes)
	}
	return body, err
}

// saveJWKS stores the snapshot's keys in the Cache. A failure is only logged.
func (r *RemoteSet) saveJWKS() {
	ctx, cancel := context.WithTimeout(r.fetchCtx, cacheTimeout)
	defer cancel()
	set, err := encodeKeys(r.snapshot.Load().keys)
	if err == nil {
		err = r.options.Cache.save(ctx, r.url, set)
	}
	if err != nil && r.fetchCtx.Err() == nil {
		r.options.Log.Warn("the keys of an issuer could not be stored: a process that starts while it does not answer has none", "url", r.logURL, "error", err)
	}
}

// encodeKeys returns the public parts of keys as a JSON Web Key Set. Other members of the issuer's document, which may
// contain anything, are not stored.
func encodeKeys(keys map[string]jose.JSONWebKey) ([]byte, error) {
	set := jose.JSONWebKeySet{}
	for id, key := range keys {
		if id == key.KeyID { // skips the second entry, under "", of a set with one key
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Algorithm: key.Algorithm, Use: key.Use})
		}
	}
	return json.Marshal(set)
}

// restoreJWKS loads the keys from the Cache if no usable keys are known.
func (r *RemoteSet) restoreJWKS() {
	if r.snapshot.Load().isUsable(r.options.Refresh) {
		return
	}
	ctx, cancel := context.WithTimeout(r.fetchCtx, cacheTimeout)
	defer cancel()
	body, age, err := r.options.Cache.load(ctx, r.url)
	if err == nil && body != nil && age < r.options.Refresh+maxOutage {
		err = r.setJWKS(body, age)
	}
	if err != nil && r.fetchCtx.Err() == nil {
		r.options.Log.Warn("the stored keys of an issuer could not be read", "url", r.logURL, "error", err)
	}
}

// setJWKS makes the keys in body, fetched age ago, the snapshot. The generation grows if the document differs.
func (r *RemoteSet) setJWKS(body []byte, age time.Duration) error {
	keys, err := parseJWKS(body)
	if err != nil {
		return err
	}
	old := r.snapshot.Load()
	next := &remoteSnapshot{generation: old.generation, hash: sha256.Sum256(body), keys: keys, fetchedAt: time.Now().Add(-age)}
	if old.keys == nil || next.hash != old.hash {
		next.generation++
	}
	r.snapshot.Store(next)
	return nil
}

// parseJWKS returns the keys of a set that can sign tokens, by their id. Other keys are skipped, since an issuer may
// publish keys for other purposes. Of several keys with one id the first is used.
func parseJWKS(body []byte) (map[string]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the answer is not a set of keys")
	}
	if len(set.Keys) > maxKeysPerIssuer {
		return nil, fmt.Errorf("the set has more than %d keys", maxKeysPerIssuer)
	}
	keys := map[string]jose.JSONWebKey{}
	var last jose.JSONWebKey
	n := 0
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if _, err := Algorithm(key); err != nil {
			continue
		}
		if _, twice := keys[key.KeyID]; !twice && key.KeyID != "" {
			keys[key.KeyID] = key
		}
		last = key
		n++
	}
	switch n {
	case 0:
		return nil, errors.New("the set has no key that signs tokens (EdDSA, ES256 or RS256 with 2048 bits or more)")
	case 1:
		keys[""] = last
	}
	return keys, nil
}
