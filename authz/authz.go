// Package authz authenticates callers and authorizes what they do. Authentication: a [Verifier] turns a bearer token
// into a [Principal], [APIKeys] does the same for an API key, and an [AdminSecret] recognises the platform's operator.
// The built-in [Issuer] issues tokens with keys that are stored in the database; tokens of OpenID providers are
// verified with their published keys ([jwks.RemoteSet]). Authorization: a [Policy], one for each app, decides by roles
// and scopes.
//
// The app that a credential belongs to is read from it where it is verified: by [issuerEntry.setAppFromClaims] for a
// token and by [APIKeys.VerifyKey] for a key. Between authentication and authorization [router.AppRequest] decides by
// the record of that moment whether the request may use the app. Therefore a revocation, a suspension or a deletion takes effect at
// the next request, although verified tokens and keys are cached. See docs/identity.md and docs/security.md.
package authz

import (
	"errors"
	"fmt"
)

// ErrUnauthenticated is the only error for a credential that is missing, forged, expired or revoked, so that the caller
// learns nothing else. [RefusalReason] returns the reason for the log.
var ErrUnauthenticated = errors.New("missing or invalid credential")

// ErrDenied is wrapped by every refusal of an authenticated caller. The text of the wrapping error names the missing
// scope and may be shown.
var ErrDenied = errors.New("permission denied")

// unauthenticatedError is an [ErrUnauthenticated] with the reason and, optionally, the error that caused it.
type unauthenticatedError struct {
	reason string
	cause  error
}

func unauthenticated(reason string) error { return &unauthenticatedError{reason: reason} }

func unauthenticatedBecause(reason string, cause error) error {
	return &unauthenticatedError{reason: reason, cause: cause}
}

// Error returns the text of [ErrUnauthenticated] and not the reason, so that the reason cannot reach the caller by
// mistake.
func (*unauthenticatedError) Error() string { return ErrUnauthenticated.Error() }

// Is makes errors.Is(err, ErrUnauthenticated) true.
func (*unauthenticatedError) Is(target error) bool { return target == ErrUnauthenticated }

// RefusalReason returns why err refused a credential, for logs and never for the caller. It contains no usable part of
// the credential. It is "" if err is not such a refusal.
func RefusalReason(err error) string {
	var r *unauthenticatedError
	switch {
	case !errors.As(err, &r):
		return ""
	case r.cause != nil:
		return r.reason + ": " + r.cause.Error()
	default:
		return r.reason
	}
}

// permissionDenied returns an [ErrDenied] with a text for the caller.
func permissionDenied(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDenied, fmt.Sprintf(format, args...))
}
