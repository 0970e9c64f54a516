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

// ErrUnknownKey reports that a key set has no key with the requested id.
var ErrUnknownKey = errors.New("unknown key")

// KeySet is the set of public keys of one issuer.
type KeySet interface {
	// FindKey returns the key with the id kid, or [ErrUnknownKey]. Any other error means that it could not be
	// determined. kid comes from the token and is not trusted: it may only be compared.
	FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error)
	// Generation changes whenever the set changes. A token that was verified at another generation is verified again.
	Generation() uint64
}

// tokenAlgorithms are the accepted signature algorithms (RFC 7518, RFC 8037). All are asymmetric: with a MAC, a
// verifier could also sign.
var tokenAlgorithms = []jose.SignatureAlgorithm{jose.EdDSA, jose.RS256, jose.ES256}

// minRSABits is the least size of an RSA key (RFC 7518, section 3.3).
const minRSABits = 2048

// keyAlgorithm returns the one algorithm that key may be used with, or an error if tokens may not be signed by it. The
// header of a token has no influence (RFC 8725, section 3.1).
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
