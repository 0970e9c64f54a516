// Package authz answers two questions about a call. Who is it? A [Verifier] turns a bearer token into a [Principal],
// the built-in [Issuer] mints such tokens with keys that live in the database, and an [AdminSecret] knows the platform's
// own operator. May they? A [Policy], one for each app, holds the table of roles and scopes.
//
// In between stands the app's door ([tenancy.Visit]), which holds a principal against the app as it is at that moment. So
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

// refusal is an [ErrUnauthenticated] that remembers why.
type refusal struct {
	reason string
	cause  error
}

func refuse(reason string) error { return &refusal{reason: reason} }

func refuseFor(reason string, cause error) error { return &refusal{reason: reason, cause: cause} }

// Error says no more than [ErrUnauthenticated].
func (*refusal) Error() string { return ErrUnauthenticated.Error() }

// Is makes errors.Is(err, ErrUnauthenticated) hold.
func (*refusal) Is(target error) bool { return target == ErrUnauthenticated }

// Reason tells why err refused a credential. It is for logs, never for the caller, and holds no part of the credential
// that could be used. It is "" where err is no such refusal.
func Reason(err error) string {
	var r *refusal
	switch {
	case !errors.As(err, &r):
		return ""
	case r.cause != nil:
		return r.reason + ": " + r.cause.Error()
	default:
		return r.reason
	}
}

func denied(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDenied, fmt.Sprintf(format, args...))
}
