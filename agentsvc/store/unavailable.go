package store

import (
	"cmp"

	"stoa/agentsvc/egress"
	"stoa/tenancy/db"
)

// UnavailableError says that the sessions' own database could not be reached, or did not do what it was asked. It may pass.
type UnavailableError struct {
	err error
}

// Error tells the app's operator what happened, in words that hold no address and nothing of an answer.
func (e *UnavailableError) Error() string {
	return "the database of the app's sessions is unavailable: " + cmp.Or(db.PublicMessage(e.err), egress.PublicMessage(e.err))
}

// Unwrap returns what happened in full.
func (e *UnavailableError) Unwrap() error { return e.err }
