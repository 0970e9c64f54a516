package api

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/egress"
)

// Bounds of a call.
const (
	maxTries = 4
	// callTimeout bounds one try, with the body.
	callTimeout = 2 * time.Minute
	// maxRetryWait is the longest wait that a server may ask for before the next try. A longer one ends the listing with
	// an error that carries it.
	maxRetryWait = 30 * time.Second
)

// caller makes the calls of a source.
type caller struct {
	client  *http.Client
	headers map[string]string
	// first is the configured address; headers are sent to its host only.
	first *url.URL
}

func newCaller(client *http.Client, headers map[string]string, first *url.URL) caller {
	return caller{client: client, headers: headers, first: first}
}

// response is an answer.
type response struct {
	header    http.Header
	body      []byte
	unchanged bool // status 304: there is no body
}

// isHTML reports whether the header says that the body is HTML.
func (r *response) isHTML() bool {
	kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	return kind == "text/html" || kind == "application/xhtml+xml"
}

// getPage reads an address, with further tries where that may help. Of a page that was read before, it asks for a changed
// one only; before may be nil. memory reserves what the answer takes, and what that of a failed try has taken is released.
func (c *caller) getPage(ctx context.Context, memory *capacity.MemoryReservation, at *url.URL, before *page) (*response, error) {
	resp, err := backoff.Retry(ctx, func() (*response, error) {
		resp, err := c.tryPage(ctx, memory, at, before)
		var failed *source.Error
		switch {
		case err == nil:
			return resp, nil
		case !errors.As(err, &failed), failed.Permanent, ctx.Err() != nil, failed.RetryAfter > maxRetryWait:
			return nil, backoff.Permanent(err)
		case failed.RetryAfter > 0:
			return nil, &backoffError{err, backoff.RetryAfter(int((failed.RetryAfter + time.Second - 1) / time.Second))}
		}
		return nil, err
	}, backoff.WithMaxTries(maxTries))
	var failed *source.Error
	switch {
	case err == nil:
		return resp, nil
	case !errors.As(err, &failed): // the context ended between two tries
		failed = describeCallError(err)
	}
	return nil, failed
}

// backoffError is an error of the source with a wait for package backoff.
type backoffError struct{ failed, wait error }

func (e *backoffError) Error() string   { return e.failed.Error() }
func (e *backoffError) Unwrap() []error { return []error{e.failed, e.wait} }

// tryPage reads an address once.
func (c *caller) tryPage(ctx context.Context, memory *capacity.MemoryReservation, at *url.URL, before *page) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, source.PermanentErrorf("the address cannot be used")
	}
	req.Header.Set("Accept", "application/json")
	if at.Host == c.first.Host && (at.Scheme == "https" || c.first.Scheme == "http") {
		for name, value := range c.headers {
			req.Header.Set(name, value)
		}
		if req.URL.User == nil {
			req.URL.User = c.first.User
		}
	}
	if before != nil && before.etag != "" {
		req.Header.Set("If-None-Match", before.etag)
	} else if before != nil && before.lastModified != "" {
		req.Header.Set("If-Modified-Since", before.lastModified)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, describeCallError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotModified && before != nil:
		return &response{header: resp.Header, unchanged: true}, nil
	case resp.StatusCode != http.StatusOK:
		return nil, describeStatus(resp)
	}
	memory.ReleaseBytes()
	body, err := memory.ReadAll(ctx, resp.Body, maxPageBytes)
	refused := source.DescribeRefusal(err, smallerPages)
	switch {
	case errors.Is(err, capacity.ErrTooManyBytes):
		return nil, source.PermanentErrorf("it has more than %d bytes; %s", maxPageBytes, smallerPages)
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, describeCallError(err)
	}
	out := &response{header: resp.Header, body: body}
	if out.isHTML() {
		return nil, source.PermanentErrorf("%s", describeNoJSON(out))
	}
	return out, nil
}

// smallerPages is what to do about a page that is too large.
const smallerPages = "ask for smaller pages"

// reserve reserves n bytes; the error is a [*source.Error].
func reserve(ctx context.Context, memory *capacity.MemoryReservation, n int64) error {
	err := memory.ReserveBytes(ctx, n)
	if err == nil {
		return nil
	}
	if refused := source.DescribeRefusal(err, smallerPages); refused != nil {
		return refused
	}
	return describeCallError(err)
}

// describeCallError returns an error of the connection.
func describeCallError(err error) *source.Error {
	var refused *egress.NotAllowedError
	var large *egress.TooLargeError
	message := egress.PublicMessage(err)
	return &source.Error{Message: message, Permanent: errors.As(err, &refused) || errors.As(err, &large)}
}

// describeStatus returns the error for a status that is no success.
func describeStatus(resp *http.Response) *source.Error {
	status := strconv.Itoa(resp.StatusCode)
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return source.PermanentErrorf("the server refuses access (status %s); check headers", status)
	case code == http.StatusNotFound, code == http.StatusGone:
		return source.PermanentErrorf("the server does not know the address (status %s); check url and pagination", status)
	case code == http.StatusTooManyRequests:
		e := source.Errorf("the server asks for fewer calls (status 429)")
		e.RetryAfter = retryAfter(resp.Header, time.Now())
		return e
	case code == http.StatusRequestTimeout, code >= http.StatusInternalServerError:
		e := source.Errorf("the server has a fault (status %s)", status)
		e.RetryAfter = retryAfter(resp.Header, time.Now())
		return e
	}
	return source.PermanentErrorf("the server answers with status %s", status)
}

// retryAfter returns what a Retry-After header asks for: seconds, or a date (RFC 9110, section 10.2.3).
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	const longest = 7 * 24 * time.Hour
	if seconds, err := strconv.Atoi(text); err == nil {
		return min(longest, time.Duration(min(max(seconds, 0), int(longest/time.Second)))*time.Second)
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(longest, max(0, date.Sub(now)))
	}
	return 0
}
