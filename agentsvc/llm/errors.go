package llm

import (
	"fmt"
	"time"
)

// Error is a model's refusal to serve, or its silence. It holds nothing of the upstream body: that may carry prompts
// and keys.
type Error struct {
	Provider   string
	Status     int           // HTTP status, 0 where there was no answer
	RetryAfter time.Duration // as the model asked, 0 if it did not
	Retryable  bool          // whether the same call may succeed later
	Reason     string        // what a caller may read
}

// Error returns one line for callers and logs.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("model provider %s: %s", e.Provider, e.Reason)
	}
	return fmt.Sprintf("model provider %s answered %d: %s", e.Provider, e.Status, e.Reason)
}
