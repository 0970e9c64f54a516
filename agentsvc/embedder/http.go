package embedder

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Error reports that a vendor refused a request or answered unusably. It contains nothing of the vendor's text.
type Error struct {
	Vendor string
	// Status is the HTTP status, 0 for an answer that was decoded but cannot be used.
	Status  int
	Message string
	// Retryable reports that the same request may succeed later.
	Retryable bool
}

// Error returns one line for callers.
func (e *Error) Error() string { return "the embedder (" + e.Vendor + ") " + e.Message }

// PostJSON sends in as JSON to path below the base URL and decodes the answer into out. Another status than 200 is an
// [*Error]. The size of the answer is bounded by the client of the options.
func (o Options) PostJSON(ctx context.Context, vendor, path string, in, out any) error {
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
		return fmt.Errorf("call the embedder (%s): %w", vendor, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be reused
		return newStatusError(vendor, resp.StatusCode)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("call the embedder (%s): %w", vendor, ctx.Err())
		}
		return &Error{Vendor: vendor, Status: resp.StatusCode, Message: "answered with an invalid response"}
	}
	return nil
}

// newStatusError returns the error for an HTTP status.
func newStatusError(vendor string, status int) *Error {
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
	return e
}
