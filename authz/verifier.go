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
)

const (
	maxTokenBytes   = 8 << 10     // bytes
	tokenCacheTTL   = time.Minute // how long a verified token is believed without another look
	maxCacheEntries = 16 << 10    // tokens
)

// Verifier turns bearer tokens into principals. It remembers the tokens it found good for a minute at most, and never
// beyond their expiry, a change of their issuer's keys or the end of its acceptance. It is safe for concurrent use.
type Verifier struct {
	fixedIssuers []*issuerEntry
	issuers      atomic.Pointer[issuerTable]
	cache        *otter.Cache[[sha256.Size]byte, verifiedToken]
}

// verifiedToken is a token that was found good.
type verifiedToken struct {
	principal     Principal
	validUntil    time.Time
	issuer        *issuerEntry
	keyGeneration uint64 // of its keys
}

// NewVerifier returns a verifier that accepts the tokens of fixed, always, and of the apps' own issuers while a
// [IssuerRegistry] lists them.
func NewVerifier(fixed ...TrustedIssuer) *Verifier {
	v := &Verifier{cache: otter.Must(&otter.Options[[sha256.Size]byte, verifiedToken]{MaximumSize: maxCacheEntries})}
	for _, a := range fixed {
		v.fixedIssuers = append(v.fixedIssuers, &issuerEntry{TrustedIssuer: a})
	}
	v.setAppIssuers(nil)
	return v
}

// IsReserved reports whether v itself accepts tokens of issuer for audience, so that they can be no app's. Everything of
// the built-in issuer is reserved.
func (v *Verifier) IsReserved(issuer, audience string) bool {
	return slices.ContainsFunc(v.fixedIssuers, func(e *issuerEntry) bool {
		return e.Issuer == issuer && (e.Audience == audience || e.BuiltIn)
	})
}

// setAppIssuers makes apps the issuers of apps that are accepted.
func (v *Verifier) setAppIssuers(apps []*issuerEntry) {
	next := issuerTable{}
	for _, e := range slices.Concat(v.fixedIssuers, apps) {
		next[e.Issuer] = append(next[e.Issuer], e)
	}
	v.issuers.Store(&next)
}

// IsToken reports whether credential has the form of a token, good or bad. An admin secret has another.
func IsToken(credential string) bool { return strings.Count(credential, ".") == 2 }

// VerifyToken returns whom token speaks for. Whatever is wrong with it is an [ErrUnauthenticated]; any other error says that
// an issuer's keys could not be had. Whether the app is there, takes calls and has not revoked the token is for its door
// to say, at each call.
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
	var unverified tokenClaims
	if err := signed.UnsafeClaimsWithoutVerification(&unverified); err != nil {
		return verifiedToken{}, unauthenticatedBecause("unreadable claims", err)
	}
	from, err := v.issuers.Load().findIssuer(unverified)
	if err != nil {
		return verifiedToken{}, err
	}
	generation := from.Keys.Generation() // before the key is looked up: a change in between makes the entry stale
	if err := from.verifyOIDC(ctx, token, signed); err != nil {
		return verifiedToken{}, err
	}
	if err := unverified.checkTimes(now); err != nil {
		return verifiedToken{}, err
	}
	p, err := from.newPrincipal(unverified)
	if err != nil {
		return verifiedToken{}, err
	}
	until := now.Add(tokenCacheTTL)
	if p.Expires.Before(until) {
		until = p.Expires
	}
	return verifiedToken{principal: p, validUntil: until, issuer: from, keyGeneration: generation}, nil
}

// checkHeader refuses what a token's header may not ask for. Keys and addresses of keys that it brings along (jwk, jku,
// x5u, x5c) are never looked at.
func checkHeader(signed *jwt.JSONWebToken) error {
	if len(signed.Headers) != 1 {
		return unauthenticated("more than one signature")
	}
	h := signed.Headers[0]
	if _, ok := h.ExtraHeaders["crit"]; ok {
		return unauthenticated("demands an extension")
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

func checkSignature(ctx context.Context, keys KeySet, signed *jwt.JSONWebToken) error {
	h := signed.Headers[0]
	key, err := keys.FindKey(ctx, h.KeyID)
	switch {
	case errors.Is(err, ErrUnknownKey) && h.KeyID == "":
		return unauthenticated("names no key")
	case errors.Is(err, ErrUnknownKey):
		return unauthenticated("signed by an unknown key")
	}
	if err != nil {
		return fmt.Errorf("find the key of a token: %w", err)
	}
	alg, err := keyAlgorithm(key)
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

// isCanonical reports whether token is three parts of base64url as an encoder would write them, so that no second
// spelling of a token passes: no line breaks, no padding, no stray bits at the end.
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
