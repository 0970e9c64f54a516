package authz

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/maypok86/otter/v2"
)

const (
	maxToken  = 8 << 10     // bytes
	maxTrust  = time.Minute // how long a verified token is believed without another look
	maxCached = 16 << 10    // tokens
)

// Accepted is one issuer whose tokens are accepted: those that say exactly Issuer, and Audience among their audiences,
// and are signed by one of Keys.
type Accepted struct {
	Issuer   string
	Audience string
	Keys     KeySet
}

// Verifier turns bearer tokens into principals. It remembers the tokens it found good for a minute at most, and never
// beyond their expiry or a change of their issuer's keys. It is safe for concurrent use.
type Verifier struct {
	accepted []Accepted
	cache    *otter.Cache[[sha256.Size]byte, verified]
}

// verified is a token that was found good.
type verified struct {
	principal Principal
	until     time.Time
	keys      KeySet
	version   uint64 // of keys
}

// NewVerifier returns a verifier that accepts the tokens of accepted and no others.
func NewVerifier(accepted ...Accepted) *Verifier {
	return &Verifier{
		accepted: accepted,
		cache:    otter.Must(&otter.Options[[sha256.Size]byte, verified]{MaximumSize: maxCached}),
	}
}

// IsToken reports whether credential has the form of a token, good or bad. An admin secret has another.
func IsToken(credential string) bool { return strings.Count(credential, ".") == 2 }

// Verify returns whom token speaks for. Whatever is wrong with it is an [ErrUnauthenticated]; any other error says that
// an issuer's keys could not be had. Whether the app is there, takes calls and has not revoked the token is for its door
// to say, at each call.
func (v *Verifier) Verify(ctx context.Context, token string) (Principal, error) {
	if token == "" {
		return Principal{}, refuse("no credential")
	}
	if len(token) > maxToken {
		return Principal{}, refuse("longer than 8 KiB")
	}
	hash := sha256.Sum256([]byte(token))
	now := time.Now()
	if known, ok := v.cache.GetIfPresent(hash); ok && now.Before(known.until) && known.version == known.keys.Version() {
		return known.principal, nil
	}
	found, err := v.verify(ctx, token, now)
	if err != nil {
		return Principal{}, err
	}
	v.cache.Set(hash, found)
	return found.principal, nil
}

func (v *Verifier) verify(ctx context.Context, token string, now time.Time) (verified, error) {
	if !canonical(token) {
		return verified{}, refuse("not three parts of base64url")
	}
	signed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return verified{}, refuseFor("not a signed token", err)
	}
	if err := checkHeader(signed); err != nil {
		return verified{}, err
	}
	var said claims
	if err := signed.UnsafeClaimsWithoutVerification(&said); err != nil {
		return verified{}, refuseFor("unreadable claims", err)
	}
	from, err := v.issuer(said)
	if err != nil {
		return verified{}, err
	}
	version := from.Keys.Version() // before the key is looked up: a change in between makes the entry stale
	if err := checkSignature(ctx, from.Keys, signed); err != nil {
		return verified{}, err
	}
	if err := said.alive(now); err != nil {
		return verified{}, err
	}
	p, err := said.principal()
	if err != nil {
		return verified{}, err
	}
	until := now.Add(maxTrust)
	if p.Expires.Before(until) {
		until = p.Expires
	}
	return verified{principal: p, until: until, keys: from.Keys, version: version}, nil
}

// issuer returns the entry that said claims to come from.
func (v *Verifier) issuer(said claims) (Accepted, error) {
	known := false
	for _, a := range v.accepted {
		if a.Issuer != said.Issuer {
			continue
		}
		known = true
		if said.Audience.Contains(a.Audience) {
			return a, nil
		}
	}
	if known {
		return Accepted{}, refuse("meant for another audience")
	}
	return Accepted{}, refuse("from an issuer that is not accepted")
}

// checkHeader refuses what a token's header may not ask for. Keys and addresses of keys that it brings along (jwk, jku,
// x5u, x5c) are never looked at.
func checkHeader(signed *jwt.JSONWebToken) error {
	if len(signed.Headers) != 1 {
		return refuse("more than one signature")
	}
	h := signed.Headers[0]
	if _, ok := h.ExtraHeaders["crit"]; ok {
		return refuse("demands an extension")
	}
	if typ, ok := h.ExtraHeaders["typ"]; ok {
		name, _ := typ.(string)
		name = strings.TrimPrefix(strings.ToLower(name), "application/")
		if !slices.Contains([]string{"jwt", "at+jwt"}, name) {
			return refuse("another type of token")
		}
	}
	if h.KeyID == "" {
		return refuse("names no key")
	}
	return nil
}

func checkSignature(ctx context.Context, keys KeySet, signed *jwt.JSONWebToken) error {
	h := signed.Headers[0]
	key, err := keys.Key(ctx, h.KeyID)
	if errors.Is(err, ErrUnknownKey) {
		return refuse("signed by an unknown key")
	}
	if err != nil {
		return fmt.Errorf("find the key of a token: %w", err)
	}
	alg, err := algorithm(key)
	if err != nil {
		return refuseFor("signed by an unusable key", err)
	}
	if h.Algorithm != string(alg) {
		return refuse("signed with another algorithm than the key's")
	}
	if err := signed.Claims(key.Key); err != nil {
		return refuse("wrong signature")
	}
	return nil
}

// canonical reports whether token is three parts of base64url as an encoder would write them, so that no second
// spelling of a token passes: no line breaks, no padding, no stray bits at the end.
func canonical(token string) bool {
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
