package agentsvc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// What can go wrong with a task whatever the dialect. Each is also the answer a caller may read.
var (
	// ErrNotFound is the one answer for what does not exist and for what belongs to somebody else.
	ErrNotFound = errors.New("not found")
	// ErrTaskEnded says that the task has ended.
	ErrTaskEnded = errors.New("the task has ended")
	// ErrTaskBusy says that the task is at work on an earlier message.
	ErrTaskBusy = errors.New("the task is still working on an earlier message")
	// ErrSessionBusy says that the session is at work on an earlier message, of this task or another.
	ErrSessionBusy = errors.New("the conversation is still at work on an earlier message: wait for its end, or cancel its task")
	// ErrAwaitingDecision says that the task waits for a decision and not for a message.
	ErrAwaitingDecision = errors.New("the task waits for a decision on a tool call, not for a message")
	// ErrAwaitingCredential says that the task waits for a credential and not for a message.
	ErrAwaitingCredential = errors.New(`the task waits for a credential: send a message whose data part is {"type": "tool_credential", "tool": ..., "value": ...}`)
	// ErrAwaitingBudget says that the task waits for its budget and not for a message.
	ErrAwaitingBudget = errors.New("the task waits until its budget has room again, and goes on by itself")
	// ErrNoOpenDecision says that there is nothing to decide, or no longer.
	ErrNoOpenDecision = errors.New("no such decision is open: it was made before, or nothing waits for one")
	// ErrLeaseLost says that somebody else holds the task now: stop.
	ErrLeaseLost = errors.New("the lease on the task is lost")
	// ErrOverloaded says that the process takes no more work at present.
	ErrOverloaded = errors.New("the server is at its limit, try again shortly")
)

// InvalidError says what was wrong with an input, and where. Both may be shown to the caller.
type InvalidError struct {
	Field  string
	Reason string
}

// NewInvalidError returns an [InvalidError] about field with a formatted reason.
func NewInvalidError(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Error returns "field: reason".
func (e *InvalidError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// BudgetExhaustedError says that a budget has no room for a call.
type BudgetExhaustedError struct {
	Budget     string
	ID         string    // of the budget
	Scope      string    // what it is for, in words
	Needed     int64     // what the call would need of it
	ResetsAt   time.Time // when there is room again, zero = nobody knows
	PausesTask bool      // the task is to wait until there is
}

// Error says so to whoever called.
func (e *BudgetExhaustedError) Error() string {
	when := ""
	if !e.ResetsAt.IsZero() {
		when = " until " + e.ResetsAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the budget %s (%s) is used up%s", e.Budget, e.Scope, when)
}

// StorageLimitError says that an app stores as much as it may.
type StorageLimitError struct {
	StoredBytes, MaxBytes int64         // what it stores, and what it may
	Advice                string        // what helps
	RetryAfter            time.Duration // when it is looked at again
}

// Error says so to whoever called.
func (e *StorageLimitError) Error() string {
	return fmt.Sprintf("the app stores %s of %s that it may store at present, which leaves no room for this: %s", FormatBytes(e.StoredBytes), FormatBytes(e.MaxBytes), e.Advice)
}

// FormatBytes writes a number of bytes for a reader, such as 1.5 GiB.
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

// CallCancelledError is the cause by which a tool call ends that a user has cancelled.
type CallCancelledError struct {
	Reason string // "" = none was given
}

// Error returns what the model is told.
func (e *CallCancelledError) Error() string {
	if e.Reason == "" {
		return "cancelled by user"
	}
	return "cancelled by user: " + e.Reason
}
