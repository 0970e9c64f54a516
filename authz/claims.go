package authz

import (
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"stoa/tenancy/db"
)

// maxClockSkew is how far the issuer's clock may be ahead when iat and nbf are checked. exp is checked without
// tolerance.
const maxClockSkew = time.Minute

// tokenClaims are the claims of a token that Stoa uses: those registered in RFC 7519, scope (RFC 8693, section 4.2) and
// Stoa's own. Tokens of the built-in issuer carry both AppName and App, others AppName at most.
type tokenClaims struct {
	jwt.Claims
	AppName string   `json:"tenant_id,omitempty"`
	App     db.ID    `json:"app_id,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Scope   string   `json:"scope,omitempty"`
}

// checkTimes checks exp, which is required, iat and nbf at now. The error is an [ErrUnauthenticated].
func (c tokenClaims) checkTimes(now time.Time) error {
	switch {
	case c.Expiry == nil:
		return unauthenticated("no exp")
	case !now.Before(c.Expiry.Time()):
		return (&Refusal{Expired: true, Reason: "expired"}).newError()
	case c.IssuedAt != nil && now.Add(maxClockSkew).Before(c.IssuedAt.Time()):
		return unauthenticated("issued in the future")
	case c.NotBefore != nil && now.Add(maxClockSkew).Before(c.NotBefore.Time()):
		return unauthenticated("not valid yet")
	}
	return nil
}
