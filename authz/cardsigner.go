package authz

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"stoa/tenancy"
)

// CardSigner signs what agents' cards say (RFC 7515). Its Ed25519 keys follow from the master keys, so that all processes have the
// same and none need be kept; they sign nothing else, since what a card says is its app's to choose. A card that did not change
// has the signature it had.
type CardSigner struct {
	signer jose.Signer
	jwks   []byte
}

// NewCardSigner returns a signer with k's keys: the newest signs, all are among the public ones, which signatures say lie at url.
func NewCardSigner(k *tenancy.Keyring, url string) (*CardSigner, error) {
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

// Sign returns the protected header and the signature of payload, both in base64url.
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
