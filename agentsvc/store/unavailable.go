package store

import (
	"cmp"

	"stoa/agentsvc/egress"
	"stoa/tenancy/db"
)

// UnavailableError reports that the external session database could not be reached or refused an operation. A retry
// may succeed.
type UnavailableError struct {
	err error
}

// Error returns a text for the tenant's operator. It contains neither an address nor anything that the server
// answered, except messages that db and egress declare public.
func (e *UnavailableError) Error() string {
	return "the database of the app's sessions is unavailable: " + cmp.Or(db.PublicMessage(e.err), egress.PublicMessage(e.err))
}

// Unwrap returns the underlying error with all details.
func (e *UnavailableError) Unwrap() error { return e.err }
