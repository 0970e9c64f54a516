package authz

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// TrustedIssuer is an issuer whose tokens are accepted: tokens whose iss is exactly Issuer, whose aud contains
// Audience, and which are signed by a key of Keys.
type TrustedIssuer struct {
	Issuer   string
	Audience string
	Keys     KeySet

	// BuiltIn marks the built-in issuer, whose tokens name their app by name and immutable id.
	BuiltIn bool
	// App and AppName are the app that the tokens speak for. If they are empty each token names its app.
	App     db.ID
	AppName string
	// RequireAppName accepts only tokens whose tenant_id is AppName; it is set if other apps have the same issuer and
	// audience.
	RequireAppName bool
}

// issuerEntry is an accepted issuer in a verifier's table.
type issuerEntry struct {
	TrustedIssuer
	// removed is set when the issuer is no longer accepted; cached tokens of it are then refused.
	removed atomic.Bool
}

// isCurrent reports whether a token that was verified with the keys of that generation may still be accepted.
func (e *issuerEntry) isCurrent(generation uint64) bool {
	return !e.removed.Load() && e.Keys.Generation() == generation
}

// issuerTable maps the value of iss to the accepted issuers with that name. It is immutable.
type issuerTable map[string][]*issuerEntry

// findIssuer returns the entry for the unverified claims iss, aud and tenant_id. A token that fits several entries is
// refused: its app must not depend on their order.
func (t issuerTable) findIssuer(unverified tokenClaims) (*issuerEntry, error) {
	var found *issuerEntry
	reason := "from an issuer that is not accepted"
	for _, e := range t[unverified.Issuer] {
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

// reasonOtherApp is the reason if issuer and audience match but tenant_id names another app.
const reasonOtherApp = "meant for another app than its issuer speaks for"

// allowsAppName reports whether tokens of e may have name as their tenant_id.
func (e *issuerEntry) allowsAppName(name string) bool {
	return e.App == "" || name == e.AppName || name == "" && !e.RequireAppName
}

// newPrincipal returns the principal of verified claims c. Subjects of API keys are refused, so that no token can own the
// tasks of a key.
func (e *issuerEntry) newPrincipal(c tokenClaims) (Principal, error) {
	if !isValidSubject(c.Subject) {
		return Principal{}, unauthenticated("no usable sub")
	}
	if strings.HasPrefix(c.Subject, tenancy.APIKeySubjectPrefix) {
		return Principal{}, unauthenticated("has the subject of an API key")
	}
	p := Principal{
		Issuer: c.Issuer, Subject: c.Subject,
		Roles: c.Roles, Scopes: parseNarrowingScopes(c.Scope), Issued: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}
	if !e.BuiltIn {
		p.MaxClockAhead = maxClockSkew
	}
	if err := e.setAppFromClaims(&p, c); err != nil {
		return Principal{}, err
	}
	if len(p.Roles) == 0 {
		p.Roles = []string{RoleCaller}
	}
	return p, nil
}

// setAppFromClaims sets the app that the token belongs to:
//
//   - A token of the built-in issuer names its app by id and name; both are required, and iat.
//   - A token of an app's own issuer belongs to that app.
//   - A token of the server's OpenID provider belongs to the app that tenant_id names; without tenant_id to the
//     platform's operator if its roles contain platform_operator, else to the default app.
//
// Whether that app exists and the request may use it, package router decides at each request.
func (e *issuerEntry) setAppFromClaims(p *Principal, c tokenClaims) error {
	switch {
	case e.BuiltIn && c.IssuedAt == nil:
		return unauthenticated("no iat")
	case e.BuiltIn && c.App == "" && c.AppName == "":
		return unauthenticated("names no app")
	case e.BuiltIn && (c.App == "" || c.AppName == ""):
		return unauthenticated("names its app incompletely")
	case e.BuiltIn:
		p.App, p.AppName = c.App, c.AppName
	case e.App != "":
		p.App, p.AppName = e.App, e.AppName
	case c.AppName != "":
		p.AppName = c.AppName
	case slices.Contains(c.Roles, RolePlatformOperator):
		p.Roles, p.Platform = []string{RolePlatformOperator}, true
	default:
		p.AppName = tenancy.DefaultName
	}
	return nil
}

// attributeRefusal sets the app of the [Refusal] in err to that of the claims c, whose signature is verified.
func (e *issuerEntry) attributeRefusal(err error, c tokenClaims) error {
	var r *Refusal
	var p Principal
	if errors.As(err, &r) && e.setAppFromClaims(&p, c) == nil {
		if r.App = p.App; p.App == "" && p.AppName == tenancy.DefaultName {
			r.App = tenancy.DefaultID
		}
	}
	return err
}
