package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
)

// jwksServer is an issuer's JWKS address as an http.RoundTripper.
type jwksServer struct {
	mu      sync.Mutex
	status  int // 0 = the connection fails
	body    string
	fetches []time.Time
	block   chan struct{} // responses wait for it; may be nil
}

// RoundTrip implements [http.RoundTripper].
func (s *jwksServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.fetches = append(s.fetches, time.Now())
	status, body, block := s.status, s.body, s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}, Request: r}, nil
}

func (s *jwksServer) setResponse(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

func (s *jwksServer) fetchCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.fetches)
}

func encodeJWKS(keys ...jose.JSONWebKey) string {
	all := make([]json.RawMessage, len(keys))
	for i, k := range keys {
		all[i] = encodeJSON(k)
	}
	return string(encodeJSON(jsonObject{"keys": all}))
}

func newEd25519Key(kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: testKeys().ed.Public(), KeyID: kid, Use: "sig"}
}

// serveRemoteKeys returns the keys of an issuer that answers 200 with body.
func serveRemoteKeys(t *testing.T, body string) (*RemoteKeySet, *jwksServer) {
	t.Helper()
	s := &jwksServer{status: http.StatusOK, body: body}
	r := NewRemoteKeySet("https://issuer.example/jwks", RemoteKeySetOptions{
		HTTP: &http.Client{Transport: s}, Refresh: 15 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(r.Close)
	return r, s
}

func wantKey(t *testing.T, r *RemoteKeySet, kid string, want error) {
	t.Helper()
	if _, err := r.FindKey(t.Context(), kid); !errors.Is(err, want) {
		t.Errorf("the key %q: %v, want %v", kid, err, want)
	}
}

// TestUnknownKeyFlood asks for keys that do not exist for ten minutes: there is one fetch in 30 seconds.
func TestUnknownKeyFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, encodeJWKS(newEd25519Key("a")))
		wantKey(t, r, "a", nil)
		begin := time.Now()
		for i := range 10_000 {
			wantKey(t, r, fmt.Sprint("unknown-", i), ErrUnknownKey)
			if i%100 == 0 {
				wantKey(t, r, "a", nil)
			}
			time.Sleep(60 * time.Millisecond)
		}
		for i := 1; i < len(s.fetches); i++ {
			if gap := s.fetches[i].Sub(s.fetches[i-1]); gap < minFetchInterval {
				t.Fatalf("two fetches within %v", gap)
			}
		}
		if most := int(time.Since(begin)/minFetchInterval) + 1; s.fetchCount() > most || s.fetchCount() < most-1 {
			t.Errorf("%d fetches in ten minutes, want about %d", s.fetchCount(), most)
		}
	})
}

// TestOneFetch lets many callers wait for one fetch, and one of them give up.
func TestOneFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, encodeJWKS(newEd25519Key("a")))
		s.block = make(chan struct{})
		impatient, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { wantKey(t, r, "a", nil) })
		}
		wg.Go(func() {
			if _, err := r.FindKey(impatient, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("who left got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		close(s.block)
		wg.Wait()
		if s.fetchCount() != 1 {
			t.Errorf("%d fetches", s.fetchCount())
		}
	})
}

// TestKeyRotation changes the issuer's key: a token with the new key causes a fetch, and the old key is dropped at the
// next refresh.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, encodeJWKS(newEd25519Key("a")))
		wantKey(t, r, "a", nil)
		first := r.Generation()
		time.Sleep(time.Minute)
		s.setResponse(http.StatusOK, encodeJWKS(newEd25519Key("a"), newEd25519Key("b")))
		wantKey(t, r, "b", nil)
		if r.Generation() == first {
			t.Error("the version is the same with another key")
		}
		second := r.Generation()
		s.setResponse(http.StatusOK, encodeJWKS(newEd25519Key("b")))
		wantKey(t, r, "a", nil) // the set is not fetched again yet
		time.Sleep(16 * time.Minute)
		wantKey(t, r, "b", nil) // starts the refresh in the background
		synctest.Wait()
		wantKey(t, r, "a", ErrUnknownKey)
		if r.Generation() == second {
			t.Error("the version is the same without a key")
		}
		third := r.Generation()
		time.Sleep(16 * time.Minute)
		wantKey(t, r, "b", nil)
		synctest.Wait()
		if r.Generation() != third {
			t.Error("the same keys have another version")
		}
	})
}

// TestOutage makes the issuer fail for an hour and more, in every way.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(s *jwksServer){
		"unreachable": func(s *jwksServer) { s.setResponse(0, "") },
		"500":         func(s *jwksServer) { s.setResponse(500, encodeJWKS(newEd25519Key("a"))) },
		"no keys":     func(s *jwksServer) { s.setResponse(200, `{"keys": []}`) },
		"a page":      func(s *jwksServer) { s.setResponse(200, "<html>down for maintenance</html>") },
		"hanging":     func(s *jwksServer) { s.block = make(chan struct{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, s := serveRemoteKeys(t, encodeJWKS(newEd25519Key("a")))
				wantKey(t, r, "a", nil)
				generation := r.Generation()
				fail(s)
				for range 74 { // 15 minutes until a refresh is due, and nearly an hour of outage
					time.Sleep(time.Minute)
					wantKey(t, r, "a", nil)
				}
				synctest.Wait()
				wantKey(t, r, "b", ErrKeysUnavailable) // the issuer may have it by now
				time.Sleep(2 * time.Minute)
				wantKey(t, r, "a", ErrKeysUnavailable)
				for i := 1; i < len(s.fetches); i++ {
					if gap := s.fetches[i].Sub(s.fetches[i-1]); gap < minFetchInterval {
						t.Fatalf("two fetches within %v", gap)
					}
				}
				if r.Generation() != generation {
					t.Error("an outage has changed the version")
				}
				s.mu.Lock()
				s.block = nil
				s.mu.Unlock()
				s.setResponse(200, encodeJWKS(newEd25519Key("a")))
				time.Sleep(time.Minute)
				wantKey(t, r, "a", nil)
			})
		})
	}
}

// TestNeverReached starts with an issuer that does not answer.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, "")
		s.setResponse(0, "")
		if err := r.EnsureFetched(t.Context()); !errors.Is(err, ErrKeysUnavailable) || !strings.Contains(err.Error(), "https://issuer.example/jwks") {
			t.Errorf("%v, want the address and that it does not answer", err)
		}
		wantKey(t, r, "a", ErrKeysUnavailable)
		s.setResponse(200, encodeJWKS(newEd25519Key("a")))
		wantKey(t, r, "a", ErrKeysUnavailable)
		time.Sleep(30 * time.Second)
		wantKey(t, r, "a", nil)
		if err := r.EnsureFetched(t.Context()); err != nil || s.fetchCount() != 2 {
			t.Errorf("%v after %d fetches", err, s.fetchCount())
		}
	})
}

// TestReadKeys parses key sets as issuers publish them.
func TestReadKeys(t *testing.T) {
	t.Parallel()
	k := testKeys()
	rsaKey := jose.JSONWebKey{Key: k.rsa.Public(), KeyID: "rsa", Algorithm: "RS256"}
	many := make([]jose.JSONWebKey, maxKeysPerIssuer+1)
	for i := range many {
		many[i] = newEd25519Key(fmt.Sprint(i))
	}
	for _, tt := range []struct {
		name, body string
		want       []string // key ids
		wrong      string
	}{
		{"one", encodeJWKS(newEd25519Key("a")), []string{"", "a"}, ""},
		{"one without a name", encodeJWKS(newEd25519Key("")), []string{""}, ""},
		{"two", encodeJWKS(newEd25519Key("a"), rsaKey), []string{"a", "rsa"}, ""},
		{"two of one name: the first", encodeJWKS(newEd25519Key("a"), jose.JSONWebKey{Key: k.otherEd.Public(), KeyID: "a"}), []string{"a"}, ""},
		{"keys for other ends", encodeJWKS(newEd25519Key("a"), jose.JSONWebKey{Key: k.rsa.Public(), KeyID: "enc", Use: "enc"}, jose.JSONWebKey{Key: k.rsa.Public(), KeyID: "alg", Algorithm: "RSA-OAEP"}), []string{"", "a"}, ""},
		{"weak and strange ones", encodeJWKS(newEd25519Key("a"), jose.JSONWebKey{Key: k.shortRSA.Public(), KeyID: "short"}, jose.JSONWebKey{Key: k.longEC.Public(), KeyID: "long"}), []string{"", "a"}, ""},
		{"a secret and a private one", encodeJWKS(newEd25519Key("a"), jose.JSONWebKey{Key: []byte("shared secret of 32 bytes, really"), KeyID: "oct"}, jose.JSONWebKey{Key: k.otherEd, KeyID: "private"}), []string{"", "a"}, ""},
		{"one that cannot be read", `{"keys": [{"kty": "AKP", "kid": "pq"}, 7, ` + string(encodeJSON(newEd25519Key("a"))) + `]}`, []string{"", "a"}, ""},
		{"none", `{"keys": []}`, nil, "no key that signs"},
		{"no set", `[]`, nil, "not a set of keys"},
		{"nothing", ``, nil, "not a set of keys"},
		{"too many", encodeJWKS(many...), nil, "more than 100 keys"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			keys, err := parseJWKS([]byte(tt.body))
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v, want %q", err, tt.wrong)
				}
				return
			}
			var got []string
			for kid := range keys {
				got = append(got, kid)
			}
			if diff := cmp.Diff(tt.want, sortStrings(got)); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	r, s := serveRemoteKeys(t, "")
	s.setResponse(200, encodeJWKS(newEd25519Key("a"))+strings.Repeat(" ", maxJWKSBytes))
	if err := r.EnsureFetched(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless answer: %v", err)
	}
}
