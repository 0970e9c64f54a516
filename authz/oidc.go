package authz

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4/jwt"
)

// verifyOIDC has token, which was parsed to signed, verified as OpenID Connect does it (Core 1.0, 3.1.3.7): a signature by a
// key of a, a's issuer and a's audience. Its times are for [claims.checkTimes], which knows no leeway at their end.
func (a TrustedIssuer) verifyOIDC(ctx context.Context, token string, signed *jwt.JSONWebToken) error {
	s := &tokenKeySet{keys: a.Keys, signed: signed}
	_, err := oidc.NewVerifier(a.Issuer, s, &oidc.Config{
		ClientID: a.Audience, SupportedSigningAlgs: []string{oidc.EdDSA, oidc.RS256, oidc.ES256}, SkipExpiryCheck: true,
	}).Verify(ctx, token)
	switch {
	case s.err != nil:
		return s.err // what the library makes of it has lost its type
	case err != nil:
		return unauthenticatedBecause("not what its issuer's tokens are", err)
	}
	return nil
}

// tokenKeySet is the [oidc.KeySet] of one token.
type tokenKeySet struct {
	keys   KeySet
	signed *jwt.JSONWebToken
	err    error
}

// VerifySignature returns the payload of token if its signature is good.
func (s *tokenKeySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	if s.err = checkSignature(ctx, s.keys, s.signed); s.err != nil {
		return nil, s.err
	}
	return base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
}
