package authz

import (
	"slices"
	"strings"

	"stoa/tenancy"
)

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
