// Package authz authenticates callers and authorizes what they do. Authentication: a [Verifier] turns a bearer token
// into a [Principal], [APIKeys] does the same for an API key, and an [AdminSecret] recognises the platform's operator.
// [BuiltInIssuer] issues tokens with keys that are stored in the database; tokens of OpenID providers are
// verified with their published keys ([jwks.RemoteSet]). Authorization: a [Policy], one for each app, decides by roles
// and scopes.
//
// The app that a credential belongs to is read from it where it is verified: by [issuerEntry.setAppFromClaims] for a
// token and by [APIKeys.VerifyKey] for a key. Between authentication and authorization [router.AppRequest] decides by
// the record of that moment whether the request may use the app. Therefore a revocation, a suspension or a deletion
// takes effect at the next request, although verified tokens and keys are cached. See docs/identity.md and
// docs/security.md.
package authz

import (
	"errors"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// ErrUnauthenticated is the answer for a credential that is missing, forged, expired or revoked. All errors with
// [agentsvc.CodeUnauthenticated] have its text, so that the caller learns nothing else; [RefusalReason] returns the reason
// for the log.
var ErrUnauthenticated = agentsvc.NewUnauthenticatedError("")

// Refusal is what is known about a refused credential. It is the cause of the error, for the log and the audit trail.
type Refusal struct {
	// App is the app whose credential it is, "" if the credential does not prove any.
	App db.ID
	// Expired says that the credential was valid until its end.
	Expired bool
	// Reason contains no usable part of the credential.
	Reason string
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// newError returns r as an [ErrUnauthenticated].
func (r *Refusal) newError() error {
	return &agentsvc.Error{Code: agentsvc.CodeUnauthenticated, Message: ErrUnauthenticated.Error(), Err: r}
}

func unauthenticated(reason string) error { return (&Refusal{Reason: reason}).newError() }

func unauthenticatedBecause(reason string, cause error) error {
	return unauthenticated(reason + ": " + cause.Error())
}

// RefusalReason returns why err refused a credential, for logs and never for the caller. It contains no usable part of
// the credential. It is "" if err is not such a refusal.
func RefusalReason(err error) string {
	var e *agentsvc.Error
	if errors.As(err, &e) && e.Code == agentsvc.CodeUnauthenticated && e.Err != nil {
		return e.Err.Error()
	}
	return ""
}

// deniedPrefix begins the text of every refusal of an authenticated caller. The rest of the text names what is missing.
const deniedPrefix = "permission denied: "

// permissionDenied returns an [agentsvc.CodeDenied] with a text for the caller.
func permissionDenied(format string, args ...any) error {
	return agentsvc.NewError(agentsvc.CodeDenied, deniedPrefix+format, args...)
}
