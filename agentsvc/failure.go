package agentsvc

// FailureKey is the member of a failed task's last message's metadata that says why it failed, see [Failure].
const FailureKey = "error"

// Failure is why a task failed, for programs; the message's text says it for people.
type Failure struct {
	Code FailureCode
	// Details are JSON values: the budget, the limit or the model that ended the task. nil = there are none.
	Details map[string]any
}

// FailureCode is the kind of a [Failure]: one of the codes of error responses.
type FailureCode string

// The codes of failures.
const (
	FailureExhausted    FailureCode = "RESOURCE_EXHAUSTED"  // a budget, a limit or memory is used up
	FailureInvalid      FailureCode = "INVALID_ARGUMENT"    // the input is wrong
	FailurePrecondition FailureCode = "FAILED_PRECONDITION" // another attempt fails as well, until something else is changed
	FailureUnavailable  FailureCode = "UNAVAILABLE"         // another attempt may succeed
	FailureAborted      FailureCode = "ABORTED"             // the server stopped in the middle of the task
	FailureInternal     FailureCode = "INTERNAL"            // any other error, which only the log has
)

// ToMetadata returns f as the value of [FailureKey].
func (f Failure) ToMetadata() map[string]any {
	details := f.Details
	if details == nil {
		details = map[string]any{}
	}
	return map[string]any{"code": string(f.Code), "details": details}
}
