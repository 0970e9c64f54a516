package authz

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"stoa/authz/jwks"
	"stoa/authz/jwks/jwkstest"
)

// fixedKeys is a key set that never changes.
type fixedKeys map[string]jose.JSONWebKey

func (f fixedKeys) FindKey(_ context.Context, kid string) (jose.JSONWebKey, error) {
	if key, ok := f[kid]; ok {
		return key, nil
	}
	return jose.JSONWebKey{}, jwks.ErrUnknownKey
}

func (f fixedKeys) Generation() uint64 { return 1 }

func newTestIssuer() TrustedIssuer {
	k := jwkstest.Keys()
	return TrustedIssuer{Issuer: "https://issuer.example", Audience: "stoa", BuiltIn: true, Keys: fixedKeys{
		"ed":        {Key: k.Ed.Public()},
		"rsa":       {Key: k.RSA.Public(), Algorithm: "RS256"},
		"ec":        {Key: k.EC.Public()},
		"short-rsa": {Key: k.ShortRSA.Public()},
		"long-ec":   {Key: k.LongEC.Public()},
		"rs512":     {Key: k.RSA.Public(), Algorithm: "RS512"},
		"symmetric": {Key: []byte("a secret that both sides know, 32 bytes")},
		"private":   {Key: k.Ed},
	}}
}

// tokenDraft is a token before signing: its header, its claims, and the key.
type tokenDraft struct {
	header map[string]any
	claims map[string]any
	sign   func(input []byte) []byte
}

// newValidToken returns the draft of a valid token with changes. A nil value in a change removes the field.
func newValidToken(now time.Time) tokenDraft {
	return tokenDraft{
		header: map[string]any{"alg": "EdDSA", "kid": "ed", "typ": "JWT"},
		claims: map[string]any{
			"iss": "https://issuer.example", "aud": "stoa", "sub": "ana", "tenant_id": "acme", "app_id": "id-of-acme",
			"roles": []string{"caller"}, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		},
		sign: signEd(jwkstest.Keys().Ed),
	}
}

func (d tokenDraft) withHeader(changes map[string]any) tokenDraft {
	d.header = applyChanges(d.header, changes)
	return d
}

func (d tokenDraft) withClaims(changes map[string]any) tokenDraft {
	d.claims = applyChanges(d.claims, changes)
	return d
}

func (d tokenDraft) signedBy(sign func([]byte) []byte) tokenDraft {
	d.sign = sign
	return d
}

func (d tokenDraft) encodeToken() string {
	return assembleToken(encodeJSON(d.header), encodeJSON(d.claims), d.sign)
}

func applyChanges(m, changes map[string]any) map[string]any {
	m = maps.Clone(m)
	for k, v := range changes {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	return m
}

func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func encodeBase64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func assembleToken(header, claims []byte, sign func([]byte) []byte) string {
	input := encodeBase64(header) + "." + encodeBase64(claims)
	return input + "." + encodeBase64(sign([]byte(input)))
}

func signEd(key ed25519.PrivateKey) func([]byte) []byte {
	return func(input []byte) []byte { return ed25519.Sign(key, input) }
}

func signHMAC(key []byte) func([]byte) []byte {
	return func(input []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(input)
		return h.Sum(nil)
	}
}

func signRSA(key *rsa.PrivateKey, hash crypto.Hash) func([]byte) []byte {
	return func(input []byte) []byte {
		h := hash.New()
		h.Write(input)
		sig, err := rsa.SignPKCS1v15(nil, key, hash, h.Sum(nil))
		if err != nil {
			panic(err)
		}
		return sig
	}
}

func signPSS(key *rsa.PrivateKey) func([]byte) []byte {
	return func(input []byte) []byte {
		sum := sha256.Sum256(input)
		sig, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], nil)
		if err != nil {
			panic(err)
		}
		return sig
	}
}

func signEC(key *ecdsa.PrivateKey) func([]byte) []byte {
	return func(input []byte) []byte {
		sum := sha256.Sum256(input)
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			panic(err)
		}
		size := (key.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	}
}

func signDER(key *ecdsa.PrivateKey) func([]byte) []byte {
	return func(input []byte) []byte {
		sum := sha256.Sum256(input)
		sig, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
		if err != nil {
			panic(err)
		}
		return sig
	}
}

func signNothing([]byte) []byte { return nil }

func signZeros(n int) func([]byte) []byte {
	return func([]byte) []byte { return make([]byte, n) }
}

// setUnusedBit returns token with a bit set in its last character that encodes no byte of the signature.
func setUnusedBit(t *testing.T, token string) string {
	t.Helper()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	if last&1 != 0 {
		t.Fatal("the last character has no unused bit")
	}
	return token[:len(token)-1] + string(alphabet[last|1])
}
