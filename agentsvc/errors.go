package agentsvc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Errors of tasks that every protocol reports. Their texts may be shown to callers; surface maps each to a protocol's
// code.
var (
	// ErrNotFound is the answer for what does not exist and for what belongs to another tenant or user: callers must
	// not be able to distinguish the two.
	ErrNotFound = errors.New("not found")
	// ErrTaskEnded reports that the task is in a terminal state.
	ErrTaskEnded = errors.New("the task has ended")
	// ErrTaskBusy reports that a run still executes an earlier message of the task.
	ErrTaskBusy = errors.New("the task is still working on an earlier message")
	// ErrSessionBusy reports that another run of the session, of this task or another, is unfinished.
	ErrSessionBusy = errors.New("the conversation is still at work on an earlier message: wait for its end, or cancel its task")
	// ErrAwaitingDecision reports that the task waits for a decision, not for a message.
	ErrAwaitingDecision = errors.New("the task waits for a decision on a tool call, not for a message")
	// ErrAwaitingCredential reports that the task waits for a credential, not for a message.
	ErrAwaitingCredential = errors.New(`the task waits for a credential: send a message whose data part is {"type": "tool_credential", "tool": ..., "value": ...}`)
	// ErrAwaitingBudget reports that the task waits for its budget, not for a message.
	ErrAwaitingBudget = errors.New("the task waits until its budget has room again, and goes on by itself")
	// ErrNoOpenDecision reports that no such approval is open, or that it was decided before.
	ErrNoOpenDecision = errors.New("no such decision is open: it was made before, or nothing waits for one")
	// ErrLeaseLost reports that the caller's view of the task is outdated: another writer has changed it, or another
	// worker has the lease. A worker that receives it must stop and write nothing more.
	ErrLeaseLost = errors.New("the lease on the task is lost")
	// ErrKeyReused reports that an idempotency key was used for a different request.
	ErrKeyReused = errors.New("this Idempotency-Key was used for another request")
	// ErrOverloaded reports that the process or its database accepts no more work at present.
	ErrOverloaded = errors.New("the server is at its limit, try again shortly")
)

// InvalidError reports an invalid input. Field is its path, such as message.parts[0], and may be empty. Both may be
// shown to callers.
type InvalidError struct {
	Field  string
	Reason string // "" = none was given
}

// NewInvalidError returns an [*InvalidError] about field with a formatted reason.
func NewInvalidError(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Error returns "field: reason", or the reason alone.
func (e *InvalidError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// BudgetExhaustedError reports that a budget does not cover a model call. The call was not made.
type BudgetExhaustedError struct {
	Budget     string    // name
	ID         string    // of the budget
	Scope      string    // what the budget covers, as text
	Needed     int64     // what the call would have reserved, in the budget's unit
	ResetsAt   time.Time // end of the budget's window; zero = unknown
	PausesTask bool      // the budget's policy is to pause the task instead of failing it
}

// Error returns a text that may be shown to callers.
func (e *BudgetExhaustedError) Error() string {
	when := ""
	if !e.ResetsAt.IsZero() {
		when = " until " + e.ResetsAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the budget %s (%s) is used up%s", e.Budget, e.Scope, when)
}

// StorageLimitError reports that a tenant's storage quota refused a write.
type StorageLimitError struct {
	// StoredBytes is the estimate of what the tenant stores, MaxBytes its limit.
	StoredBytes, MaxBytes int64
	Advice                string        // what the tenant can do
	RetryAfter            time.Duration // until the stored bytes are measured again
}

// Error returns a text that may be shown to callers.
func (e *StorageLimitError) Error() string {
	return fmt.Sprintf("the app stores %s of %s that it may store at present, too little is left for this: %s", FormatBytes(e.StoredBytes), FormatBytes(e.MaxBytes), e.Advice)
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
