package authz

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4/jwt"
)

// verifyOIDC verifies token, which was parsed to signed, as OpenID Connect Core 1.0, section 3.1.3.7, demands:
// signature, issuer and audience. The times are left to [tokenClaims.checkTimes].
func (i TrustedIssuer) verifyOIDC(ctx context.Context, token string, signed *jwt.JSONWebToken) error {
	s := &tokenKeySet{keys: i.Keys, signed: signed}
	_, err := oidc.NewVerifier(i.Issuer, s, &oidc.Config{
		ClientID: i.Audience, SupportedSigningAlgs: []string{oidc.EdDSA, oidc.RS256, oidc.ES256}, SkipExpiryCheck: true,
	}).Verify(ctx, token)
	switch {
	case s.err != nil:
		return s.err // the library's error no longer wraps it
	case err != nil:
		return unauthenticatedBecause("not a valid token of its issuer", err)
	}
	return nil
}

// tokenKeySet is the [oidc.KeySet] for verifying one token. It keeps the error of the signature, which distinguishes a
// bad token from keys that could not be fetched.
type tokenKeySet struct {
	keys   KeySet
	signed *jwt.JSONWebToken
	err    error
}

// VerifySignature returns the payload of token if its signature is valid.
func (s *tokenKeySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	if s.err = checkSignature(ctx, s.keys, s.signed); s.err != nil {
		return nil, s.err
	}
	return base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
}
