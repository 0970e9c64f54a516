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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = map[string]any

// TestForgeries presents tokens that differ from a good one in one thing each. Every one is refused, and for its own
// reason.
func TestForgeries(t *testing.T) {
	t.Parallel()
	for _, tt := range forgeries(t, time.Now()) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := NewVerifier(testAccepted())
			for range 2 { // a refusal is not remembered as anything better
				p, err := v.Verify(t.Context(), tt.token)
				if !errors.Is(err, ErrUnauthenticated) {
					t.Fatalf("got %+v and %v, want ErrUnauthenticated", p, err)
				}
				if diff := cmp.Diff(Principal{}, p); diff != "" {
					t.Error(diff)
				}
				if err.Error() != ErrUnauthenticated.Error() {
					t.Errorf("the caller would read %q", err)
				}
				if !strings.Contains(Reason(err), tt.reason) {
					t.Errorf("refused because %q, want %q", Reason(err), tt.reason)
				}
			}
		})
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	k := testKeys()
	now := time.Now().Truncate(time.Second)
	good := genuine(now)
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
		{"EdDSA", good.token(), want},
		{"RS256", good.withHeader(object{"alg": "RS256", "kid": "rsa"}).signedBy(signRSA(k.rsa, crypto.SHA256)).token(), want},
		{"ES256", good.withHeader(object{"alg": "ES256", "kid": "ec"}).signedBy(signEC(k.ec)).token(), want},
		{"no typ", good.withHeader(object{"typ": nil}).token(), want},
		{"access token type", good.withHeader(object{"typ": "application/at+jwt"}).token(), want},
		{"several audiences", good.withClaims(object{"aud": []string{"other", "stoa"}}).token(), want},
		{"addresses of keys are ignored", good.withHeader(object{"jku": "https://attacker.example", "x5u": "https://attacker.example"}).token(), want},
		{"a key brought along is ignored", good.withHeader(object{"jwk": json.RawMessage(encode(jose.JSONWebKey{Key: k.otherEd.Public()}))}).token(), want},
		{"clock a little behind", good.withClaims(object{"iat": now.Unix() + 50, "nbf": now.Unix() + 50}).token(),
			with(func(p *Principal) { p.Issued = now.Add(50 * time.Second) })},
		{"no roles", good.withClaims(object{"roles": nil}).token(), want},
		{"empty roles", good.withClaims(object{"roles": []string{}}).token(), want},
		{"foreign roles", good.withClaims(object{"roles": []string{"offline_access"}}).token(),
			with(func(p *Principal) { p.Roles = []string{"offline_access"} })},
		{"foreign scopes", good.withClaims(object{"scope": "openid profile"}).token(), want},
		{"scopes", good.withClaims(object{"scope": "openid tasks:read agents:call:x tasks:read"}).token(),
			with(func(p *Principal) { p.Scopes = []Scope{TasksRead, "agents:call:x"} })},
		{"platform's role in an app is no platform", good.withClaims(object{"roles": []string{"platform_operator"}}).token(),
			with(func(p *Principal) { p.Roles = []string{"platform_operator"} })},
		{"a subject of 255 letters", good.withClaims(object{"sub": strings.Repeat("ä", 255)}).token(),
			with(func(p *Principal) { p.Subject = strings.Repeat("ä", 255) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := NewVerifier(Accepted{Issuer: "https://other.example", Audience: "stoa"}, testAccepted())
			for _, when := range []string{"first", "remembered"} {
				got, err := v.Verify(t.Context(), tt.token)
				if err != nil {
					t.Fatalf("%s: %s", when, Reason(err))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: %s", when, diff)
				}
			}
		})
	}
}

// TestVerifiedTokensEnd lets time pass over a token that is remembered.
func TestVerifiedTokensEnd(t *testing.T) {
	t.Parallel()
	testKeys()
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(testAccepted())
		token := genuine(time.Now()).withClaims(object{"exp": time.Now().Add(30 * time.Second).Unix()}).token()
		for range 29 {
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Fatal(Reason(err))
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if _, err := v.Verify(t.Context(), token); Reason(err) != "expired" {
			t.Errorf("at its end: got %v (%s), want a refusal", err, Reason(err))
		}
	})
}

// growingKeys is a key set whose keys may change.
type growingKeys struct {
	fixedKeys
	version *uint64
}

func (g growingKeys) Version() uint64 { return *g.version }

func TestVerifiedTokensAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	testKeys()
	for _, tt := range []struct {
		name   string
		pass   func(version *uint64)
		refuse bool
	}{
		{"at once", func(*uint64) {}, false},
		{"59 seconds later", func(*uint64) { time.Sleep(59 * time.Second) }, false},
		{"a minute later", func(*uint64) { time.Sleep(time.Minute) }, true},
		{"after a change of the keys", func(version *uint64) { *version++ }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := testAccepted()
				version := uint64(1)
				keys := a.Keys.(fixedKeys)
				a.Keys = growingKeys{keys, &version}
				v := NewVerifier(a)
				token := genuine(time.Now()).token()
				if _, err := v.Verify(t.Context(), token); err != nil {
					t.Fatal(Reason(err))
				}
				delete(keys, "ed")
				tt.pass(&version)
				if _, err := v.Verify(t.Context(), token); errors.Is(err, ErrUnauthenticated) != tt.refuse {
					t.Errorf("got %v, want refused = %v", err, tt.refuse)
				}
			})
		})
	}
}

func TestVerifyWithoutKeysIsNoRefusal(t *testing.T) {
	t.Parallel()
	down := errors.New("the database is away")
	a := testAccepted()
	a.Keys = brokenKeys{down}
	_, err := NewVerifier(a).Verify(t.Context(), genuine(time.Now()).token())
	if !errors.Is(err, down) || errors.Is(err, ErrUnauthenticated) {
		t.Errorf("got %v, want the cause and no refusal", err)
	}
}

// brokenKeys is a key set that cannot be reached.
type brokenKeys struct{ err error }

func (b brokenKeys) Key(context.Context, string) (jose.JSONWebKey, error) {
	return jose.JSONWebKey{}, b.err
}

func (brokenKeys) Version() uint64 { return 1 }

func BenchmarkVerify(b *testing.B) {
	token := genuine(time.Now()).token()
	b.Run("remembered", func(b *testing.B) {
		v := NewVerifier(testAccepted())
		for b.Loop() {
			if _, err := v.Verify(b.Context(), token); err != nil {
				b.Fatal(Reason(err))
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		v := NewVerifier(testAccepted())
		for b.Loop() {
			if _, err := v.verify(b.Context(), token, time.Now()); err != nil {
				b.Fatal(Reason(err))
			}
		}
	})
}
