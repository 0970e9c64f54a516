package agentsvc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Code is the kind of an [Error]: what its caller can do about it. A Code is an error itself, so that
// errors.Is(err, CodeNotFound) reports whether err is or wraps an Error of that kind. Package apierror maps each code to
// the codes of the protocols, and adds those of errors that only a protocol has.
type Code string

// Error returns the name of the code.
func (c Code) Error() string { return string(c) }

// The codes of domain errors.
const (
	CodeInvalid         Code = "invalid"         // the input is wrong
	CodeReused          Code = "reused"          // the key or id belongs to another request
	CodeUnauthenticated Code = "unauthenticated" // the credential is missing or not valid
	CodeUnsigned        Code = "unsigned"        // the signature is missing or not valid
	CodeDenied          Code = "denied"          // the caller is known and may not
	CodeSuspended       Code = "suspended"       // the app refuses every call
	CodeNotFound        Code = "not found"       // it does not exist, or belongs to another tenant or user
	CodeExists          Code = "exists"          // the name is in use
	CodeState           Code = "state"           // the state of the task does not allow it
	CodeConflict        Code = "conflict"        // others change it at the same time
	CodePrecondition    Code = "precondition"    // the stored state is not the expected one
	CodeExhausted       Code = "exhausted"       // a limit, a budget or a storage quota is used up
	CodeBusy            Code = "busy"            // there is no memory for it at present
	CodeTooLarge        Code = "too large"       // there is never memory for it
	CodeUnavailable     Code = "unavailable"     // the server cannot answer at present
)

// Error is an error whose text callers may read. All packages use it for what a caller can do something about; any
// other error is internal, and its text reaches no caller. See docs/decisions/one-error-type.md.
type Error struct {
	Code    Code
	Field   string // path of the wrong input, such as message.parts[0]; "" = none
	Message string
	// RetryAfter is the time after which another attempt may succeed, 0 = unknown.
	RetryAfter time.Duration
	// Detail has the figures of what refused the call, such as an [*ExhaustedBudget]; nil = none. See [DetailOf].
	Detail any
	// Err is the cause, for the log; nil = none. The error's text does not contain it.
	Err error
}

// NewError returns an [*Error] with a formatted message.
func NewError(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NewInvalidError returns an [*Error] with [CodeInvalid] about field with a formatted message.
func NewInvalidError(field, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// NewUnauthenticatedError returns an [*Error] with [CodeUnauthenticated] and a fixed message, so that the caller cannot
// learn from it what is wrong with the credential. reason is for the log, "" = none.
func NewUnauthenticatedError(reason string) error {
	e := &Error{Code: CodeUnauthenticated, Message: "missing or invalid credential"}
	if reason != "" {
		e.Err = errors.New(reason)
	}
	return e
}

// Error returns "field: message", or the message alone.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// DetailOf returns the detail of the first [*Error] in err's chain, the zero T if it has none of that type.
func DetailOf[T any](err error) T {
	var e *Error
	var detail T
	if errors.As(err, &e) {
		detail, _ = e.Detail.(T)
	}
	return detail
}

// Errors of tasks that every protocol reports.
var (
	// ErrNotFound is the answer for what does not exist and for what belongs to another tenant or user: callers must
	// not be able to distinguish the two.
	ErrNotFound = NewError(CodeNotFound, "not found")
	// ErrTaskEnded reports that the task is in a terminal state.
	ErrTaskEnded = NewError(CodeState, "the task has ended")
	// ErrTaskBusy reports that a run still executes an earlier message of the task.
	ErrTaskBusy = NewError(CodeState, "the task is still working on an earlier message")
	// ErrSessionBusy reports that another run of the session, of this task or another, is unfinished.
	ErrSessionBusy = NewError(CodeState, "the conversation is still at work on an earlier message: wait for its end, or cancel its task")
	// ErrStopping refuses a turn that the process, which stops, cannot execute any more.
	ErrStopping = NewError(CodeUnavailable, "the server is stopping and accepts no new work: send the request again, to another process or when it has started again")
	// ErrAwaitingDecision reports that the task waits for a decision, not for a message.
	ErrAwaitingDecision = NewError(CodeState, "the task waits for a decision on a tool call, not for a message")
	// ErrAwaitingCredential reports that the task waits for a credential, not for a message.
	ErrAwaitingCredential = NewError(CodeState, `the task waits for a credential: send a message whose data part is {"type": "tool_credential", "tool": ..., "value": ...}`)
	// ErrAwaitingBudget reports that the task waits for its budget, not for a message.
	ErrAwaitingBudget = NewError(CodeState, "the task waits until its budget has room again, and goes on by itself")
	// ErrNoOpenDecision reports that no such approval is open, or that it was decided before.
	ErrNoOpenDecision = NewError(CodeState, "no such decision is open: it was made before, or nothing waits for one")
	// ErrTaskChanged reports that another writer changed the task after the caller read it. Nothing was written: the
	// caller reads the task again and decides anew.
	ErrTaskChanged = NewError(CodeState, "the task has changed meanwhile: read it and try again")
	// ErrLeaseLost reports to a worker that a run is not its own any more: another worker has the lease, the task was
	// cancelled, or it does not wait for the run. The worker must stop and write nothing more.
	ErrLeaseLost = NewError(CodeState, "the lease on the task is lost")
	// ErrKeyReused reports that an idempotency key was used for a different request.
	ErrKeyReused = NewError(CodeReused, "this key was used for another request")
	// ErrOverloaded reports that the process or its database accepts no more work at present.
	ErrOverloaded = NewError(CodeUnavailable, "the server is at its limit, try again shortly")
)

// ExhaustedBudget is the detail of an [Error] of a budget that does not cover a model call. The call was not made.
type ExhaustedBudget struct {
	Budget     string    // name
	ID         string    // of the budget
	Scope      string    // what the budget covers, as text
	Needed     int64     // what the call would have reserved, in the budget's unit
	ResetsAt   time.Time // end of the budget's window; zero = unknown
	PausesTask bool      // the budget's policy is to pause the task instead of failing it
}

// NewError returns the error of a call that b refused.
func (b *ExhaustedBudget) NewError() error {
	e := &Error{Code: CodeExhausted, Message: fmt.Sprintf("the budget %s (%s) is used up", b.Budget, b.Scope), Detail: b}
	if !b.ResetsAt.IsZero() {
		e.Message += " until " + b.ResetsAt.UTC().Format(time.RFC3339)
		e.RetryAfter = max(time.Until(b.ResetsAt), time.Second)
	}
	return e
}

// Details returns what callers may read about b, as JSON values. resets_at is nil if it is unknown.
func (b *ExhaustedBudget) Details() map[string]any {
	d := map[string]any{"budget": b.Budget, "scope": b.Scope, "resets_at": nil}
	if !b.ResetsAt.IsZero() {
		d["resets_at"] = b.ResetsAt.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return d
}

// StorageUse is the detail of an [Error] of a write that a tenant's storage quota refused.
type StorageUse struct {
	StoredBytes, MaxBytes int64 // the estimate of what the tenant stores, and its limit
}

// NewError returns the error of a write that was refused at u. advice is what the tenant can do, retryAfter the time
// until the stored bytes are measured again.
func (u StorageUse) NewError(advice string, retryAfter time.Duration) error {
	const format = "the app stores %s of %s that it may store at present, too little is left for this: %s"
	return &Error{Code: CodeExhausted, Message: fmt.Sprintf(format, FormatBytes(u.StoredBytes), FormatBytes(u.MaxBytes), advice), RetryAfter: retryAfter, Detail: u}
}

// FormatBytes returns a number of bytes for humans, in binary units with one decimal, such as 1.5 GiB.
func FormatBytes(n int64) string {
	size, unit := float64(n), "bytes"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	return strconv.FormatFloat(math.Round(size*10)/10, 'f', -1, 64) + " " + unit
}

// CallCancelledError is the cause of a tool call's context that a user has cancelled.
type CallCancelledError struct {
	Reason string // "" = none was given
}

// Error returns the text that the model gets as the call's result.
func (e *CallCancelledError) Error() string {
	if e.Reason == "" {
		return "cancelled by user"
	}
	return "cancelled by user: " + e.Reason
}
