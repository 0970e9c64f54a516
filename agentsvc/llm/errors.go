package llm

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error reports that a model's server refused a call or did not answer. It contains nothing of the upstream body, which
// may hold prompts and keys.
type Error struct {
	Provider string
	// Status is the HTTP status, 0 if there was no answer.
	Status int
	// RetryAfter is the wait that the server asked for, 0 if none.
	RetryAfter time.Duration
	// Retryable reports that the same call may succeed later.
	Retryable bool
	// Reason is a text for callers, one of Stoa's own.
	Reason string
}

// Error returns one line for callers and logs.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("model provider %s: %s", e.Provider, e.Reason)
	}
	return fmt.Sprintf("model provider %s answered %d: %s", e.Provider, e.Status, e.Reason)
}

// ModelError says which model failed with Err; its text is that of Err.
type ModelError struct {
	Model string // the vendor's name of it
	Err   error
}

// Error implements [error].
func (e *ModelError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ModelError) Unwrap() error { return e.Err }

// Kind returns a label for metrics: the status, "no_answer", or "other_status" for a number that is no HTTP status. A
// server chooses its status freely, so the label set must be bounded here.
func (e *Error) Kind() string {
	switch {
	case e.Status == 0:
		return "no_answer"
	case http.StatusText(e.Status) == "" && e.Status != statusOverloaded:
		return "other_status"
	}
	return strconv.Itoa(e.Status)
}

// StatusReason returns a text for callers about an HTTP status of a model's server.
func StatusReason(status int) string {
	if reason := statusReasons[status]; reason != "" {
		return reason
	}
	if status < http.StatusInternalServerError {
		return "the request was refused"
	}
	return "the model's server failed"
}

// statusOverloaded is the status with which some vendors (e.g. Anthropic) report overload. It is not registered with
// IANA.
const statusOverloaded = 529

// statusReasons are the texts of StatusReason. For others a text for the class of the status is used.
var statusReasons = map[int]string{
	http.StatusBadRequest:            "the request was refused as invalid",
	http.StatusUnauthorized:          "the API key was refused",
	http.StatusForbidden:             "the API key may not use this model",
	http.StatusNotFound:              "the model or the address is unknown there",
	http.StatusRequestEntityTooLarge: "the request is too large",
	http.StatusTooManyRequests:       "the rate limit is exceeded",
	http.StatusPaymentRequired:       "the account has no credit left",
	statusOverloaded:                 "the model's server is overloaded",
}
