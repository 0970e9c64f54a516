package authz

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
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	minFetchInterval = 30 * time.Second // between two fetches, however many unknown keys are asked for
	fetchTimeout     = 10 * time.Second // how long a fetch may take
	maxOutage        = time.Hour        // how long after they were due to be fetched again keys are still believed
	maxJWKSBytes     = 1 << 20          // bytes of an issuer's answer
	maxKeysPerIssuer = 100              // of an issuer
)

// ErrKeysUnavailable says that the keys of an issuer cannot be had at present, so that its tokens are neither good nor bad.
var ErrKeysUnavailable = errors.New("the keys of the token's issuer cannot be had at present")

// RemoteKeySetOptions complete a [RemoteKeySet]. HTTP is required.
type RemoteKeySetOptions struct {
	HTTP      *http.Client  // the way to the issuer
	Refresh   time.Duration // how old keys may become; at least 30 seconds
	JWKSCache *JWKSCache    // what the processes of a database have fetched last, for one that starts in an outage; nil = nothing
	Log       *slog.Logger
}

// RemoteKeySet is the key set of an issuer elsewhere, as it lies at its JWKS address (RFC 7517). It is fetched when a
// token needs it and is not older than Refresh, by one request at a time and at most one in 30 seconds. While the
// issuer does not answer, the keys that are known serve on for an hour, those that are kept included. It is safe for
// concurrent use.
type RemoteKeySet struct {
	url         string
	options     RemoteKeySetOptions
	snapshot    atomic.Pointer[remoteSnapshot]
	fetchCtx    context.Context // of fetches; ends with Close
	cancelFetch context.CancelFunc
	fetches     sync.WaitGroup

	mu         sync.Mutex
	fetchDone  chan struct{} // closed when the fetch under way is over; nil = none is
	fetchBegan time.Time     // of the last fetch
	fetchErr   error         // of the last fetch
}

// remoteSnapshot is an issuer's keys as they were last seen.
type remoteSnapshot struct {
	generation uint64
	hash       [sha256.Size]byte
	keys       map[string]jose.JSONWebKey // "" is the one key of an issuer that has no more
	fetchedAt  time.Time
}

// NewRemoteKeySet returns the key set that lies at url. It fetches nothing yet. Close it when done.
func NewRemoteKeySet(url string, o RemoteKeySetOptions) *RemoteKeySet {
	o.Refresh = max(o.Refresh, minFetchInterval)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &RemoteKeySet{url: url, options: o}
	r.fetchCtx, r.cancelFetch = context.WithCancel(context.Background())
	r.snapshot.Store(&remoteSnapshot{})
	return r
}

// Close ends a fetch under way.
func (r *RemoteKeySet) Close() {
	r.mu.Lock()
	r.cancelFetch()
	r.mu.Unlock()
	r.fetches.Wait()
}

// Generation changes whenever a fetch finds other keys than the one before.
func (r *RemoteKeySet) Generation() uint64 { return r.snapshot.Load().generation }

// EnsureFetched has the keys fetched unless they are there, and returns why they are not.
func (r *RemoteKeySet) EnsureFetched(ctx context.Context) error {
	if r.snapshot.Load().isUsable(r.options.Refresh) {
		return nil
	}
	err := r.waitForFetch(ctx)
	if errors.Is(err, ErrKeysUnavailable) && r.snapshot.Load().isUsable(r.options.Refresh) { // those that were kept
		return nil
	}
	return err
}

// FindKey returns the key that kid names. The name "" stands for the only key of an issuer that has one.
func (r *RemoteKeySet) FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	snapshot := r.snapshot.Load()
	if snapshot.isUsable(r.options.Refresh) {
		if time.Since(snapshot.fetchedAt) >= r.options.Refresh {
			r.startFetch() // nobody waits for it
		}
		if key, ok := snapshot.keys[kid]; ok {
			return key, nil
		}
	}
	err := r.waitForFetch(ctx)
	if snapshot = r.snapshot.Load(); err == nil || errors.Is(err, ErrKeysUnavailable) && snapshot.isUsable(r.options.Refresh) {
		if key, ok := snapshot.keys[kid]; ok {
			return key, nil
		}
	}
	return jose.JSONWebKey{}, cmp.Or(err, ErrUnknownKey)
}

// isUsable reports whether the keys may still be believed.
func (s *remoteSnapshot) isUsable(refresh time.Duration) bool {
	return s.keys != nil && time.Since(s.fetchedAt) < refresh+maxOutage
}

// waitForFetch waits for the fetch that is under way or due, and returns what came of the last one.
func (r *RemoteKeySet) waitForFetch(ctx context.Context) error {
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

// startFetch begins a fetch if it is due, and returns what closes when the one under way is over, nil where none is.
func (r *RemoteKeySet) startFetch() (done <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fetchDone != nil || !r.fetchBegan.IsZero() && time.Since(r.fetchBegan) < minFetchInterval || r.fetchCtx.Err() != nil {
		return r.fetchDone
	}
	r.fetchDone, r.fetchBegan = make(chan struct{}), time.Now()
	r.fetches.Go(r.runFetch)
	return r.fetchDone
}

// runFetch fetches the keys and puts them in place. After a failure the known ones stay.
func (r *RemoteKeySet) runFetch() {
	ctx, cancel := context.WithTimeout(r.fetchCtx, fetchTimeout)
	defer cancel()
	body, err := r.downloadJWKS(ctx)
	if err == nil {
		err = r.setJWKS(body, 0)
	}
	if err == nil {
		r.saveJWKS(body)
	} else {
		r.restoreJWKS()
		if r.fetchCtx.Err() == nil {
			r.options.Log.Warn("the keys of an issuer could not be fetched, the known ones stay", "url", r.url, "error", err)
		}
		err = fmt.Errorf("%w: fetch %s: %w", ErrKeysUnavailable, r.url, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetchErr = err
	close(r.fetchDone)
	r.fetchDone = nil
}

func (r *RemoteKeySet) downloadJWKS(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := r.options.HTTP.Do(req)
	if err != nil {
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

// saveJWKS has the keys in body kept.
func (r *RemoteKeySet) saveJWKS(body []byte) {
	ctx, cancel := context.WithTimeout(r.fetchCtx, jwksCacheTimeout)
	defer cancel()
	if err := r.options.JWKSCache.saveJWKS(ctx, r.url, body); err != nil && r.fetchCtx.Err() == nil {
		r.options.Log.Warn("the keys of an issuer could not be kept: a process that starts while it does not answer is without them", "url", r.url, "error", err)
	}
}

// restoreJWKS makes those kept the known ones where none are known that may still be believed.
func (r *RemoteKeySet) restoreJWKS() {
	if r.snapshot.Load().isUsable(r.options.Refresh) {
		return
	}
	ctx, cancel := context.WithTimeout(r.fetchCtx, jwksCacheTimeout)
	defer cancel()
	body, age, err := r.options.JWKSCache.loadJWKS(ctx, r.url)
	if err == nil && body != nil && age < r.options.Refresh+maxOutage {
		err = r.setJWKS(body, age)
	}
	if err != nil && r.fetchCtx.Err() == nil {
		r.options.Log.Warn("the keys of an issuer that are kept could not be read", "url", r.url, "error", err)
	}
}

// setJWKS makes the keys in body, which were fetched so long ago, the known ones.
func (r *RemoteKeySet) setJWKS(body []byte, age time.Duration) error {
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

// parseJWKS returns those keys of a set that sign tokens. What is of another kind is passed over: issuers have keys for
// other ends as well.
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
		if _, err := keyAlgorithm(key); err != nil {
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
