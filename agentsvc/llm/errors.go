package llm

import (
	"fmt"
	"net/http"
	"strconv"
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

// Kind tells the statuses of the model's server apart that there are, and from its silence. Which it answers with is its own
// choice, and so are all others one.
func (e *Error) Kind() string {
	switch {
	case e.Status == 0:
		return "no_answer"
	case http.StatusText(e.Status) == "" && e.Status != StatusOverloaded:
		return "other_status"
	}
	return strconv.Itoa(e.Status)
}

// StatusReason tells a caller what an HTTP status of a model's server means, in words that hold nothing of its answer.
func StatusReason(status int) string {
	if reason := statusReasons[status]; reason != "" {
		return reason
	}
	if status < http.StatusInternalServerError {
		return "the request was refused"
	}
	return "the model's server failed"
}

// StatusOverloaded is what some vendors answer while they have more to do than they can.
const StatusOverloaded = 529

var statusReasons = map[int]string{
	http.StatusBadRequest:            "the request was refused as invalid",
	http.StatusUnauthorized:          "the API key was refused",
	http.StatusForbidden:             "the API key may not use this model",
	http.StatusNotFound:              "the model or the address is unknown there",
	http.StatusRequestEntityTooLarge: "the request is too large",
	http.StatusTooManyRequests:       "the rate limit is exceeded",
	http.StatusPaymentRequired:       "the account has no credit left",
	StatusOverloaded:                 "the model's server is overloaded",
}
