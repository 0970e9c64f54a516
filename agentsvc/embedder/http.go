package embedder

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/vectorstore"
)

// Error reports that a vendor refused a request or answered unusably. It contains nothing of the vendor's text.
type Error struct {
	Vendor string
	// Status is the HTTP status, 0 for an answer that was decoded but cannot be used.
	Status  int
	Message string
	// Retryable reports that the same request may succeed later.
	Retryable bool
	// RetryAfter is the time that the vendor demands until the next request, 0 if it demands none.
	RetryAfter time.Duration
}

// Error returns one line for callers.
func (e *Error) Error() string { return "the embedder (" + e.Vendor + ") " + e.Message }

// RequestError is a request to a vendor that had no answer: its server does not exist, refuses connections, or is too slow.
type RequestError struct {
	Vendor string
	Err    error
}

// Error implements error. The text is for the log.
func (e *RequestError) Error() string {
	return "the embedder (" + e.Vendor + ") did not answer: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// What an answer may have, in bytes: answerBase, and numberBytes for each number of the longest vectors.
const (
	answerBase  = 64 << 10
	numberBytes = 24
)

// answerFactor is how many bytes are reserved for each byte of an answer: it exists as text and as numbers of 4 bytes each,
// which take at least two of the text.
const answerFactor = 4

// PostJSON sends in as JSON to path below the base URL and decodes the answer, the vectors of a number of texts, into out.
// Another status than 200 is an [*Error], and so is an answer that is longer than vectors of [vectorstore.MaxDimension] are.
// The memory of the answer is reserved before it is read.
func (o Options) PostJSON(ctx context.Context, vendor, path string, in, out any, texts int) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("request vectors: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(o.BaseURL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("base_url: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if o.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+o.APIKey)
	}
	resp, err := o.HTTP.Do(req)
	if err != nil {
		return &RequestError{vendor, err}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be reused
		return newStatusError(vendor, resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	memory := o.Memory.NewPart(answerFactor)
	defer memory.ReleaseBytes()
	answer, err := memory.ReadAll(ctx, resp.Body, answerBase+texts*vectorstore.MaxDimension*numberBytes)
	if errors.Is(err, capacity.ErrTooManyBytes) {
		return &Error{Vendor: vendor, Status: resp.StatusCode, Message: fmt.Sprintf("answered with more bytes than %d vectors of %d numbers have, which is the longest that is allowed", texts, vectorstore.MaxDimension)}
	}
	if _, full := errors.AsType[*agentsvc.Error](err); full || ctx.Err() != nil {
		return fmt.Errorf("call the embedder (%s): %w", vendor, cmp.Or(err, ctx.Err()))
	}
	if err != nil || json.Unmarshal(answer, out) != nil {
		return &Error{Vendor: vendor, Status: resp.StatusCode, Message: "answered with an invalid response"}
	}
	return nil
}

// newStatusError returns the error for an HTTP status and the response's header Retry-After.
func newStatusError(vendor string, status int, retryAfter string) *Error {
	e := &Error{Vendor: vendor, Status: status, Message: fmt.Sprintf("answered with HTTP %d", status)}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Message = "refused the API key"
	case status == http.StatusNotFound:
		e.Message = "does not know the model, or base_url leads elsewhere"
	case status == http.StatusTooManyRequests:
		e.Message, e.Retryable = "is asked too often", true
	case status >= 500:
		e.Retryable = true
	}
	if e.Retryable {
		e.RetryAfter = parseRetryAfter(retryAfter)
	}
	return e
}

// parseRetryAfter returns the time in a header Retry-After, which is a number of seconds or a date; 0 for anything else.
func parseRetryAfter(header string) time.Duration {
	if n, err := strconv.ParseInt(header, 10, 32); err == nil {
		return time.Duration(max(n, 0)) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
