package authz

import (
	"slices"
	"strings"
	"sync/atomic"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// TrustedIssuer is one issuer whose tokens are accepted: those that say exactly Issuer, and Audience among their audiences,
// and are signed by one of Keys.
type TrustedIssuer struct {
	Issuer   string
	Audience string
	Keys     KeySet

	// BuiltIn is the issuer of this house: its tokens name apps by name and immutable id.
	BuiltIn bool
	// App and AppName are the one app that the tokens speak for. Without them each token names its app.
	App     db.ID
	AppName string
	// RequireAppName demands that tokens name AppName, where other apps have the same issuer and audience.
	RequireAppName bool
}

// issuerEntry is an issuer on a verifier's roll.
type issuerEntry struct {
	TrustedIssuer
	removed atomic.Bool // it is accepted no longer
}

// isCurrent reports whether a token that was verified at that version of e's keys still is.
func (e *issuerEntry) isCurrent(generation uint64) bool {
	return !e.removed.Load() && e.Keys.Generation() == generation
}

// issuerTable holds the accepted issuers by name.
type issuerTable map[string][]*issuerEntry

// findIssuer returns the entry that said claims to come from. A token that more than one would have to answer for is refused:
// which app it speaks for must not be a matter of order.
func (r issuerTable) findIssuer(unverified tokenClaims) (*issuerEntry, error) {
	var found *issuerEntry
	reason := "from an issuer that is not accepted"
	for _, e := range r[unverified.Issuer] {
		switch {
		case !unverified.Audience.Contains(e.Audience):
			if reason != reasonOtherApp {
				reason = "meant for another audience"
			}
		case !e.allowsAppName(unverified.AppName):
			reason = reasonOtherApp
		case found != nil:
			return nil, unauthenticated("fits more than one accepted issuer")
		default:
			found = e
		}
	}
	if found == nil {
		return nil, unauthenticated(reason)
	}
	return found, nil
}

const reasonOtherApp = "meant for another app than its issuer speaks for"

// allowsAppName reports whether e's tokens may say name in tenant_id.
func (e *issuerEntry) allowsAppName(name string) bool {
	return e.App == "" || name == e.AppName || name == "" && !e.RequireAppName
}

// newPrincipal reads who c, a token of e's, is about.
func (e *issuerEntry) newPrincipal(c tokenClaims) (Principal, error) {
	if !isValidSubject(c.Subject) {
		return Principal{}, unauthenticated("no usable sub")
	}
	if strings.HasPrefix(c.Subject, APIKeySubjectPrefix) {
		return Principal{}, unauthenticated("speaks for an API key")
	}
	p := Principal{
		App: e.App, AppName: e.AppName, Issuer: c.Issuer, Subject: c.Subject,
		Roles: c.Roles, Scopes: parseNarrowingScopes(c.Scope), Issued: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}
	if !e.BuiltIn {
		p.MaxClockAhead = maxClockSkew
	}
	switch {
	case e.BuiltIn:
		if err := p.setAppFromClaims(c); err != nil {
			return Principal{}, err
		}
	case e.App == "" && c.AppName == "" && slices.Contains(c.Roles, RolePlatformOperator):
		p.Roles, p.Platform = []string{RolePlatformOperator}, true
	case e.App == "" && c.AppName == "":
		p.AppName = tenancy.DefaultName
	case e.App == "":
		p.AppName = c.AppName
	}
	if len(p.Roles) == 0 {
		p.Roles = []string{RoleCaller}
	}
	return p, nil
}

// setAppFromClaims takes over what a token of the built-in issuer says of its app, which it names by name and immutable id.
func (p *Principal) setAppFromClaims(c tokenClaims) error {
	p.App, p.AppName = c.App, c.AppName
	switch {
	case c.IssuedAt == nil:
		return unauthenticated("no iat")
	case c.App == "" && c.AppName == "":
		return unauthenticated("names no app")
	case c.App == "" || c.AppName == "":
		return unauthenticated("names its app by half")
	}
	return nil
}
