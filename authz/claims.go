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
	case !now.Before(c.Expiry.Time()):
		return refuse("expired")
	case c.IssuedAt != nil && now.Add(skew).Before(c.IssuedAt.Time()):
		return refuse("issued in the future")
	case c.NotBefore != nil && now.Add(skew).Before(c.NotBefore.Time()):
		return refuse("not valid yet")
	}
	return nil
}
