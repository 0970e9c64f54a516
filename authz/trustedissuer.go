package authz

import (
	"errors"
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
