package authz

import (
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"stoa/tenancy/db"
)

// skew is how far the clocks of issuer and verifier may be apart for the start of a token's life. Its end is exact.
const skew = time.Minute

// claims are those of a token that mean something here.
type claims struct {
	jwt.Claims
	AppName string   `json:"tenant_id,omitempty"`
	App     db.ID    `json:"app_id,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Scope   string   `json:"scope,omitempty"`
}

// alive checks the times of c at now.
func (c claims) alive(now time.Time) error {
	switch {
	case c.Expiry == nil:
		return refuse("no exp")
	case c.IssuedAt == nil:
		return refuse("no iat")
	case !now.Before(c.Expiry.Time()):
		return refuse("expired")
	case now.Add(skew).Before(c.IssuedAt.Time()):
		return refuse("issued in the future")
	case c.NotBefore != nil && now.Add(skew).Before(c.NotBefore.Time()):
		return refuse("not valid yet")
	}
	return nil
}

// principal reads who c is about. A token names its app by name and immutable id; the platform operator's names none.
func (c claims) principal() (Principal, error) {
	if !validSubject(c.Subject) {
		return Principal{}, refuse("no usable sub")
	}
	p := Principal{
		App: c.App, AppName: c.AppName,
		Issuer: c.Issuer, Subject: c.Subject,
		Roles: c.Roles, Scopes: narrowing(c.Scope),
		Issued: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}
	switch {
	case c.App == "" && c.AppName == "":
		if len(c.Roles) != 1 || c.Roles[0] != RolePlatformOperator {
			return Principal{}, refuse("names no app")
		}
		p.Platform = true
	case c.App == "" || c.AppName == "":
		return Principal{}, refuse("names its app by half")
	case len(c.Roles) == 0:
		p.Roles = []string{RoleCaller}
	}
	return p, nil
}
