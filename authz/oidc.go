package authz

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4/jwt"
)

// verifyClaims returns the claims of token, which was parsed to signed, verified as OpenID Connect Core 1.0, section
// 3.1.3.7, demands: signature, issuer and audience. The times are left to [tokenClaims.checkTimes].
func (i TrustedIssuer) verifyClaims(ctx context.Context, token string, signed *jwt.JSONWebToken) (tokenClaims, error) {
	s := &tokenKeySet{keys: i.Keys, signed: signed}
	_, err := oidc.NewVerifier(i.Issuer, s, &oidc.Config{
		ClientID: i.Audience, SupportedSigningAlgs: []string{oidc.EdDSA, oidc.RS256, oidc.ES256}, SkipExpiryCheck: true,
	}).Verify(ctx, token)
	switch {
	case s.err != nil:
		return tokenClaims{}, s.err // the library's error no longer wraps it
	case err != nil:
		return tokenClaims{}, unauthenticatedBecause("not a valid token of its issuer", err)
	}
	return readClaims(signed)
}

// readClaims reads the claims of a token without verifying them, with the parser that refuses duplicate names.
func readClaims(signed *jwt.JSONWebToken) (tokenClaims, error) {
	var c tokenClaims
	if err := signed.UnsafeClaimsWithoutVerification(&c); err != nil {
		return tokenClaims{}, unauthenticatedBecause("unreadable claims", err)
	}
	return c, nil
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
