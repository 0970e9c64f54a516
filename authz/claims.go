package authz

import (
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"stoa/tenancy/db"
)

// maxClockSkew is how far the clocks of issuer and verifier may be apart for the start of a token's life. Its end is exact.
const maxClockSkew = time.Minute

// tokenClaims are those of a token that mean something here.
type tokenClaims struct {
	jwt.Claims
	AppName string   `json:"tenant_id,omitempty"`
	App     db.ID    `json:"app_id,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Scope   string   `json:"scope,omitempty"`
}

// checkTimes checks the times of c at now.
func (c tokenClaims) checkTimes(now time.Time) error {
	switch {
	case c.Expiry == nil:
		return unauthenticated("no exp")
	case !now.Before(c.Expiry.Time()):
		return unauthenticated("expired")
	case c.IssuedAt != nil && now.Add(maxClockSkew).Before(c.IssuedAt.Time()):
		return unauthenticated("issued in the future")
	case c.NotBefore != nil && now.Add(maxClockSkew).Before(c.NotBefore.Time()):
		return unauthenticated("not valid yet")
	}
	return nil
}
