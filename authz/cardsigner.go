package authz

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"stoa/tenancy/keyring"
)

// CardSigner signs agent cards (A2A specification, "Agent Card Signing", with JSON Web Signatures of RFC 7515). Its
// Ed25519 keys are derived from the master keys, so that all processes have the same keys and none is stored. They sign
// nothing else: an app determines the content of its cards, so with a shared key it could obtain a signed token.
// Ed25519 is deterministic, so an unchanged card keeps its signature.
type CardSigner struct {
	signer jose.Signer
	jwks   []byte
}

// NewCardSigner returns a signer with keys derived from k: that of the first master key signs, all are published. url
// is the address of the published keys, which signatures name in jku.
func NewCardSigner(k *keyring.Keyring, url string) (*CardSigner, error) {
	seeds, err := k.DeriveKeys("agent cards")
	if err != nil {
		return nil, err
	}
	s, set := &CardSigner{}, jose.JSONWebKeySet{}
	for _, seed := range seeds {
		private := ed25519.NewKeyFromSeed(seed)
		key := jose.JSONWebKey{Key: private.Public(), Algorithm: string(jose.EdDSA), Use: "sig"}
		sum, err := key.Thumbprint(crypto.SHA256)
		if err != nil {
			return nil, err
		}
		key.KeyID = base64.RawURLEncoding.EncodeToString(sum)
		set.Keys = append(set.Keys, key)
		if s.signer != nil {
			continue
		}
		o := (&jose.SignerOptions{}).WithType("JOSE").WithHeader("jku", url)
		if s.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: key.KeyID}}, o); err != nil {
			return nil, err
		}
	}
	s.jwks, err = json.Marshal(set)
	return s, err
}

// JWKS returns the public keys as a JSON Web Key Set (RFC 7517).
func (s *CardSigner) JWKS() []byte { return s.jwks }

// Sign returns the protected header and the signature of payload, both as base64url.
func (s *CardSigner) Sign(payload []byte) (protected, signature string, err error) {
	signed, err := s.signer.Sign(payload)
	if err != nil {
		return "", "", err
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		return "", "", err
	}
	protected, remainder, _ := strings.Cut(compact, ".")
	_, signature, _ = strings.Cut(remainder, ".")
	return protected, signature, nil
}
