package tenancy

import (
	"errors"
	"fmt"
)

// The errors of this package. An error that wraps one of them may be shown to the caller as it is, with the exception
// of [ErrUnavailable].
var (
	// ErrNotFound reports that the app, revision, role, key or secret does not exist, or that the caller may not know
	// it.
	ErrNotFound = errors.New("not found")
	// ErrExists reports that the name is in use, or that the issuer and audience belong to another app or to the
	// server.
	ErrExists = errors.New("already exists")
	// ErrPrecondition reports that the app's state does not allow the change: it is at another revision or being
	// deleted, a bound is reached, or it is the default app, which is changed by its file only.
	ErrPrecondition = errors.New("precondition failed")
	// ErrConflict reports that concurrent changes of the same app made maxChangeAttempts attempts fail.
	ErrConflict = errors.New("the app is being changed by others, try again")
	// ErrSuspended reports that the app refuses every call until it is resumed.
	ErrSuspended = errors.New("the app is suspended")
	// ErrUnauthenticated reports that a credential is missing or not valid, or was revoked.
	ErrUnauthenticated = errors.New("a valid credential is required")
	// ErrOperator reports that the operator's credential was used where a tenant's is required.
	ErrOperator = errors.New("the operator's credential is for /admin alone")
	// ErrInProgress reports that the first request with this idempotency key has not been answered yet.
	ErrInProgress = errors.New("the first call with this Idempotency-Key is still in progress")
	// ErrKeyReused reports that the idempotency key was used for a different request.
	ErrKeyReused = errors.New("this Idempotency-Key was used for another request")
	// ErrUnavailable reports that the app cannot be built or its record cannot be read at present. The wrapped cause is
	// for the log and must not be shown to callers.
	ErrUnavailable = errors.New("the app is unavailable")
	// ErrClosed reports that the process is shutting down.
	ErrClosed = errors.New("shutting down")
)

// InvalidError reports an invalid input by the path of its field and the reason. Both may be shown to the caller.
type InvalidError struct {
	Field  string
	Reason string
}

// Error returns "field: reason".
func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

// invalidField returns an [InvalidError] with a formatted reason.
func invalidField(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// kindError is one of the errors above with a text for the particular case; errors.Is finds the kind.
type kindError struct {
	kind error
	text string
}

func (r *kindError) Error() string { return r.text }
func (r *kindError) Unwrap() error { return r.kind }

// Errorf returns an error for which errors.Is(err, kind) is true, with a text of its own.
func Errorf(kind error, format string, args ...any) error {
	return &kindError{kind, fmt.Sprintf(format, args...)}
}

// errorOfKind is Errorf.
func errorOfKind(kind error, format string, args ...any) error { return Errorf(kind, format, args...) }
