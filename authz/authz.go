// Package authz answers two questions about a call. Who is it? A [Verifier] turns a bearer token into a [Principal],
// the built-in [Issuer] mints such tokens with keys that live in the database, and an [AdminSecret] knows the platform's
// own operator. May they? A [Policy], one for each app, holds the table of roles and scopes.
//
// In between stands the app's door ([tenancy.AccessRequest]), which holds a principal against the app as it is at that moment. So
// a revocation, a suspension or a deletion takes effect at the next call although verified tokens are remembered.
package authz

import (
	"errors"
	"fmt"
)

// ErrUnauthenticated is the one answer for a credential that is missing, forged, expired or revoked: who presents it
// learns nothing else. [Reason] tells the log more.
var ErrUnauthenticated = errors.New("missing or invalid credential")

// ErrDenied is in every refusal of a caller who is known. Its message says what is missing and may be shown.
var ErrDenied = errors.New("permission denied")

// unauthenticatedError is an [ErrUnauthenticated] that remembers why.
type unauthenticatedError struct {
	reason string
	cause  error
}

func unauthenticated(reason string) error { return &unauthenticatedError{reason: reason} }

func unauthenticatedBecause(reason string, cause error) error {
	return &unauthenticatedError{reason: reason, cause: cause}
}

// Error says no more than [ErrUnauthenticated].
func (*unauthenticatedError) Error() string { return ErrUnauthenticated.Error() }

// Is makes errors.Is(err, ErrUnauthenticated) hold.
func (*unauthenticatedError) Is(target error) bool { return target == ErrUnauthenticated }

// RefusalReason tells why err refused a credential. It is for logs, never for the caller, and holds no part of the credential
// that could be used. It is "" where err is no such refusal.
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

func permissionDenied(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDenied, fmt.Sprintf(format, args...))
}
