package authz

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"stoa/agentsvc"
	"stoa/tenancy"
)

const (
	defaultTTL = time.Hour
	maxTTL     = 30 * 24 * time.Hour
)

var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// TokenSpec says what a token is to be good for.
type TokenSpec struct {
	Subject string        // 1 to 255 printable characters
	Roles   []string      // of [Roles] or the app's own; none: caller
	Scope   string        // scopes with spaces between them, which narrow the roles; "": nothing does
	TTL     time.Duration // whole seconds up to 30 days; 0: one hour
}

// Token is a bearer token, fresh from the issuer.
type Token struct {
	Text string
	TTL  time.Duration
}

// Mint signs a token for app. A spec that asks for something that does not exist is an [agentsvc.InvalidError] that
// says what does. The token is issued later than everything app has revoked: right after a revocation Mint waits until
// the second is over.
func (i *Issuer) Mint(ctx context.Context, app *tenancy.App, spec TokenSpec) (Token, error) {
	if app.ID == "" || app.Name == "" {
		return Token{}, fmt.Errorf("mint a token: the app is unknown")
	}
	if len(spec.Roles) == 0 {
		spec.Roles = []string{RoleCaller}
	}
	if err := checkRoles(app, spec.Roles); err != nil {
		return Token{}, err
	}
	scope, err := checkScope(spec.Scope)
	if err != nil {
		return Token{}, err
	}
	return i.sign(ctx, app, spec, claims{AppName: app.Name, App: app.ID, Roles: spec.Roles, Scope: scope})
}

// sign completes c, of a token for app, and signs it with the current key.
func (i *Issuer) sign(ctx context.Context, app *tenancy.App, spec TokenSpec, c claims) (Token, error) {
	if err := checkSubject(spec.Subject); err != nil {
		return Token{}, err
	}
	ttl, err := checkTTL(spec.TTL)
	if err != nil {
		return Token{}, err
	}
	now, err := i.keys.now(ctx)
	if err != nil {
		return Token{}, err
	}
	issued := app.IssueAt(spec.Subject, now)
	if err := await(ctx, issued.Sub(now)); err != nil {
		return Token{}, err
	}
	c.Claims = jwt.Claims{
		Issuer: i.name, Subject: spec.Subject, Audience: jwt.Audience{audience}, ID: agentsvc.NewID(),
		IssuedAt: jwt.NewNumericDate(issued), Expiry: jwt.NewNumericDate(issued.Add(ttl)),
	}
	key := signing(i.held.Load().keys, now)
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key.private, KeyID: key.id}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return Token{}, fmt.Errorf("prepare to sign a token: %w", err)
	}
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return Token{}, fmt.Errorf("sign a token: %w", err)
	}
	if len(text) > maxToken {
		return Token{}, agentsvc.Invalid("scope", "the token would be longer than 8 KiB, ask for fewer agents")
	}
	return Token{Text: text, TTL: ttl}, nil
}

// await lets the second of a revocation pass. A token dated ahead instead would outlive the next revocation of that
// second. It waits no longer than that, whatever the database's clock did meanwhile.
func await(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	passed := time.NewTimer(min(d, time.Second))
	defer passed.Stop()
	select {
	case <-passed.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func checkSubject(sub string) error {
	switch {
	case !validSubject(sub):
		return agentsvc.Invalid("sub", "must be 1 to %d printable characters", maxSubject)
	case strings.HasPrefix(sub, SubjectOfKey):
		return agentsvc.Invalid("sub", `names that begin with "key:" belong to API keys`)
	}
	return nil
}

func checkTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return defaultTTL, nil
	case ttl < time.Second || ttl > maxTTL || ttl%time.Second != 0:
		return 0, agentsvc.Invalid("ttl", "must be between 1s and %dh (30 days), in whole seconds", int(maxTTL.Hours()))
	}
	return ttl, nil
}

// checkRoles refuses roles that app does not have.
func checkRoles(app *tenancy.App, roles []string) error {
	exist := Roles()
	for _, r := range app.Roles {
		exist = append(exist, r.Name)
	}
	for _, r := range roles {
		switch {
		case r == RolePlatformOperator:
			return agentsvc.Invalid("roles", "%s is the platform's own role and cannot be had in an app; roles are %s", r, strings.Join(exist, ", "))
		case !slices.Contains(exist, r):
			return agentsvc.Invalid("roles", "unknown role %q; roles are %s", r, strings.Join(exist, ", "))
		}
	}
	return nil
}

// checkScope returns claim without repetitions, or what is wrong with it.
func checkScope(claim string) (string, error) {
	for word := range strings.FieldsSeq(claim) {
		if err := checkWord("scope", word); err != nil {
			return "", err
		}
	}
	var words []string
	for _, s := range narrowing(claim) {
		words = append(words, string(s))
	}
	return strings.Join(words, " "), nil
}
