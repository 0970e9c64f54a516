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
	maxToken  = 8 << 10     // bytes
	maxTrust  = time.Minute // how long a verified token is believed without another look
	maxCached = 16 << 10    // tokens
)

// Verifier turns bearer tokens into principals. It remembers the tokens it found good for a minute at most, and never
// beyond their expiry, a change of their issuer's keys or the end of its acceptance. It is safe for concurrent use.
type Verifier struct {
	fixed []*entry
	roll  atomic.Pointer[roll]
	cache *otter.Cache[[sha256.Size]byte, verified]
}

// verified is a token that was found good.
type verified struct {
	principal Principal
	until     time.Time
	from      *entry
	version   uint64 // of its keys
}

// NewVerifier returns a verifier that accepts the tokens of fixed, always, and of the apps' own issuers while a
// [Registry] lists them.
func NewVerifier(fixed ...Accepted) *Verifier {
	v := &Verifier{cache: otter.Must(&otter.Options[[sha256.Size]byte, verified]{MaximumSize: maxCached})}
	for _, a := range fixed {
		v.fixed = append(v.fixed, &entry{Accepted: a})
	}
	v.accept(nil)
	return v
}

// Reserved reports whether v itself accepts tokens of issuer for audience, so that they can be no app's. Everything of
// the built-in issuer is reserved.
func (v *Verifier) Reserved(issuer, audience string) bool {
	return slices.ContainsFunc(v.fixed, func(e *entry) bool {
		return e.Issuer == issuer && (e.Audience == audience || e.BuiltIn)
	})
}

// accept makes apps the issuers of apps that are accepted.
func (v *Verifier) accept(apps []*entry) {
	next := roll{}
	for _, e := range slices.Concat(v.fixed, apps) {
		next[e.Issuer] = append(next[e.Issuer], e)
	}
	v.roll.Store(&next)
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
	if known, ok := v.cache.GetIfPresent(hash); ok && now.Before(known.until) && known.from.stands(known.version) {
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
	from, err := v.roll.Load().find(said)
	if err != nil {
		return verified{}, err
	}
	version := from.Keys.Version() // before the key is looked up: a change in between makes the entry stale
	if err := from.confirm(ctx, token, signed); err != nil {
		return verified{}, err
	}
	if err := said.alive(now); err != nil {
		return verified{}, err
	}
	p, err := from.principal(said)
	if err != nil {
		return verified{}, err
	}
	until := now.Add(maxTrust)
	if p.Expires.Before(until) {
		until = p.Expires
	}
	return verified{principal: p, until: until, from: from, version: version}, nil
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
	return nil
}

func checkSignature(ctx context.Context, keys KeySet, signed *jwt.JSONWebToken) error {
	h := signed.Headers[0]
	key, err := keys.Key(ctx, h.KeyID)
	switch {
	case errors.Is(err, ErrUnknownKey) && h.KeyID == "":
		return refuse("names no key")
	case errors.Is(err, ErrUnknownKey):
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
