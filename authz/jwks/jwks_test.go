package jwks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/google/go-cmp/cmp"

	"stoa/authz/jwks/jwkstest"
)

// serveRemoteKeys returns the keys of an issuer that answers 200 with body.
func serveRemoteKeys(t *testing.T, body string) (*RemoteSet, *jwkstest.Server) {
	t.Helper()
	s := jwkstest.NewServer(http.StatusOK, body)
	r := NewRemoteSet("https://issuer.example/jwks", Options{
		HTTP: &http.Client{Transport: s}, Refresh: 15 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(r.Close)
	return r, s
}

func wantKey(t *testing.T, r *RemoteSet, kid string, want error) {
	t.Helper()
	if _, err := r.FindKey(t.Context(), kid); !errors.Is(err, want) {
		t.Errorf("the key %q: %v, want %v", kid, err, want)
	}
}

// TestUnknownKeyFlood asks for keys that do not exist for ten minutes: there is one fetch in 30 seconds.
func TestUnknownKeyFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, jwkstest.EncodeSet(jwkstest.NewPublicKey("a")))
		wantKey(t, r, "a", nil)
		begin := time.Now()
		for i := range 10_000 {
			wantKey(t, r, fmt.Sprint("unknown-", i), ErrUnknownKey)
			if i%100 == 0 {
				wantKey(t, r, "a", nil)
			}
			time.Sleep(60 * time.Millisecond)
		}
		for i := 1; i < len(s.Fetches()); i++ {
			if gap := s.Fetches()[i].Sub(s.Fetches()[i-1]); gap < minFetchInterval {
				t.Fatalf("two fetches within %v", gap)
			}
		}
		if most := int(time.Since(begin)/minFetchInterval) + 1; len(s.Fetches()) > most || len(s.Fetches()) < most-1 {
			t.Errorf("%d fetches in ten minutes, want about %d", len(s.Fetches()), most)
		}
	})
}

// TestOneFetch lets many callers wait for one fetch, and one of them give up.
func TestOneFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, jwkstest.EncodeSet(jwkstest.NewPublicKey("a")))
		block := make(chan struct{})
		s.SetBlock(block)
		impatient, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { wantKey(t, r, "a", nil) })
		}
		wg.Go(func() {
			if _, err := r.FindKey(impatient, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("who left was told %v", err)
			}
		})
		synctest.Wait()
		cancel()
		close(block)
		wg.Wait()
		if len(s.Fetches()) != 1 {
			t.Errorf("%d fetches", len(s.Fetches()))
		}
	})
}

// TestKeyRotation changes the issuer's key: a token with the new key causes a fetch, and the old key is dropped at the
// next refresh.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := serveRemoteKeys(t, jwkstest.EncodeSet(jwkstest.NewPublicKey("a")))
		wantKey(t, r, "a", nil)
		first := r.Generation()
		time.Sleep(time.Minute)
		s.SetResponse(http.StatusOK, jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), jwkstest.NewPublicKey("b")))
		wantKey(t, r, "b", nil)
		if r.Generation() == first {
			t.Error("the version is the same with another key")
		}
		second := r.Generation()
		s.SetResponse(http.StatusOK, jwkstest.EncodeSet(jwkstest.NewPublicKey("b")))
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
	for name, fail := range map[string]func(s *jwkstest.Server){
		"unreachable": func(s *jwkstest.Server) { s.SetResponse(0, "") },
		"500":         func(s *jwkstest.Server) { s.SetResponse(500, jwkstest.EncodeSet(jwkstest.NewPublicKey("a"))) },
		"no keys":     func(s *jwkstest.Server) { s.SetResponse(200, `{"keys": []}`) },
		"a page":      func(s *jwkstest.Server) { s.SetResponse(200, "<html>down for maintenance</html>") },
		"hanging":     func(s *jwkstest.Server) { s.SetBlock(make(chan struct{})) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, s := serveRemoteKeys(t, jwkstest.EncodeSet(jwkstest.NewPublicKey("a")))
				wantKey(t, r, "a", nil)
				generation := r.Generation()
				fail(s)
				for range 74 { // 15 minutes until a refresh is due, and nearly an hour of outage
					time.Sleep(time.Minute)
					wantKey(t, r, "a", nil)
				}
				synctest.Wait()
				wantKey(t, r, "b", ErrUnavailable) // the issuer may have it by now
				time.Sleep(2 * time.Minute)
				wantKey(t, r, "a", ErrUnavailable)
				for i := 1; i < len(s.Fetches()); i++ {
					if gap := s.Fetches()[i].Sub(s.Fetches()[i-1]); gap < minFetchInterval {
						t.Fatalf("two fetches within %v", gap)
					}
				}
				if r.Generation() != generation {
					t.Error("an outage has changed the version")
				}
				s.SetBlock(nil)
				s.SetResponse(200, jwkstest.EncodeSet(jwkstest.NewPublicKey("a")))
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
		s.SetResponse(0, "")
		if err := r.EnsureFetched(t.Context()); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "https://issuer.example/jwks") {
			t.Errorf("%v, want the address and that it does not answer", err)
		}
		wantKey(t, r, "a", ErrUnavailable)
		s.SetResponse(200, jwkstest.EncodeSet(jwkstest.NewPublicKey("a")))
		wantKey(t, r, "a", ErrUnavailable)
		time.Sleep(30 * time.Second)
		wantKey(t, r, "a", nil)
		if err := r.EnsureFetched(t.Context()); err != nil || len(s.Fetches()) != 2 {
			t.Errorf("%v after %d fetches", err, len(s.Fetches()))
		}
	})
}

// TestReadKeys parses key sets as issuers publish them.
func TestReadKeys(t *testing.T) {
	t.Parallel()
	k := jwkstest.Keys()
	rsaKey := jose.JSONWebKey{Key: k.RSA.Public(), KeyID: "rsa", Algorithm: "RS256"}
	many := make([]jose.JSONWebKey, maxKeysPerIssuer+1)
	for i := range many {
		many[i] = jwkstest.NewPublicKey(fmt.Sprint(i))
	}
	for _, tt := range []struct {
		name, body string
		want       []string // key ids
		wrong      string
	}{
		{"one", jwkstest.EncodeSet(jwkstest.NewPublicKey("a")), []string{"", "a"}, ""},
		{"one without a name", jwkstest.EncodeSet(jwkstest.NewPublicKey("")), []string{""}, ""},
		{"two", jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), rsaKey), []string{"a", "rsa"}, ""},
		{"two of one name: the first", jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), jose.JSONWebKey{Key: k.OtherEd.Public(), KeyID: "a"}), []string{"a"}, ""},
		{"keys for other ends", jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), jose.JSONWebKey{Key: k.RSA.Public(), KeyID: "enc", Use: "enc"}, jose.JSONWebKey{Key: k.RSA.Public(), KeyID: "alg", Algorithm: "RSA-OAEP"}), []string{"", "a"}, ""},
		{"weak and strange ones", jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), jose.JSONWebKey{Key: k.ShortRSA.Public(), KeyID: "short"}, jose.JSONWebKey{Key: k.LongEC.Public(), KeyID: "long"}), []string{"", "a"}, ""},
		{"a secret and a private one", jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), jose.JSONWebKey{Key: []byte("shared secret of 32 bytes, really"), KeyID: "oct"}, jose.JSONWebKey{Key: k.OtherEd, KeyID: "private"}), []string{"", "a"}, ""},
		{"one that cannot be read", `{"keys": [{"kty": "AKP", "kid": "pq"}, 7, ` + encodeKey(t, jwkstest.NewPublicKey("a")) + `]}`, []string{"", "a"}, ""},
		{"none", `{"keys": []}`, nil, "no key that signs"},
		{"no set", `[]`, nil, "not a set of keys"},
		{"nothing", ``, nil, "not a set of keys"},
		{"too many", jwkstest.EncodeSet(many...), nil, "more than 100 keys"},
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
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	r, s := serveRemoteKeys(t, "")
	s.SetResponse(200, jwkstest.EncodeSet(jwkstest.NewPublicKey("a"))+strings.Repeat(" ", maxJWKSBytes))
	if err := r.EnsureFetched(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless answer: %v", err)
	}
}

func encodeKey(t *testing.T, key jose.JSONWebKey) string {
	t.Helper()
	raw, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
