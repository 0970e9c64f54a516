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
	// defaultTokenTTL and maxTokenTTL are the lifetimes of tokens of the built-in issuer. A signing key is kept for
	// maxTokenTTL after its last use, see countRetired.
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
)

// agentNamePattern matches the names of agents that a scope may contain.
var agentNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// TokenSpec describes a token to issue.
type TokenSpec struct {
	// Subject has 1 to 255 printable characters.
	Subject string
	// Roles are built-in roles or roles of the app; none means [RoleCaller].
	Roles []string
	// Scope is a list of scopes, separated by spaces, that narrow the roles; "" does not narrow them.
	Scope string
	// TTL is the lifetime in whole seconds, up to 30 days; 0 means one hour.
	TTL time.Duration
}

// Token is an issued bearer token with its lifetime. It is not stored.
type Token struct {
	Text string
	TTL  time.Duration
}

// IssueToken issues a token for app, whose record must be current. A spec with an unknown role or scope, or with a bad
// subject or lifetime, is an error with [agentsvc.CodeInvalid]. The token is dated after every revocation of the app;
// within the second of a revocation IssueToken waits until that second is over.
func (i *BuiltInIssuer) IssueToken(ctx context.Context, app *tenancy.App, spec TokenSpec) (Token, error) {
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

// signToken completes the claims c and signs them with the current key. Times are those of the database, so that they
// compare with revocations whatever the clock of this process shows.
func (i *BuiltInIssuer) signToken(ctx context.Context, app *tenancy.App, spec TokenSpec, c tokenClaims) (Token, error) {
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

// waitForNextSecond waits for d, but at most a second, so that a token is not issued before its time. A token dated
// ahead would survive another revocation in the same second. The bound holds if the database's clock jumps.
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

// checkSubject refuses subjects that are not valid or that belong to API keys.
func checkSubject(sub string) error {
	switch {
	case !isValidSubject(sub):
		return agentsvc.NewInvalidError("sub", "must be 1 to %d printable characters", maxSubjectLength)
	case strings.HasPrefix(sub, tenancy.APIKeySubjectPrefix):
		return agentsvc.NewInvalidError("sub", `names that begin with "key:" belong to API keys`)
	}
	return nil
}

// checkTTL returns the lifetime with the default applied.
func checkTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return defaultTokenTTL, nil
	case ttl < time.Second || ttl > maxTokenTTL || ttl%time.Second != 0:
		return 0, agentsvc.NewInvalidError("ttl", "must be between 1s and %dh (30 days), in whole seconds", int(maxTokenTTL.Hours()))
	}
	return ttl, nil
}

// checkRoles returns an error with [agentsvc.CodeInvalid] if app does not have one of roles.
func checkRoles(app *tenancy.App, roles []string) error {
	exist := BuiltInRoleNames()
	for _, r := range app.Roles {
		exist = append(exist, r.Name)
	}
	for _, r := range roles {
		switch {
		case r == RolePlatformOperator:
			return agentsvc.NewInvalidError("roles", "%s is the platform's own role and cannot be given in an app; roles are %s", r, strings.Join(exist, ", "))
		case !slices.Contains(exist, r):
			return agentsvc.NewInvalidError("roles", "unknown role %q; roles are %s", r, strings.Join(exist, ", "))
		}
	}
	return nil
}

// normalizeScope returns the scopes of claim without repetitions, or an error with [agentsvc.CodeInvalid] for an
// unknown one.
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
