package tenancy

import (
	"errors"
	"fmt"
)

// The errors of this package. An error that wraps one of them may be shown to the caller as it is. A bad input is an
// [agentsvc.InvalidError].
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
)

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
