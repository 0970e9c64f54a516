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
)

// forged is a token that differs from a good one in one thing.
type forged struct {
	name, token, reason string

	builtIn bool // only the built-in issuer's tokens are held to this
}

// forgeries returns what no verifier may accept.
func forgeries(t *testing.T, now time.Time) []forged {
	t.Helper()
	k := testKeys()
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

	return []forged{
		{"nothing", "", "no credential", false},
		{"a word", "hunter2", "not three parts", false},
		{"an API key", "stoa_acme_0123456789abcdef", "not three parts", false},
		{"two parts", parts[0] + "." + parts[1], "not three parts", false},
		{"four parts", good.token() + ".AAAA", "not three parts", false},
		{"empty parts", "..", "not three parts", false},
		{"encrypted, five parts", "eyJhbGciOiJSU0EtT0FFUCJ9.AA.AA.AA.AA", "not three parts", false},
		{"as a JSON object", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "not three parts", false},
		{"space before", " " + good.token(), "not three parts", false},
		{"space after", good.token() + " ", "not three parts", false},
		{"scheme included", "Bearer " + good.token(), "not three parts", false},
		{"line break within", parts[0] + ".\r\n" + parts[1] + "." + parts[2], "not three parts", false},
		{"padded", parts[0] + "." + parts[1] + "." + parts[2] + "==", "not three parts", false},
		{"standard alphabet", parts[0] + "." + parts[1] + ".+/" + parts[2][2:], "not three parts", false},
		{"stray bit at the end", stray(t, good.token()), "not three parts", false},
		{"9 KiB", good.withClaims(object{"pad": strings.Repeat("x", 9<<10)}).token(), "longer than 8 KiB", false},

		{"truncated", good.token()[:len(good.token())-10], "wrong signature", false},
		{"truncated signature", parts[0] + "." + parts[1] + "." + parts[2][:80], "wrong signature", false},
		{"truncated claims", parts[0] + "." + parts[1][:len(parts[1])/8*4] + "." + parts[2], "unreadable claims", false},
		{"no signature", parts[0] + "." + parts[1] + ".", "not three parts", false},
		{"another token's signature", parts[0] + "." + parts[1] + "." + strings.Split(elsewhere, ".")[2], "wrong signature", false},
		{"another token's claims", parts[0] + "." + strings.Split(elsewhere, ".")[1] + "." + parts[2], "wrong signature", false},
		{"signed by somebody else", good.signedBy(signEd(k.otherEd)).token(), "wrong signature", false},

		{"alg none", good.withHeader(object{"alg": "none"}).signedBy(unsigned).token(), "not three parts", false},
		{"alg none, something as signature", good.withHeader(object{"alg": "none"}).token(), "not a signed token", false},
		{"alg None", good.withHeader(object{"alg": "None"}).token(), "not a signed token", false},
		{"alg missing", good.withHeader(object{"alg": nil}).token(), "not a signed token", false},
		{"alg a number", good.withHeader(object{"alg": 1}).token(), "not a signed token", false},
		{"alg in small letters", good.withHeader(object{"alg": "eddsa"}).token(), "not a signed token", false},
		{"HS256 with the public key", good.withHeader(object{"alg": "HS256"}).signedBy(signHMAC(pub)).token(), "not a signed token", false},
		{"HS256 with the public key as DER", good.withHeader(object{"alg": "HS256"}).signedBy(signHMAC(spki)).token(), "not a signed token", false},
		{"HS256 with a symmetric key", good.withHeader(object{"alg": "HS256", "kid": "symmetric"}).token(), "not a signed token", false},
		{"RS512", good.withHeader(object{"alg": "RS512", "kid": "rsa"}).signedBy(signRSA(k.rsa, crypto.SHA512)).token(), "not a signed token", false},
		{"PS256", good.withHeader(object{"alg": "PS256", "kid": "rsa"}).signedBy(signPSS(k.rsa)).token(), "not a signed token", false},
		{"EdDSA with the name of an RSA key", good.withHeader(object{"kid": "rsa"}).token(), "another algorithm", false},
		{"RS256 with the name of an Ed25519 key", good.withHeader(object{"alg": "RS256"}).signedBy(signRSA(k.rsa, crypto.SHA256)).token(), "another algorithm", false},
		{"ES256 with the name of an Ed25519 key", good.withHeader(object{"alg": "ES256"}).signedBy(signEC(k.ec)).token(), "another algorithm", false},
		{"ES256 as DER", good.withHeader(object{"alg": "ES256", "kid": "ec"}).signedBy(signDER(k.ec)).token(), "wrong signature", false},
		{"ES256 of zeros", good.withHeader(object{"alg": "ES256", "kid": "ec"}).signedBy(zeros(64)).token(), "wrong signature", false},
		{"EdDSA of zeros", good.signedBy(zeros(64)).token(), "wrong signature", false},
		{"key for another algorithm", good.withHeader(object{"alg": "RS256", "kid": "rs512"}).signedBy(signRSA(k.rsa, crypto.SHA256)).token(), "unusable key", false},
		{"RSA key of 1024 bits", good.withHeader(object{"alg": "RS256", "kid": "short-rsa"}).signedBy(signRSA(k.shortRSA, crypto.SHA256)).token(), "unusable key", false},
		{"key on another curve", good.withHeader(object{"alg": "ES256", "kid": "long-ec"}).signedBy(signEC(k.longEC)).token(), "unusable key", false},
		{"symmetric key", good.withHeader(object{"kid": "symmetric"}).token(), "unusable key", false},
		{"private key", good.withHeader(object{"kid": "private"}).token(), "unusable key", false},

		{"kid unknown", good.withHeader(object{"kid": "another"}).token(), "unknown key", false},
		{"kid missing", good.withHeader(object{"kid": nil}).token(), "names no key", false},
		{"kid empty", good.withHeader(object{"kid": ""}).token(), "names no key", false},
		{"kid a number", good.withHeader(object{"kid": 7}).token(), "not a signed token", false},
		{"kid a path", good.withHeader(object{"kid": "../../../dev/null"}).token(), "unknown key", false},
		{"kid a path to the key", good.withHeader(object{"kid": "./ed"}).token(), "unknown key", false},
		{"kid with SQL", good.withHeader(object{"kid": "x' UNION SELECT 'ed"}).token(), "unknown key", false},
		{"kid with NUL", good.withHeader(object{"kid": "ed\x00"}).token(), "unknown key", false},
		{"kid an address", good.withHeader(object{"kid": "https://attacker.example/key"}).token(), "unknown key", false},
		{"jwk of the attacker", good.withHeader(withJWK).signedBy(signEd(k.otherEd)).token(), "wrong signature", false},
		{"jwk of the attacker, no kid", good.withHeader(withJWK).withHeader(object{"kid": nil}).signedBy(signEd(k.otherEd)).token(), "names no key", false},
		{"jku of the attacker", good.withHeader(object{"jku": "https://attacker.example/jwks"}).signedBy(signEd(k.otherEd)).token(), "wrong signature", false},
		{"x5u of the attacker", good.withHeader(object{"x5u": "https://attacker.example/x5u"}).signedBy(signEd(k.otherEd)).token(), "wrong signature", false},
		{"crit", good.withHeader(object{"crit": []string{"b64"}, "b64": true}).token(), "demands an extension", false},
		{"unencoded payload", good.withHeader(object{"crit": []string{"b64"}, "b64": false}).token(), "demands an extension", false},
		{"typ of a logout token", good.withHeader(object{"typ": "logout+jwt"}).token(), "another type", false},
		{"typ of a proof", good.withHeader(object{"typ": "dpop+jwt"}).token(), "another type", false},
		{"typ a number", good.withHeader(object{"typ": 1}).token(), "another type", false},
		{"header twice the same name", assemble([]byte(`{"alg":"EdDSA","kid":"ed","kid":"rsa"}`), encode(good.claims), good.sign), "not a signed token", false},
		{"header no object", assemble([]byte(`"EdDSA"`), encode(good.claims), good.sign), "not a signed token", false},

		{"iss of somebody else", good.withClaims(object{"iss": "https://attacker.example"}).token(), "issuer that is not accepted", false},
		{"iss with a slash more", good.withClaims(object{"iss": "https://issuer.example/"}).token(), "issuer that is not accepted", false},
		{"iss in capitals", good.withClaims(object{"iss": "HTTPS://ISSUER.EXAMPLE"}).token(), "issuer that is not accepted", false},
		{"iss missing", good.withClaims(object{"iss": nil}).token(), "issuer that is not accepted", false},
		{"iss empty", good.withClaims(object{"iss": ""}).token(), "issuer that is not accepted", false},
		{"iss a list", good.withClaims(object{"iss": []string{"https://issuer.example"}}).token(), "unreadable claims", false},
		{"aud of somebody else", good.withClaims(object{"aud": "other"}).token(), "another audience", false},
		{"aud others", good.withClaims(object{"aud": []string{"other", "stoa.example"}}).token(), "another audience", false},
		{"aud empty", good.withClaims(object{"aud": []string{}}).token(), "another audience", false},
		{"aud missing", good.withClaims(object{"aud": nil}).token(), "another audience", false},
		{"aud a number", good.withClaims(object{"aud": 1}).token(), "unreadable claims", false},

		{"expired an hour ago", good.withClaims(object{"exp": now.Add(-time.Hour).Unix()}).token(), "expired", false},
		{"expired just now", good.withClaims(object{"exp": now.Unix() - 1}).token(), "expired", false},
		{"exp zero", good.withClaims(object{"exp": 0}).token(), "expired", false},
		{"exp negative", good.withClaims(object{"exp": -1}).token(), "expired", false},
		{"exp missing", good.withClaims(object{"exp": nil}).token(), "no exp", false},
		{"exp null", assemble(encode(good.header), []byte(strings.Replace(string(encode(good.withClaims(object{"exp": "?"}).claims)), `"?"`, "null", 1)), good.sign), "not what its issuer's tokens are", false},
		{"exp a string", good.withClaims(object{"exp": "4102444800"}).token(), "unreadable claims", false},
		{"exp beyond all time", good.withClaims(object{"exp": 1e300}).token(), "unreadable claims", false},
		{"exp true", good.withClaims(object{"exp": true}).token(), "unreadable claims", false},
		{"not valid yet", good.withClaims(object{"nbf": now.Add(5 * time.Minute).Unix()}).token(), "not valid yet", false},
		{"nbf a string", good.withClaims(object{"nbf": "0"}).token(), "unreadable claims", false},
		{"issued in the future", good.withClaims(object{"iat": now.Add(5 * time.Minute).Unix()}).token(), "issued in the future", false},
		{"iat missing", good.withClaims(object{"iat": nil}).token(), "no iat", true},
		{"iat a string", good.withClaims(object{"iat": "0"}).token(), "unreadable claims", false},

		{"sub missing", good.withClaims(object{"sub": nil}).token(), "no usable sub", false},
		{"sub empty", good.withClaims(object{"sub": ""}).token(), "no usable sub", false},
		{"sub a number", good.withClaims(object{"sub": 1}).token(), "unreadable claims", false},
		{"sub too long", good.withClaims(object{"sub": strings.Repeat("ä", 256)}).token(), "no usable sub", false},
		{"sub with a line break", good.withClaims(object{"sub": "ana\nlevel=error"}).token(), "no usable sub", false},
		{"sub with NUL", good.withClaims(object{"sub": "ana\x00"}).token(), "no usable sub", false},
		{"sub twice", assemble(encode(good.header), []byte(strings.Replace(string(encode(good.claims)), `{`, `{"sub":"root",`, 1)), good.sign), "unreadable claims", false},
		{"exp twice", assemble(encode(good.header), []byte(strings.Replace(string(encode(good.claims)), `{`, `{"exp":4102444800,`, 1)), good.sign), "unreadable claims", false},
		{"app without its id", good.withClaims(object{"app_id": nil}).token(), "by half", true},
		{"app without its name", good.withClaims(object{"tenant_id": nil}).token(), "by half", true},
		{"no app", good.withClaims(object{"tenant_id": nil, "app_id": nil}).token(), "names no app", true},
		{"no app, the platform's role", good.withClaims(object{"tenant_id": nil, "app_id": nil, "roles": []string{"platform_operator"}}).token(), "names no app", true},
		{"tenant_id a list", good.withClaims(object{"tenant_id": []string{"acme", "globex"}}).token(), "unreadable claims", false},
		{"roles a string", good.withClaims(object{"roles": "admin"}).token(), "unreadable claims", false},
		{"roles of numbers", good.withClaims(object{"roles": []int{1}}).token(), "unreadable claims", false},
		{"scope a number", good.withClaims(object{"scope": 1}).token(), "unreadable claims", false},
		{"claims a list", assemble(encode(good.header), []byte(`["sub"]`), good.sign), "unreadable claims", false},
		{"claims no JSON", assemble(encode(good.header), []byte(`sub=ana`), good.sign), "unreadable claims", false},
		{"claims and more", assemble(encode(good.header), append(encode(good.claims), "{}"...), good.sign), "unreadable claims", false},
	}
}
