package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm/upstream"
)

// RemoteError reports that the server of a remote agent could not be reached, could not answer at present, or did not
// answer in time. It contains nothing of the server's texts.
type RemoteError struct {
	Agent string
	// Reason is the predicate of the error's text, one of Stoa's own.
	Reason string
	// RetryAfter is the wait that the server asked for, 0 if none.
	RetryAfter time.Duration
	// Retryable reports that the turn may be attempted again. It is false once the server has answered the message: it
	// may have done a part of the work, which another attempt would repeat.
	Retryable bool
}

// Error implements [error].
func (e *RemoteError) Error() string { return "the remote agent " + e.Agent + " " + e.Reason }

// remoteStatusError is an HTTP status after which the same request may succeed later.
type remoteStatusError struct {
	status     int
	retryAfter time.Duration
}

func (e *remoteStatusError) Error() string { return fmt.Sprintf("status %d", e.status) }

// statusTransport returns a [*remoteStatusError] instead of a response with status 429 or 5xx, because the A2A library
// does not report the status of an answer in a form that can be read. 501 is permanent: the server lacks the method.
type statusTransport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (s statusTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 || resp.StatusCode == http.StatusNotImplemented {
		return resp, err
	}
	_ = resp.Body.Close()
	return nil, &remoteStatusError{resp.StatusCode, upstream.ParseRetryAfter(resp.Header)}
}

// isTemporary reports whether the request that failed with err may succeed later: no answer arrived, or the server
// reported a fault of its own.
func isTemporary(err error) bool {
	if _, ok := errors.AsType[*egress.NotAllowedError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*egress.TooLargeError](err); ok {
		return false
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Op != "parse" // all others are of a request
	}
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, a2a.ErrInternalError) || errors.Is(err, a2a.ErrServerError)
}

// publicError returns what the caller may read of err. Texts of the other server never reach the caller: a known A2A
// error is replaced by a fixed text, any other by what package egress permits.
func (r *remoteRun) publicError(err error) error {
	if errors.Is(err, agentsvc.CodeInvalid) {
		return err
	}
	if status, ok := errors.AsType[*remoteStatusError](err); ok {
		return &RemoteError{r.options.Name, fmt.Sprintf("answered %d", status.status), status.retryAfter, true}
	}
	why := egress.PublicMessage(err)
	for _, known := range remoteErrors {
		if errors.Is(err, known.err) {
			why = known.why
		}
	}
	if isTemporary(err) {
		return &RemoteError{Agent: r.options.Name, Reason: "could not be called: " + why, Retryable: true}
	}
	return agentsvc.NewInvalidError("", "the remote agent %s could not be called: %s", r.options.Name, why)
}

// remoteErrors maps errors of the A2A protocol to fixed texts. If several match, the last one is used.
var remoteErrors = []struct {
	err error
	why string
}{
	{a2a.ErrUnauthenticated, "it does not accept the credential"},
	{a2a.ErrUnauthorized, "it does not allow the call"},
	{a2a.ErrTaskNotFound, "it does not know the task any more"},
	{a2a.ErrUnsupportedContentType, "it does not read this type of content"},
	{a2a.ErrVersionNotSupported, "it does not speak this version of A2A"},
	{a2a.ErrInvalidParams, "it refuses the message"},
	{a2a.ErrInvalidRequest, "it refuses the message"},
	{a2a.ErrMethodNotFound, "its server does not know the method"},
	{a2a.ErrUnsupportedOperation, "its server does not do this"},
	{a2a.ErrInternalError, "its server met an error"},
	{a2a.ErrServerError, "its server met an error"},
}
