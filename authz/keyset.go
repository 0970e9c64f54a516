package authz

import (
	"context"

	"github.com/go-jose/go-jose/v4"
)

// KeySet is the set of public keys of one issuer.
type KeySet interface {
	// FindKey returns the key with the id kid, or [jwks.ErrUnknownKey]. Any other error means that it could not be
	// determined. kid comes from the token and is not trusted: it may only be compared.
	FindKey(ctx context.Context, kid string) (jose.JSONWebKey, error)
	// Generation changes whenever the set changes; it is local to this process, and not that of an app. A token that was
	// verified at another generation is verified again.
	Generation() uint64
}

// tokenAlgorithms are the accepted signature algorithms (RFC 7518, RFC 8037). All are asymmetric: with a MAC, a
// verifier could also sign.
var tokenAlgorithms = []jose.SignatureAlgorithm{jose.EdDSA, jose.RS256, jose.ES256}
