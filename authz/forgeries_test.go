package authz

import (
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"stoa/authz/jwks/jwkstest"
)

// forgedToken is a token that differs from a valid one in one respect.
type forgedToken struct {
	name, token, reason string

	builtIn bool // required of the built-in issuer's tokens only
}

// listForgeries returns tokens that no verifier may accept.
func listForgeries(t *testing.T, now time.Time) []forgedToken {
	t.Helper()
	k := jwkstest.Keys()
	good := newValidToken(now)
	pub := []byte(k.Ed.Public().(ed25519.PublicKey))
	spki, err := x509.MarshalPKIXPublicKey(k.Ed.Public())
	if err != nil {
		t.Fatal(err)
	}
	attacker := encodeJSON(jose.JSONWebKey{Key: k.OtherEd.Public(), KeyID: "ed"})
	withJWK := jsonObject{"jwk": json.RawMessage(attacker)}
	parts := strings.Split(good.encodeToken(), ".")
	elsewhere := good.withClaims(jsonObject{"sub": "bob"}).encodeToken()

	return []forgedToken{
		{"nothing", "", "no credential", false},
		{"a word", "hunter2", "not three parts", false},
		{"an API key", "stoa_acme_0123456789abcdef", "not three parts", false},
		{"two parts", parts[0] + "." + parts[1], "not three parts", false},
		{"four parts", good.encodeToken() + ".AAAA", "not three parts", false},
		{"empty parts", "..", "not three parts", false},
		{"encrypted, five parts", "eyJhbGciOiJSU0EtT0FFUCJ9.AA.AA.AA.AA", "not three parts", false},
		{"as a JSON object", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "not three parts", false},
		{"space before", " " + good.encodeToken(), "not three parts", false},
		{"space after", good.encodeToken() + " ", "not three parts", false},
		{"scheme included", "Bearer " + good.encodeToken(), "not three parts", false},
		{"line break within", parts[0] + ".\r\n" + parts[1] + "." + parts[2], "not three parts", false},
		{"padded", parts[0] + "." + parts[1] + "." + parts[2] + "==", "not three parts", false},
		{"standard alphabet", parts[0] + "." + parts[1] + ".+/" + parts[2][2:], "not three parts", false},
		{"stray bit at the end", setUnusedBit(t, good.encodeToken()), "not three parts", false},
		{"9 KiB", good.withClaims(jsonObject{"pad": strings.Repeat("x", 9<<10)}).encodeToken(), "longer than 8 KiB", false},

		{"truncated", good.encodeToken()[:len(good.encodeToken())-10], "wrong signature", false},
		{"truncated signature", parts[0] + "." + parts[1] + "." + parts[2][:80], "wrong signature", false},
		{"truncated claims", parts[0] + "." + parts[1][:len(parts[1])/8*4] + "." + parts[2], "unreadable claims", false},
		{"no signature", parts[0] + "." + parts[1] + ".", "not three parts", false},
		{"another token's signature", parts[0] + "." + parts[1] + "." + strings.Split(elsewhere, ".")[2], "wrong signature", false},
		{"another token's claims", parts[0] + "." + strings.Split(elsewhere, ".")[1] + "." + parts[2], "wrong signature", false},
		{"signed by somebody else", good.signedBy(signEd(k.OtherEd)).encodeToken(), "wrong signature", false},

		{"alg none", good.withHeader(jsonObject{"alg": "none"}).signedBy(signNothing).encodeToken(), "not three parts", false},
		{"alg none, something as signature", good.withHeader(jsonObject{"alg": "none"}).encodeToken(), "not a signed token", false},
		{"alg None", good.withHeader(jsonObject{"alg": "None"}).encodeToken(), "not a signed token", false},
		{"alg missing", good.withHeader(jsonObject{"alg": nil}).encodeToken(), "not a signed token", false},
		{"alg a number", good.withHeader(jsonObject{"alg": 1}).encodeToken(), "not a signed token", false},
		{"alg in small letters", good.withHeader(jsonObject{"alg": "eddsa"}).encodeToken(), "not a signed token", false},
		{"HS256 with the public key", good.withHeader(jsonObject{"alg": "HS256"}).signedBy(signHMAC(pub)).encodeToken(), "not a signed token", false},
		{"HS256 with the public key as DER", good.withHeader(jsonObject{"alg": "HS256"}).signedBy(signHMAC(spki)).encodeToken(), "not a signed token", false},
		{"HS256 with a symmetric key", good.withHeader(jsonObject{"alg": "HS256", "kid": "symmetric"}).encodeToken(), "not a signed token", false},
		{"RS512", good.withHeader(jsonObject{"alg": "RS512", "kid": "rsa"}).signedBy(signRSA(k.RSA, crypto.SHA512)).encodeToken(), "not a signed token", false},
		{"PS256", good.withHeader(jsonObject{"alg": "PS256", "kid": "rsa"}).signedBy(signPSS(k.RSA)).encodeToken(), "not a signed token", false},
		{"EdDSA with the name of an RSA key", good.withHeader(jsonObject{"kid": "rsa"}).encodeToken(), "another algorithm", false},
		{"RS256 with the name of an Ed25519 key", good.withHeader(jsonObject{"alg": "RS256"}).signedBy(signRSA(k.RSA, crypto.SHA256)).encodeToken(), "another algorithm", false},
		{"ES256 with the name of an Ed25519 key", good.withHeader(jsonObject{"alg": "ES256"}).signedBy(signEC(k.EC)).encodeToken(), "another algorithm", false},
		{"ES256 as DER", good.withHeader(jsonObject{"alg": "ES256", "kid": "ec"}).signedBy(signDER(k.EC)).encodeToken(), "wrong signature", false},
		{"ES256 of zeros", good.withHeader(jsonObject{"alg": "ES256", "kid": "ec"}).signedBy(signZeros(64)).encodeToken(), "wrong signature", false},
		{"EdDSA of zeros", good.signedBy(signZeros(64)).encodeToken(), "wrong signature", false},
		{"key for another algorithm", good.withHeader(jsonObject{"alg": "RS256", "kid": "rs512"}).signedBy(signRSA(k.RSA, crypto.SHA256)).encodeToken(), "unusable key", false},
		{"RSA key of 1024 bits", good.withHeader(jsonObject{"alg": "RS256", "kid": "short-rsa"}).signedBy(signRSA(k.ShortRSA, crypto.SHA256)).encodeToken(), "unusable key", false},
		{"key on another curve", good.withHeader(jsonObject{"alg": "ES256", "kid": "long-ec"}).signedBy(signEC(k.LongEC)).encodeToken(), "unusable key", false},
		{"symmetric key", good.withHeader(jsonObject{"kid": "symmetric"}).encodeToken(), "unusable key", false},
		{"private key", good.withHeader(jsonObject{"kid": "private"}).encodeToken(), "unusable key", false},

		{"kid unknown", good.withHeader(jsonObject{"kid": "another"}).encodeToken(), "unknown key", false},
		{"kid missing", good.withHeader(jsonObject{"kid": nil}).encodeToken(), "names no key", false},
		{"kid empty", good.withHeader(jsonObject{"kid": ""}).encodeToken(), "names no key", false},
		{"kid a number", good.withHeader(jsonObject{"kid": 7}).encodeToken(), "not a signed token", false},
		{"kid a path", good.withHeader(jsonObject{"kid": "../../../dev/null"}).encodeToken(), "unknown key", false},
		{"kid a path to the key", good.withHeader(jsonObject{"kid": "./ed"}).encodeToken(), "unknown key", false},
		{"kid with SQL", good.withHeader(jsonObject{"kid": "x' UNION SELECT 'ed"}).encodeToken(), "unknown key", false},
		{"kid with NUL", good.withHeader(jsonObject{"kid": "ed\x00"}).encodeToken(), "unknown key", false},
		{"kid an address", good.withHeader(jsonObject{"kid": "https://attacker.example/key"}).encodeToken(), "unknown key", false},
		{"jwk of the attacker", good.withHeader(withJWK).signedBy(signEd(k.OtherEd)).encodeToken(), "wrong signature", false},
		{"jwk of the attacker, no kid", good.withHeader(withJWK).withHeader(jsonObject{"kid": nil}).signedBy(signEd(k.OtherEd)).encodeToken(), "names no key", false},
		{"jku of the attacker", good.withHeader(jsonObject{"jku": "https://attacker.example/jwks"}).signedBy(signEd(k.OtherEd)).encodeToken(), "wrong signature", false},
		{"x5u of the attacker", good.withHeader(jsonObject{"x5u": "https://attacker.example/x5u"}).signedBy(signEd(k.OtherEd)).encodeToken(), "wrong signature", false},
		{"crit", good.withHeader(jsonObject{"crit": []string{"b64"}, "b64": true}).encodeToken(), "requires an extension", false},
		{"unencoded payload", good.withHeader(jsonObject{"crit": []string{"b64"}, "b64": false}).encodeToken(), "requires an extension", false},
		{"typ of a logout token", good.withHeader(jsonObject{"typ": "logout+jwt"}).encodeToken(), "another type", false},
		{"typ of a proof", good.withHeader(jsonObject{"typ": "dpop+jwt"}).encodeToken(), "another type", false},
		{"typ a number", good.withHeader(jsonObject{"typ": 1}).encodeToken(), "another type", false},
		{"header twice the same name", assembleToken([]byte(`{"alg":"EdDSA","kid":"ed","kid":"rsa"}`), encodeJSON(good.claims), good.sign), "not a signed token", false},
		{"header no object", assembleToken([]byte(`"EdDSA"`), encodeJSON(good.claims), good.sign), "not a signed token", false},

		{"iss of somebody else", good.withClaims(jsonObject{"iss": "https://attacker.example"}).encodeToken(), "issuer that is not accepted", false},
		{"iss with a slash more", good.withClaims(jsonObject{"iss": "https://issuer.example/"}).encodeToken(), "issuer that is not accepted", false},
		{"iss in capitals", good.withClaims(jsonObject{"iss": "HTTPS://ISSUER.EXAMPLE"}).encodeToken(), "issuer that is not accepted", false},
		{"iss missing", good.withClaims(jsonObject{"iss": nil}).encodeToken(), "issuer that is not accepted", false},
		{"iss empty", good.withClaims(jsonObject{"iss": ""}).encodeToken(), "issuer that is not accepted", false},
		{"iss a list", good.withClaims(jsonObject{"iss": []string{"https://issuer.example"}}).encodeToken(), "unreadable claims", false},
		{"aud of somebody else", good.withClaims(jsonObject{"aud": "other"}).encodeToken(), "another audience", false},
		{"aud others", good.withClaims(jsonObject{"aud": []string{"other", "stoa.example"}}).encodeToken(), "another audience", false},
		{"aud empty", good.withClaims(jsonObject{"aud": []string{}}).encodeToken(), "another audience", false},
		{"aud missing", good.withClaims(jsonObject{"aud": nil}).encodeToken(), "another audience", false},
		{"aud a number", good.withClaims(jsonObject{"aud": 1}).encodeToken(), "unreadable claims", false},

		{"expired an hour ago", good.withClaims(jsonObject{"exp": now.Add(-time.Hour).Unix()}).encodeToken(), "expired", false},
		{"expired just now", good.withClaims(jsonObject{"exp": now.Unix() - 1}).encodeToken(), "expired", false},
		{"exp zero", good.withClaims(jsonObject{"exp": 0}).encodeToken(), "expired", false},
		{"exp negative", good.withClaims(jsonObject{"exp": -1}).encodeToken(), "expired", false},
		{"exp missing", good.withClaims(jsonObject{"exp": nil}).encodeToken(), "no exp", false},
		{"exp null", assembleToken(encodeJSON(good.header), []byte(strings.Replace(string(encodeJSON(good.withClaims(jsonObject{"exp": "?"}).claims)), `"?"`, "null", 1)), good.sign), "not a valid token of its issuer", false},
		{"exp a string", good.withClaims(jsonObject{"exp": "4102444800"}).encodeToken(), "unreadable claims", false},
		{"exp beyond all time", good.withClaims(jsonObject{"exp": 1e300}).encodeToken(), "unreadable claims", false},
		{"exp true", good.withClaims(jsonObject{"exp": true}).encodeToken(), "unreadable claims", false},
		{"not valid yet", good.withClaims(jsonObject{"nbf": now.Add(5 * time.Minute).Unix()}).encodeToken(), "not valid yet", false},
		{"nbf a string", good.withClaims(jsonObject{"nbf": "0"}).encodeToken(), "unreadable claims", false},
		{"issued in the future", good.withClaims(jsonObject{"iat": now.Add(5 * time.Minute).Unix()}).encodeToken(), "issued in the future", false},
		{"iat missing", good.withClaims(jsonObject{"iat": nil}).encodeToken(), "no iat", true},
		{"iat a string", good.withClaims(jsonObject{"iat": "0"}).encodeToken(), "unreadable claims", false},

		{"sub missing", good.withClaims(jsonObject{"sub": nil}).encodeToken(), "no usable sub", false},
		{"sub empty", good.withClaims(jsonObject{"sub": ""}).encodeToken(), "no usable sub", false},
		{"sub a number", good.withClaims(jsonObject{"sub": 1}).encodeToken(), "unreadable claims", false},
		{"sub too long", good.withClaims(jsonObject{"sub": strings.Repeat("ä", 256)}).encodeToken(), "no usable sub", false},
		{"sub with a line break", good.withClaims(jsonObject{"sub": "ana\nlevel=error"}).encodeToken(), "no usable sub", false},
		{"sub with NUL", good.withClaims(jsonObject{"sub": "ana\x00"}).encodeToken(), "no usable sub", false},
		{"sub twice", assembleToken(encodeJSON(good.header), []byte(strings.Replace(string(encodeJSON(good.claims)), `{`, `{"sub":"root",`, 1)), good.sign), "unreadable claims", false},
		{"exp twice", assembleToken(encodeJSON(good.header), []byte(strings.Replace(string(encodeJSON(good.claims)), `{`, `{"exp":4102444800,`, 1)), good.sign), "unreadable claims", false},
		{"app without its id", good.withClaims(jsonObject{"app_id": nil}).encodeToken(), "incompletely", true},
		{"app without its name", good.withClaims(jsonObject{"tenant_id": nil}).encodeToken(), "incompletely", true},
		{"no app", good.withClaims(jsonObject{"tenant_id": nil, "app_id": nil}).encodeToken(), "names no app", true},
		{"no app, the platform's role", good.withClaims(jsonObject{"tenant_id": nil, "app_id": nil, "roles": []string{"platform_operator"}}).encodeToken(), "names no app", true},
		{"tenant_id a list", good.withClaims(jsonObject{"tenant_id": []string{"acme", "globex"}}).encodeToken(), "unreadable claims", false},
		{"roles a string", good.withClaims(jsonObject{"roles": "admin"}).encodeToken(), "unreadable claims", false},
		{"roles of numbers", good.withClaims(jsonObject{"roles": []int{1}}).encodeToken(), "unreadable claims", false},
		{"scope a number", good.withClaims(jsonObject{"scope": 1}).encodeToken(), "unreadable claims", false},
		{"claims a list", assembleToken(encodeJSON(good.header), []byte(`["sub"]`), good.sign), "unreadable claims", false},
		{"claims no JSON", assembleToken(encodeJSON(good.header), []byte(`sub=ana`), good.sign), "unreadable claims", false},
		{"claims and more", assembleToken(encodeJSON(good.header), append(encodeJSON(good.claims), "{}"...), good.sign), "unreadable claims", false},
	}
}
