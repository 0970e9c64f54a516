package tenancy

import (
	"errors"
	"fmt"
)

// What can go wrong with an app, its administration or the way to it. What wraps one of these may be shown to the
// caller as it is.
var (
	// ErrNotFound says that there is no such app, revision or secret, or none that the caller may know of.
	ErrNotFound = errors.New("not found")
	// ErrExists says that the name is taken.
	ErrExists = errors.New("already exists")
	// ErrPrecondition says that the app is not as the change requires: at another revision, being deleted, or the
	// default one, which only its file changes.
	ErrPrecondition = errors.New("precondition failed")
	// ErrConflict says that others kept changing the app at the same time.
	ErrConflict = errors.New("the app is being changed by others, try again")
	// ErrSuspended says that the app answers nobody until it is resumed.
	ErrSuspended = errors.New("the app is suspended")
	// ErrUnauthenticated says that a credential is missing or no longer good.
	ErrUnauthenticated = errors.New("a valid credential is required")
	// ErrOperator says that the operator's credential was shown where a tenant's is needed.
	ErrOperator = errors.New("the operator's credential is for /admin alone")
	// ErrInProgress says that the first call with this idempotency key has not ended.
	ErrInProgress = errors.New("the first call with this Idempotency-Key is still in progress")
	// ErrKeyReused says that the idempotency key came with another request before.
	ErrKeyReused = errors.New("this Idempotency-Key was used for another request")
	// ErrUnavailable says that the app cannot be built, or its record not be read, at present. The reason it comes with
	// is for the log, not for callers.
	ErrUnavailable = errors.New("the app is unavailable")
	// ErrClosed says that the process is shutting down.
	ErrClosed = errors.New("shutting down")
)

// InvalidError says what was wrong with an input, and where. Both may be shown to the caller.
type InvalidError struct {
	Field  string
	Reason string
}

// Error returns "field: reason".
func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

func invalidField(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// kindError is one of the sentinels with words for the case at hand.
type kindError struct {
	kind error
	text string
}

func (r *kindError) Error() string { return r.text }
func (r *kindError) Unwrap() error { return r.kind }

func errorOfKind(kind error, format string, args ...any) error {
	return &kindError{kind, fmt.Sprintf(format, args...)}
}
