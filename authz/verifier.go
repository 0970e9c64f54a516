package authz

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/maypok86/otter/v2"

	"stoa/authz/jwks"
)

const (
	// maxTokenBytes bounds a token, in bytes, before any of it is parsed.
	maxTokenBytes = 8 << 10
	// tokenCacheTTL is how long a verified token is accepted without verifying its signature again.
	tokenCacheTTL = time.Minute
	// maxCacheEntries bounds a cache of verified credentials.
	maxCacheEntries = 16 << 10
)

// Verifier turns bearer tokens into principals. A verified token is cached for tokenCacheTTL at most, and never beyond
// its expiry, a change of its issuer's keys, or the removal of its issuer. It is safe for concurrent use.
type Verifier struct {
	// fixedIssuers are the built-in issuer and the server's OpenID provider; read-only after NewVerifier.
	fixedIssuers []*issuerEntry
	// issuers are all accepted issuers; setAppIssuers replaces the table as a whole.
	issuers atomic.Pointer[issuerTable]
	// cache is keyed by the SHA-256 of the token, so that no usable token is kept in memory.
	cache *otter.Cache[[sha256.Size]byte, verifiedToken]
}

// verifiedToken is a cache entry: the principal of a verified token and the conditions under which it remains valid.
type verifiedToken struct {
	principal  Principal
	validUntil time.Time
	issuer     *issuerEntry
	// keyGeneration is the generation of the issuer's keys with which the token was verified.
	keyGeneration uint64
}

// NewVerifier returns a verifier that always accepts the tokens of fixed, and those of the apps' own issuers as an
// [IssuerRegistry] sets them.
func NewVerifier(fixed ...TrustedIssuer) *Verifier {
	v := &Verifier{cache: otter.Must(&otter.Options[[sha256.Size]byte, verifiedToken]{MaximumSize: maxCacheEntries})}
	for _, a := range fixed {
		v.fixedIssuers = append(v.fixedIssuers, &issuerEntry{TrustedIssuer: a})
	}
	v.setAppIssuers(nil)
	return v
}

// IsReserved reports whether v itself accepts tokens of issuer for audience, so that no app may register the pair. The
// built-in issuer is reserved for every audience.
func (v *Verifier) IsReserved(issuer, audience string) bool {
	return slices.ContainsFunc(v.fixedIssuers, func(e *issuerEntry) bool {
		return e.Issuer == issuer && (e.Audience == audience || e.BuiltIn)
	})
}

// setAppIssuers replaces the issuers of apps; tokens of those that are missing are refused from now on.
func (v *Verifier) setAppIssuers(apps []*issuerEntry) {
	next := issuerTable{}
	for _, e := range slices.Concat(v.fixedIssuers, apps) {
		next[e.Issuer] = append(next[e.Issuer], e)
	}
	v.issuers.Store(&next)
}

// IsToken reports whether credential has the form of a signed token (three parts), valid or not. Admin secrets and API
// keys contain no two dots.
func IsToken(credential string) bool { return strings.Count(credential, ".") == 2 }

// VerifyToken returns the principal of a token. A token that is not valid is an [ErrUnauthenticated]; any other error
// means that the issuer's keys could not be fetched, and says nothing about the token. It does not check whether the
// app exists, is active and has not revoked the token: [router.AppRequest] does, at each request.
func (v *Verifier) VerifyToken(ctx context.Context, token string) (Principal, error) {
	if token == "" {
		return Principal{}, unauthenticated("no credential")
	}
	if len(token) > maxTokenBytes {
		return Principal{}, unauthenticated("longer than 8 KiB")
	}
	hash := sha256.Sum256([]byte(token))
	now := time.Now()
	if known, ok := v.cache.GetIfPresent(hash); ok && now.Before(known.validUntil) && known.issuer.isCurrent(known.keyGeneration) {
		return known.principal, nil
	}
	found, err := v.verifyUncached(ctx, token, now)
	if err != nil {
		return Principal{}, err
	}
	v.cache.Set(hash, found)
	return found.principal, nil
}

// verifyUncached verifies a token completely: form, header, issuer, signature and audience, times, then the principal.
// The issuer is looked up by unverified claims; nothing else is done with them before the signature is verified.
func (v *Verifier) verifyUncached(ctx context.Context, token string, now time.Time) (verifiedToken, error) {
	if !isCanonical(token) {
		return verifiedToken{}, unauthenticated("not three parts of base64url")
	}
	signed, err := jwt.ParseSigned(token, tokenAlgorithms)
	if err != nil {
		return verifiedToken{}, unauthenticatedBecause("not a signed token", err)
	}
	if err := checkHeader(signed); err != nil {
		return verifiedToken{}, err
	}
	unverified, err := readClaims(signed)
	if err != nil {
		return verifiedToken{}, err
	}
	from, err := v.issuers.Load().findIssuer(unverified)
	if err != nil {
		return verifiedToken{}, err
	}
	generation := from.Keys.Generation() // read before the key is looked up: if the keys change in between, the cache entry is outdated
	claims, err := from.verifyClaims(ctx, token, signed)
	if err != nil {
		return verifiedToken{}, err
	}
	if err := claims.checkTimes(now); err != nil {
		return verifiedToken{}, from.attributeRefusal(err, claims)
	}
	p, err := from.newPrincipal(claims)
	if err != nil {
		return verifiedToken{}, err
	}
	// A revocation needs no entry to expire early: it is checked on the app's record at each request.
	until := now.Add(tokenCacheTTL)
	if p.Expires.Before(until) {
		until = p.Expires
	}
	return verifiedToken{principal: p, validUntil: until, issuer: from, keyGeneration: generation}, nil
}

// checkHeader refuses headers with an effect on verification: a second signature, critical extensions (RFC 7515,
// section 4.1.11), and types of tokens other than access tokens and plain JWTs. Keys and addresses of keys in the
// header (jwk, jku, x5u, x5c) are never used.
func checkHeader(signed *jwt.JSONWebToken) error {
	if len(signed.Headers) != 1 {
		return unauthenticated("more than one signature")
	}
	h := signed.Headers[0]
	if _, ok := h.ExtraHeaders["crit"]; ok {
		return unauthenticated("requires an extension")
	}
	if typ, ok := h.ExtraHeaders["typ"]; ok {
		name, _ := typ.(string)
		name = strings.TrimPrefix(strings.ToLower(name), "application/")
		if !slices.Contains([]string{"jwt", "at+jwt"}, name) {
			return unauthenticated("another type of token")
		}
	}
	return nil
}

// checkSignature verifies the signature with the key that the header names. The algorithm follows from the key, not
// from the header (RFC 8725, section 3.1).
func checkSignature(ctx context.Context, keys KeySet, signed *jwt.JSONWebToken) error {
	h := signed.Headers[0]
	key, err := keys.FindKey(ctx, h.KeyID)
	switch {
	case errors.Is(err, jwks.ErrUnknownKey) && h.KeyID == "":
		return unauthenticated("names no key")
	case errors.Is(err, jwks.ErrUnknownKey):
		return unauthenticated("signed by an unknown key")
	}
	if err != nil {
		return fmt.Errorf("find the key of a token: %w", err)
	}
	alg, err := jwks.Algorithm(key)
	if err != nil {
		return unauthenticatedBecause("signed by an unusable key", err)
	}
	if h.Algorithm != string(alg) {
		return unauthenticated("signed with another algorithm than the key's")
	}
	if err := signed.Claims(key.Key); err != nil {
		return unauthenticated("wrong signature")
	}
	return nil
}

// isCanonical reports whether token consists of three parts of strict base64url without line breaks, padding or
// trailing bits, so that no token has a second spelling.
func isCanonical(token string) bool {
	if !IsToken(token) || strings.ContainsAny(token, "\r\n") {
		return false
	}
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || part == "" {
			return false
		}
	}
	return true
}
