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
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
)

var agentNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

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

// IssueToken signs a token for app. A spec that asks for something that does not exist is an [agentsvc.InvalidError] that
// says what does. The token is issued later than everything app has revoked: right after a revocation Mint waits until
// the second is over.
func (i *Issuer) IssueToken(ctx context.Context, app *tenancy.App, spec TokenSpec) (Token, error) {
	if app.ID == "" || app.Name == "" {
		return Token{}, fmt.Errorf("mint a token: the app is unknown")
	}
	if len(spec.Roles) == 0 {
		spec.Roles = []string{RoleCaller}
	}
	if err := checkRoles(app, spec.Roles); err != nil {
		return Token{}, err
	}
	scope, err := normalizeScope(spec.Scope)
	if err != nil {
		return Token{}, err
	}
	return i.signToken(ctx, app, spec, tokenClaims{AppName: app.Name, App: app.ID, Roles: spec.Roles, Scope: scope})
}

// signToken completes c, of a token for app, and signs it with the current key.
func (i *Issuer) signToken(ctx context.Context, app *tenancy.App, spec TokenSpec, c tokenClaims) (Token, error) {
	if err := checkSubject(spec.Subject); err != nil {
		return Token{}, err
	}
	ttl, err := checkTTL(spec.TTL)
	if err != nil {
		return Token{}, err
	}
	now, err := i.keyStore.databaseNow(ctx)
	if err != nil {
		return Token{}, err
	}
	issued := app.TokenIssueTime(spec.Subject, now)
	if err := waitForNextSecond(ctx, issued.Sub(now)); err != nil {
		return Token{}, err
	}
	c.Claims = jwt.Claims{
		Issuer: i.name, Subject: spec.Subject, Audience: jwt.Audience{builtInAudience}, ID: agentsvc.NewID(),
		IssuedAt: jwt.NewNumericDate(issued), Expiry: jwt.NewNumericDate(issued.Add(ttl)),
	}
	key := currentSigningKey(i.snapshot.Load().keys, now)
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
	if len(text) > maxTokenBytes {
		return Token{}, agentsvc.NewInvalidError("scope", "the token would be longer than 8 KiB, ask for fewer agents")
	}
	return Token{Text: text, TTL: ttl}, nil
}

// waitForNextSecond lets the second of a revocation pass. A token dated ahead instead would outlive the next revocation of that
// second. It waits no longer than that, whatever the database's clock did meanwhile.
func waitForNextSecond(ctx context.Context, d time.Duration) error {
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
	case !isValidSubject(sub):
		return agentsvc.NewInvalidError("sub", "must be 1 to %d printable characters", maxSubjectLength)
	case strings.HasPrefix(sub, APIKeySubjectPrefix):
		return agentsvc.NewInvalidError("sub", `names that begin with "key:" belong to API keys`)
	}
	return nil
}

func checkTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return defaultTokenTTL, nil
	case ttl < time.Second || ttl > maxTokenTTL || ttl%time.Second != 0:
		return 0, agentsvc.NewInvalidError("ttl", "must be between 1s and %dh (30 days), in whole seconds", int(maxTokenTTL.Hours()))
	}
	return ttl, nil
}

// checkRoles refuses roles that app does not have.
func checkRoles(app *tenancy.App, roles []string) error {
	exist := BuiltInRoleNames()
	for _, r := range app.Roles {
		exist = append(exist, r.Name)
	}
	for _, r := range roles {
		switch {
		case r == RolePlatformOperator:
			return agentsvc.NewInvalidError("roles", "%s is the platform's own role and cannot be had in an app; roles are %s", r, strings.Join(exist, ", "))
		case !slices.Contains(exist, r):
			return agentsvc.NewInvalidError("roles", "unknown role %q; roles are %s", r, strings.Join(exist, ", "))
		}
	}
	return nil
}

// normalizeScope returns claim without repetitions, or what is wrong with it.
func normalizeScope(claim string) (string, error) {
	for word := range strings.FieldsSeq(claim) {
		if err := checkScopeName("scope", word); err != nil {
			return "", err
		}
	}
	var words []string
	for _, s := range parseNarrowingScopes(claim) {
		words = append(words, string(s))
	}
	return strings.Join(words, " "), nil
}
