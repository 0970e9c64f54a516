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
	fetchGap   = 30 * time.Second // between two fetches, however many unknown keys are asked for
	fetchLimit = 10 * time.Second // how long a fetch may take
	outage     = time.Hour        // how long after they were due to be fetched again keys are still believed
	maxJWKS    = 1 << 20          // bytes of an issuer's answer
	maxKeys    = 100              // of an issuer
)

// ErrKeys says that the keys of an issuer cannot be had at present, so that its tokens are neither good nor bad.
var ErrKeys = errors.New("the keys of the token's issuer cannot be had at present")

// RemoteOptions complete a [RemoteKeys]. HTTP is required.
type RemoteOptions struct {
	HTTP    *http.Client  // the way to the issuer
	Refresh time.Duration // how old keys may become; at least 30 seconds
	Kept    *KeptKeys     // what the processes of a database have fetched last, for one that starts in an outage; nil = nothing
	Log     *slog.Logger
}

// RemoteKeys is the key set of an issuer elsewhere, as it lies at its JWKS address (RFC 7517). It is fetched when a
// token needs it and is not older than Refresh, by one request at a time and at most one in 30 seconds. While the
// issuer does not answer, the keys that are known serve on for an hour, those that are kept included. It is safe for
// concurrent use.
type RemoteKeys struct {
	url     string
	options RemoteOptions
	held    atomic.Pointer[remoteSet]
	ctx     context.Context // of fetches; ends with Close
	end     context.CancelFunc
	work    sync.WaitGroup

	mu     sync.Mutex
	flight chan struct{} // closed when the fetch under way is over; nil = none is
	began  time.Time     // of the last fetch
	failed error         // of the last fetch
}

// remoteSet is an issuer's keys as they were last seen.
type remoteSet struct {
	version uint64
	hash    [sha256.Size]byte
	keys    map[string]jose.JSONWebKey // "" is the one key of an issuer that has no more
	fetched time.Time
}

// NewRemoteKeys returns the key set that lies at url. It fetches nothing yet. Close it when done.
func NewRemoteKeys(url string, o RemoteOptions) *RemoteKeys {
	o.Refresh = max(o.Refresh, fetchGap)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &RemoteKeys{url: url, options: o}
	r.ctx, r.end = context.WithCancel(context.Background())
	r.held.Store(&remoteSet{})
	return r
}

// Close ends a fetch under way.
func (r *RemoteKeys) Close() {
	r.mu.Lock()
	r.end()
	r.mu.Unlock()
	r.work.Wait()
}

// Version changes whenever a fetch finds other keys than the one before.
func (r *RemoteKeys) Version() uint64 { return r.held.Load().version }

// Fetch has the keys fetched unless they are there, and returns why they are not.
func (r *RemoteKeys) Fetch(ctx context.Context) error {
	if r.held.Load().usable(r.options.Refresh) {
		return nil
	}
	err := r.fetch(ctx)
	if errors.Is(err, ErrKeys) && r.held.Load().usable(r.options.Refresh) { // those that were kept
		return nil
	}
	return err
}

// Key returns the key that kid names. The name "" stands for the only key of an issuer that has one.
func (r *RemoteKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	held := r.held.Load()
	if held.usable(r.options.Refresh) {
		if time.Since(held.fetched) >= r.options.Refresh {
			r.begin() // nobody waits for it
		}
		if key, ok := held.keys[kid]; ok {
			return key, nil
		}
	}
	err := r.fetch(ctx)
	if held = r.held.Load(); err == nil || errors.Is(err, ErrKeys) && held.usable(r.options.Refresh) {
		if key, ok := held.keys[kid]; ok {
			return key, nil
		}
	}
	return jose.JSONWebKey{}, cmp.Or(err, ErrUnknownKey)
}

// usable reports whether the keys may still be believed.
func (s *remoteSet) usable(refresh time.Duration) bool {
	return s.keys != nil && time.Since(s.fetched) < refresh+outage
}

// fetch waits for the fetch that is under way or due, and returns what came of the last one.
func (r *RemoteKeys) fetch(ctx context.Context) error {
	if flight := r.begin(); flight != nil {
		select {
		case <-flight:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// begin begins a fetch if it is due, and returns what closes when the one under way is over, nil where none is.
func (r *RemoteKeys) begin() (flight <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flight != nil || !r.began.IsZero() && time.Since(r.began) < fetchGap || r.ctx.Err() != nil {
		return r.flight
	}
	r.flight, r.began = make(chan struct{}), time.Now()
	r.work.Go(r.look)
	return r.flight
}

// look fetches the keys and puts them in place. After a failure the known ones stay.
func (r *RemoteKeys) look() {
	ctx, cancel := context.WithTimeout(r.ctx, fetchLimit)
	defer cancel()
	body, err := r.get(ctx)
	if err == nil {
		err = r.hold(body, 0)
	}
	if err == nil {
		r.keep(body)
	} else {
		r.recall()
		if r.ctx.Err() == nil {
			r.options.Log.Warn("the keys of an issuer could not be fetched, the known ones stay", "url", r.url, "error", err)
		}
		err = fmt.Errorf("%w: fetch %s: %w", ErrKeys, r.url, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
	close(r.flight)
	r.flight = nil
}

func (r *RemoteKeys) get(ctx context.Context) ([]byte, error) {
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxJWKS+1))
	if err == nil && len(body) > maxJWKS {
		err = fmt.Errorf("the answer is longer than %d bytes", maxJWKS)
	}
	return body, err
}

// keep has the keys in body kept.
func (r *RemoteKeys) keep(body []byte) {
	ctx, cancel := context.WithTimeout(r.ctx, keptLimit)
	defer cancel()
	if err := r.options.Kept.put(ctx, r.url, body); err != nil && r.ctx.Err() == nil {
		r.options.Log.Warn("the keys of an issuer could not be kept: a process that starts while it does not answer is without them", "url", r.url, "error", err)
	}
}

// recall makes those kept the known ones where none are known that may still be believed.
func (r *RemoteKeys) recall() {
	if r.held.Load().usable(r.options.Refresh) {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, keptLimit)
	defer cancel()
	body, age, err := r.options.Kept.get(ctx, r.url)
	if err == nil && body != nil && age < r.options.Refresh+outage {
		err = r.hold(body, age)
	}
	if err != nil && r.ctx.Err() == nil {
		r.options.Log.Warn("the keys of an issuer that are kept could not be read", "url", r.url, "error", err)
	}
}

// hold makes the keys in body, which were fetched so long ago, the known ones.
func (r *RemoteKeys) hold(body []byte, age time.Duration) error {
	keys, err := readKeys(body)
	if err != nil {
		return err
	}
	old := r.held.Load()
	next := &remoteSet{version: old.version, hash: sha256.Sum256(body), keys: keys, fetched: time.Now().Add(-age)}
	if old.keys == nil || next.hash != old.hash {
		next.version++
	}
	r.held.Store(next)
	return nil
}

// readKeys returns those keys of a set that sign tokens. What is of another kind is passed over: issuers have keys for
// other ends as well.
func readKeys(body []byte) (map[string]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the answer is not a set of keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the set has more than %d keys", maxKeys)
	}
	keys := map[string]jose.JSONWebKey{}
	var last jose.JSONWebKey
	n := 0
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if _, err := algorithm(key); err != nil {
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
