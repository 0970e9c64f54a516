package authz

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
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
	k := testKeys()
	now := time.Now()
	good := genuine(now)
	pub := []byte(k.ed.Public().(ed25519.PublicKey))
	spki, err := x509.MarshalPKIXPublicKey(k.ed.Public())
	if err != nil {
		t.Fatal(err)
	}
	attacker := encode(jose.JSONWebKey{Key: k.otherEd.Public(), KeyID: "ed"})
	withJWK := object{"jwk": json.RawMessage(attacker)}
	parts := strings.Split(good.token(), ".")
	elsewhere := good.withClaims(object{"sub": "bob"}).token()

	for _, tt := range []struct{ name, token, reason string }{
		{"nothing", "", "no credential"},
		{"a word", "hunter2", "not three parts"},
		{"an API key", "stoa_acme_0123456789abcdef", "not three parts"},
		{"two parts", parts[0] + "." + parts[1], "not three parts"},
		{"four parts", good.token() + ".AAAA", "not three parts"},
		{"empty parts", "..", "not three parts"},
		{"encrypted, five parts", "eyJhbGciOiJSU0EtT0FFUCJ9.AA.AA.AA.AA", "not three parts"},
		{"as a JSON object", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "not three parts"},
		{"space before", " " + good.token(), "not three parts"},
		{"space after", good.token() + " ", "not three parts"},
		{"scheme included", "Bearer " + good.token(), "not three parts"},
		{"line break within", parts[0] + ".\r\n" + parts[1] + "." + parts[2], "not three parts"},
		{"padded", parts[0] + "." + parts[1] + "." + parts[2] + "==", "not three parts"},
		{"standard alphabet", parts[0] + "." + parts[1] + ".+/" + parts[2][2:], "not three parts"},
		{"stray bit at the end", stray(t, good.token()), "not three parts"},
		{"9 KiB", good.withClaims(object{"pad": strings.Repeat("x", 9<<10)}).token(), "longer than 8 KiB"},

		{"truncated", good.token()[:len(good.token())-10], "wrong signature"},
		{"truncated signature", parts[0] + "." + parts[1] + "." + parts[2][:80], "wrong signature"},
		{"truncated claims", parts[0] + "." + parts[1][:len(parts[1])/8*4] + "." + parts[2], "unreadable claims"},
		{"no signature", parts[0] + "." + parts[1] + ".", "not three parts"},
		{"another token's signature", parts[0] + "." + parts[1] + "." + strings.Split(elsewhere, ".")[2], "wrong signature"},
		{"another token's claims", parts[0] + "." + strings.Split(elsewhere, ".")[1] + "." + parts[2], "wrong signature"},
		{"signed by somebody else", good.signedBy(signEd(k.otherEd)).token(), "wrong signature"},

		{"alg none", good.withHeader(object{"alg": "none"}).signedBy(unsigned).token(), "not three parts"},
		{"alg none, something as signature", good.withHeader(object{"alg": "none"}).token(), "not a signed token"},
		{"alg None", good.withHeader(object{"alg": "None"}).token(), "not a signed token"},
		{"alg missing", good.withHeader(object{"alg": nil}).token(), "not a signed token"},
		{"alg a number", good.withHeader(object{"alg": 1}).token(), "not a signed token"},
		{"alg in small letters", good.withHeader(object{"alg": "eddsa"}).token(), "not a signed token"},
		{"HS256 with the public key", good.withHeader(object{"alg": "HS256"}).signedBy(signHMAC(pub)).token(), "not a signed token"},
		{"HS256 with the public key as DER", good.withHeader(object{"alg": "HS256"}).signedBy(signHMAC(spki)).token(), "not a signed token"},
		{"HS256 with a symmetric key", good.withHeader(object{"alg": "HS256", "kid": "symmetric"}).token(), "not a signed token"},
		{"RS512", good.withHeader(object{"alg": "RS512", "kid": "rsa"}).signedBy(signRSA(k.rsa, crypto.SHA512)).token(), "not a signed token"},
		{"PS256", good.withHeader(object{"alg": "PS256", "kid": "rsa"}).signedBy(signPSS(k.rsa)).token(), "not a signed token"},
		{"EdDSA with the name of an RSA key", good.withHeader(object{"kid": "rsa"}).token(), "another algorithm"},
		{"RS256 with the name of an Ed25519 key", good.withHeader(object{"alg": "RS256"}).signedBy(signRSA(k.rsa, crypto.SHA256)).token(), "another algorithm"},
		{"ES256 with the name of an Ed25519 key", good.withHeader(object{"alg": "ES256"}).signedBy(signEC(k.ec)).token(), "another algorithm"},
		{"ES256 as DER", good.withHeader(object{"alg": "ES256", "kid": "ec"}).signedBy(signDER(k.ec)).token(), "wrong signature"},
		{"ES256 of zeros", good.withHeader(object{"alg": "ES256", "kid": "ec"}).signedBy(zeros(64)).token(), "wrong signature"},
		{"EdDSA of zeros", good.signedBy(zeros(64)).token(), "wrong signature"},
		{"key for another algorithm", good.withHeader(object{"alg": "RS256", "kid": "rs512"}).signedBy(signRSA(k.rsa, crypto.SHA256)).token(), "unusable key"},
		{"RSA key of 1024 bits", good.withHeader(object{"alg": "RS256", "kid": "short-rsa"}).signedBy(signRSA(k.shortRSA, crypto.SHA256)).token(), "unusable key"},
		{"key on another curve", good.withHeader(object{"alg": "ES256", "kid": "long-ec"}).signedBy(signEC(k.longEC)).token(), "unusable key"},
		{"symmetric key", good.withHeader(object{"kid": "symmetric"}).token(), "unusable key"},
		{"private key", good.withHeader(object{"kid": "private"}).token(), "unusable key"},

		{"kid unknown", good.withHeader(object{"kid": "another"}).token(), "unknown key"},
		{"kid missing", good.withHeader(object{"kid": nil}).token(), "names no key"},
		{"kid empty", good.withHeader(object{"kid": ""}).token(), "names no key"},
		{"kid a number", good.withHeader(object{"kid": 7}).token(), "not a signed token"},
		{"kid a path", good.withHeader(object{"kid": "../../../dev/null"}).token(), "unknown key"},
		{"kid a path to the key", good.withHeader(object{"kid": "./ed"}).token(), "unknown key"},
		{"kid with SQL", good.withHeader(object{"kid": "x' UNION SELECT 'ed"}).token(), "unknown key"},
		{"kid with NUL", good.withHeader(object{"kid": "ed\x00"}).token(), "unknown key"},
		{"kid an address", good.withHeader(object{"kid": "https://attacker.example/key"}).token(), "unknown key"},
		{"jwk of the attacker", good.withHeader(withJWK).signedBy(signEd(k.otherEd)).token(), "wrong signature"},
		{"jwk of the attacker, no kid", good.withHeader(withJWK).withHeader(object{"kid": nil}).signedBy(signEd(k.otherEd)).token(), "names no key"},
		{"jku of the attacker", good.withHeader(object{"jku": "https://attacker.example/jwks"}).signedBy(signEd(k.otherEd)).token(), "wrong signature"},
		{"x5u of the attacker", good.withHeader(object{"x5u": "https://attacker.example/x5u"}).signedBy(signEd(k.otherEd)).token(), "wrong signature"},
		{"crit", good.withHeader(object{"crit": []string{"b64"}, "b64": true}).token(), "demands an extension"},
		{"unencoded payload", good.withHeader(object{"crit": []string{"b64"}, "b64": false}).token(), "demands an extension"},
		{"typ of a logout token", good.withHeader(object{"typ": "logout+jwt"}).token(), "another type"},
		{"typ of a proof", good.withHeader(object{"typ": "dpop+jwt"}).token(), "another type"},
		{"typ a number", good.withHeader(object{"typ": 1}).token(), "another type"},
		{"header twice the same name", assemble([]byte(`{"alg":"EdDSA","kid":"ed","kid":"rsa"}`), encode(good.claims), good.sign), "not a signed token"},
		{"header no object", assemble([]byte(`"EdDSA"`), encode(good.claims), good.sign), "not a signed token"},

		{"iss of somebody else", good.withClaims(object{"iss": "https://attacker.example"}).token(), "issuer that is not accepted"},
		{"iss with a slash more", good.withClaims(object{"iss": "https://issuer.example/"}).token(), "issuer that is not accepted"},
		{"iss in capitals", good.withClaims(object{"iss": "HTTPS://ISSUER.EXAMPLE"}).token(), "issuer that is not accepted"},
		{"iss missing", good.withClaims(object{"iss": nil}).token(), "issuer that is not accepted"},
		{"iss empty", good.withClaims(object{"iss": ""}).token(), "issuer that is not accepted"},
		{"iss a list", good.withClaims(object{"iss": []string{"https://issuer.example"}}).token(), "unreadable claims"},
		{"aud of somebody else", good.withClaims(object{"aud": "other"}).token(), "another audience"},
		{"aud others", good.withClaims(object{"aud": []string{"other", "stoa.example"}}).token(), "another audience"},
		{"aud empty", good.withClaims(object{"aud": []string{}}).token(), "another audience"},
		{"aud missing", good.withClaims(object{"aud": nil}).token(), "another audience"},
		{"aud a number", good.withClaims(object{"aud": 1}).token(), "unreadable claims"},

		{"expired an hour ago", good.withClaims(object{"exp": now.Add(-time.Hour).Unix()}).token(), "expired"},
		{"expired just now", good.withClaims(object{"exp": now.Unix() - 1}).token(), "expired"},
		{"exp zero", good.withClaims(object{"exp": 0}).token(), "expired"},
		{"exp negative", good.withClaims(object{"exp": -1}).token(), "expired"},
		{"exp missing", good.withClaims(object{"exp": nil}).token(), "no exp"},
		{"exp null", assemble(encode(good.header), []byte(strings.Replace(string(encode(good.withClaims(object{"exp": "?"}).claims)), `"?"`, "null", 1)), good.sign), "no exp"},
		{"exp a string", good.withClaims(object{"exp": "4102444800"}).token(), "unreadable claims"},
		{"exp beyond all time", good.withClaims(object{"exp": 1e300}).token(), "unreadable claims"},
		{"exp true", good.withClaims(object{"exp": true}).token(), "unreadable claims"},
		{"not valid yet", good.withClaims(object{"nbf": now.Add(5 * time.Minute).Unix()}).token(), "not valid yet"},
		{"nbf a string", good.withClaims(object{"nbf": "0"}).token(), "unreadable claims"},
		{"issued in the future", good.withClaims(object{"iat": now.Add(5 * time.Minute).Unix()}).token(), "issued in the future"},
		{"iat missing", good.withClaims(object{"iat": nil}).token(), "no iat"},
		{"iat a string", good.withClaims(object{"iat": "0"}).token(), "unreadable claims"},

		{"sub missing", good.withClaims(object{"sub": nil}).token(), "no usable sub"},
		{"sub empty", good.withClaims(object{"sub": ""}).token(), "no usable sub"},
		{"sub a number", good.withClaims(object{"sub": 1}).token(), "unreadable claims"},
		{"sub too long", good.withClaims(object{"sub": strings.Repeat("ä", 256)}).token(), "no usable sub"},
		{"sub with a line break", good.withClaims(object{"sub": "ana\nlevel=error"}).token(), "no usable sub"},
		{"sub with NUL", good.withClaims(object{"sub": "ana\x00"}).token(), "no usable sub"},
		{"sub twice", assemble(encode(good.header), []byte(strings.Replace(string(encode(good.claims)), `{`, `{"sub":"root",`, 1)), good.sign), "unreadable claims"},
		{"exp twice", assemble(encode(good.header), []byte(strings.Replace(string(encode(good.claims)), `{`, `{"exp":4102444800,`, 1)), good.sign), "unreadable claims"},
		{"app without its id", good.withClaims(object{"app_id": nil}).token(), "by half"},
		{"app without its name", good.withClaims(object{"tenant_id": nil}).token(), "by half"},
		{"no app", good.withClaims(object{"tenant_id": nil, "app_id": nil}).token(), "names no app"},
		{"no app, an app's role beside the platform's", good.withClaims(object{"tenant_id": nil, "app_id": nil, "roles": []string{"admin", "platform_operator"}}).token(), "names no app"},
		{"tenant_id a list", good.withClaims(object{"tenant_id": []string{"acme", "globex"}}).token(), "unreadable claims"},
		{"roles a string", good.withClaims(object{"roles": "admin"}).token(), "unreadable claims"},
		{"roles of numbers", good.withClaims(object{"roles": []int{1}}).token(), "unreadable claims"},
		{"scope a number", good.withClaims(object{"scope": 1}).token(), "unreadable claims"},
		{"claims a list", assemble(encode(good.header), []byte(`["sub"]`), good.sign), "unreadable claims"},
		{"claims no JSON", assemble(encode(good.header), []byte(`sub=ana`), good.sign), "unreadable claims"},
		{"claims and more", assemble(encode(good.header), append(encode(good.claims), "{}"...), good.sign), "unreadable claims"},
	} {
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
		{"platform operator", good.withClaims(object{"tenant_id": nil, "app_id": nil, "roles": []string{"platform_operator"}}).token(),
			with(func(p *Principal) {
				p.App, p.AppName, p.Platform, p.Roles = "", "", true, []string{"platform_operator"}
			})},
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
