package tenancy

import "stoa/agentsvc"

var (
	// ErrConflict reports that concurrent changes of the same app made maxChangeAttempts attempts fail.
	ErrConflict = agentsvc.NewError(agentsvc.CodeConflict, "the app is being changed by others, try again")
	// ErrSuspended reports that the app refuses every call until it is resumed.
	ErrSuspended = agentsvc.NewError(agentsvc.CodeSuspended, "the app is suspended")
)
