package jwks

import (
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

// minRSABits is the least size of an RSA key (RFC 7518, section 3.3).
const minRSABits = 2048

// Algorithm returns the one algorithm that key may be used with, or an error if tokens may not be signed by it. The
// header of a token has no influence (RFC 8725, section 3.1).
func Algorithm(key jose.JSONWebKey) (jose.SignatureAlgorithm, error) {
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
