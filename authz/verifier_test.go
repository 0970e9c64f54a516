package authz

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/authz/jwks/jwkstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type jsonObject = map[string]any

// TestForgeries presents tokens that differ from a valid one in one respect each. Each is refused for its own reason.
func TestForgeries(t *testing.T) {
	t.Parallel()
	for _, tt := range listForgeries(t, time.Now()) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := NewVerifier(newTestIssuer())
			for range 2 { // a refusal is not cached as a success
				p, err := v.VerifyToken(t.Context(), tt.token)
				if !errors.Is(err, agentsvc.CodeUnauthenticated) {
					t.Fatalf("got %+v and %v, want ErrUnauthenticated", p, err)
				}
				if diff := cmp.Diff(Principal{}, p); diff != "" {
					t.Error(diff)
				}
				if err.Error() != ErrUnauthenticated.Error() {
					t.Errorf("the caller would read %q", err)
				}
				if !strings.Contains(RefusalReason(err), tt.reason) {
					t.Errorf("refused because %q, want %q", RefusalReason(err), tt.reason)
				}
			}
		})
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	k := jwkstest.Keys()
	now := time.Now().Truncate(time.Second)
	good := newValidToken(now)
	want := Principal{
		App: "id-of-acme", AppName: "acme", Issuer: "https://issuer.example", Subject: "ana",
		Roles: []string{"caller"}, Issued: now, Expires: now.Add(time.Hour),
	}
	with := func(change func(*Principal)) Principal {
		p := want
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name  string
		token string
		want  Principal
	}{
		{"EdDSA", good.encodeToken(), want},
		{"RS256", good.withHeader(jsonObject{"alg": "RS256", "kid": "rsa"}).signedBy(signRSA(k.RSA, crypto.SHA256)).encodeToken(), want},
		{"ES256", good.withHeader(jsonObject{"alg": "ES256", "kid": "ec"}).signedBy(signEC(k.EC)).encodeToken(), want},
		{"no typ", good.withHeader(jsonObject{"typ": nil}).encodeToken(), want},
		{"access token type", good.withHeader(jsonObject{"typ": "application/at+jwt"}).encodeToken(), want},
		{"several audiences", good.withClaims(jsonObject{"aud": []string{"other", "stoa"}}).encodeToken(), want},
		{"addresses of keys are ignored", good.withHeader(jsonObject{"jku": "https://attacker.example", "x5u": "https://attacker.example"}).encodeToken(), want},
		{"a key brought along is ignored", good.withHeader(jsonObject{"jwk": json.RawMessage(encodeJSON(jose.JSONWebKey{Key: k.OtherEd.Public()}))}).encodeToken(), want},
		{"clock a little behind", good.withClaims(jsonObject{"iat": now.Unix() + 50, "nbf": now.Unix() + 50}).encodeToken(),
			with(func(p *Principal) { p.Issued = now.Add(50 * time.Second) })},
		{"no roles", good.withClaims(jsonObject{"roles": nil}).encodeToken(), want},
		{"empty roles", good.withClaims(jsonObject{"roles": []string{}}).encodeToken(), want},
		{"foreign roles", good.withClaims(jsonObject{"roles": []string{"offline_access"}}).encodeToken(),
			with(func(p *Principal) { p.Roles = []string{"offline_access"} })},
		{"foreign scopes", good.withClaims(jsonObject{"scope": "openid profile"}).encodeToken(), want},
		{"scopes", good.withClaims(jsonObject{"scope": "openid tasks:read agents:call:x tasks:read"}).encodeToken(),
			with(func(p *Principal) { p.Scopes = []Scope{TasksRead, "agents:call:x"} })},
		{"platform's role in an app is no platform", good.withClaims(jsonObject{"roles": []string{"platform_operator"}}).encodeToken(),
			with(func(p *Principal) { p.Roles = []string{"platform_operator"} })},
		{"a subject of 255 letters", good.withClaims(jsonObject{"sub": strings.Repeat("ä", 255)}).encodeToken(),
			with(func(p *Principal) { p.Subject = strings.Repeat("ä", 255) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := NewVerifier(TrustedIssuer{Issuer: "https://other.example", Audience: "stoa"}, newTestIssuer())
			for _, when := range []string{"first", "remembered"} {
				got, err := v.VerifyToken(t.Context(), tt.token)
				if err != nil {
					t.Fatalf("%s: %s", when, RefusalReason(err))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: %s", when, diff)
				}
			}
		})
	}
}

// TestVerifiedTokensEnd checks that a cached token is refused after its expiry.
func TestVerifiedTokensEnd(t *testing.T) {
	t.Parallel()
	jwkstest.Keys()
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(newTestIssuer())
		token := newValidToken(time.Now()).withClaims(jsonObject{"exp": time.Now().Add(30 * time.Second).Unix()}).encodeToken()
		for range 29 {
			if _, err := v.VerifyToken(t.Context(), token); err != nil {
				t.Fatal(RefusalReason(err))
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if _, err := v.VerifyToken(t.Context(), token); RefusalReason(err) != "expired" {
			t.Errorf("at its end: got %v (%s), want a refusal", err, RefusalReason(err))
		}
	})
}

// changingKeys is a key set whose keys can be replaced.
type changingKeys struct {
	fixedKeys
	generation *uint64
}

func (k changingKeys) Generation() uint64 { return *k.generation }

func TestVerifiedTokensAreRechecked(t *testing.T) {
	t.Parallel()
	jwkstest.Keys()
	for _, tt := range []struct {
		name   string
		pass   func(generation *uint64)
		refuse bool
	}{
		{"at once", func(*uint64) {}, false},
		{"59 seconds later", func(*uint64) { time.Sleep(59 * time.Second) }, false},
		{"a minute later", func(*uint64) { time.Sleep(time.Minute) }, true},
		{"after a change of the keys", func(generation *uint64) { *generation++ }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newTestIssuer()
				generation := uint64(1)
				keys := a.Keys.(fixedKeys)
				a.Keys = changingKeys{keys, &generation}
				v := NewVerifier(a)
				token := newValidToken(time.Now()).encodeToken()
				if _, err := v.VerifyToken(t.Context(), token); err != nil {
					t.Fatal(RefusalReason(err))
				}
				delete(keys, "ed")
				tt.pass(&generation)
				if _, err := v.VerifyToken(t.Context(), token); errors.Is(err, agentsvc.CodeUnauthenticated) != tt.refuse {
					t.Errorf("got %v, want refused = %v", err, tt.refuse)
				}
			})
		})
	}
}

func TestVerifyWithoutKeysIsNoRefusal(t *testing.T) {
	t.Parallel()
	down := errors.New("the database is away")
	a := newTestIssuer()
	a.Keys = brokenKeys{down}
	_, err := NewVerifier(a).VerifyToken(t.Context(), newValidToken(time.Now()).encodeToken())
	if !errors.Is(err, down) || errors.Is(err, agentsvc.CodeUnauthenticated) {
		t.Errorf("got %v, want the cause and no refusal", err)
	}
}

// brokenKeys is a key set that cannot be fetched.
type brokenKeys struct{ err error }

func (b brokenKeys) FindKey(context.Context, string) (jose.JSONWebKey, error) {
	return jose.JSONWebKey{}, b.err
}

func (brokenKeys) Generation() uint64 { return 1 }

func BenchmarkVerify(b *testing.B) {
	token := newValidToken(time.Now()).encodeToken()
	b.Run("remembered", func(b *testing.B) {
		v := NewVerifier(newTestIssuer())
		for b.Loop() {
			if _, err := v.VerifyToken(b.Context(), token); err != nil {
				b.Fatal(RefusalReason(err))
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		v := NewVerifier(newTestIssuer())
		for b.Loop() {
			if _, err := v.verifyUncached(b.Context(), token, time.Now()); err != nil {
				b.Fatal(RefusalReason(err))
			}
		}
	})
}
