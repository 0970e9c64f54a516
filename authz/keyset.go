package authz

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// ErrUnknownKey says that a key set has no key of the asked name.
var ErrUnknownKey = errors.New("unknown key")

// KeySet holds the public keys of one issuer.
type KeySet interface {
	// FindKey returns the key that kid names, [ErrUnknownKey] where there is none. Any other error says that it could not
	// be found out. kid comes from the token: it is a name to look up and nothing else.
	FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error)
	// Generation changes whenever the set does. What was verified under another version is verified again.
	Generation() uint64
}

// tokenAlgorithms are those that a token may be signed with: signatures by a key of which the verifier has the public half.
var tokenAlgorithms = []jose.SignatureAlgorithm{jose.EdDSA, jose.RS256, jose.ES256}

const minRSABits = 2048

// keyAlgorithm returns the one algorithm that key is for. The token has no say in it.
func keyAlgorithm(key jose.JSONWebKey) (jose.SignatureAlgorithm, error) {
	var alg jose.SignatureAlgorithm
	switch k := key.Key.(type) {
	case ed25519.PublicKey:
		alg = jose.EdDSA
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return "", fmt.Errorf("the RSA key has %d bits, at least %d are needed", k.N.BitLen(), minRSABits)
		}
		alg = jose.RS256
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return "", fmt.Errorf("the elliptic key is not on the curve P-256")
		}
		alg = jose.ES256
	default:
		return "", fmt.Errorf("a key of type %T signs no tokens", key.Key)
	}
	if key.Algorithm != "" && key.Algorithm != string(alg) {
		return "", fmt.Errorf("the key is for %s", key.Algorithm)
	}
	return alg, nil
}
