package upstream

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
)

// Failures of an answer. Their texts may be shown to callers.
var (
	ErrBrokeOff      = errors.New("the answer broke off")
	ErrTooLong       = errors.New("the answer is too long")
	ErrMalformed     = errors.New("the answer is malformed")
	ErrMalformedCall = errors.New("the model made a malformed tool call")
	ErrReported      = errors.New("the server reported an error in the middle of the answer")
)

// Causes with which a call ends. They are translated before they leave the package.
var (
	// errReaderStopped reports that the consumer stopped the iteration. It never leaves the package.
	errReaderStopped = errors.New("the reader stopped")
	// errIdleTimeout is the cause with which a call is cancelled after FirstTimeout or IdleTimeout.
	errIdleTimeout = errors.New("no further piece of the answer came in time")
)

// answerTimeoutError reports that an answer took longer than TotalTimeout. It is not retryable: another attempt would
// cost as much and take as long.
type answerTimeoutError struct{ limit time.Duration }

func (e *answerTimeoutError) Error() string { return "the answer took longer than " + e.limit.String() }

// maxErrorBody bounds the part of an error's body, in bytes, that is parsed for vendor codes.
const maxErrorBody = 64 << 10

// publicError returns err as an error for callers. Errors of Stoa's own types pass unchanged; of all others only a
// fixed text remains, because their texts may quote the body. An error that is not known to be permanent is retryable.
func (v Vendor) publicError(err error) error {
	var own *agentsvc.Error
	var known *llm.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &known):
		return known
	}
	out := &llm.Error{Provider: v.Name, Retryable: true}
	var (
		refused    *egress.NotAllowedError
		tooMuch    *egress.TooLargeError
		timeoutErr *answerTimeoutError
	)
	switch {
	case errors.As(err, &refused), errors.As(err, &tooMuch):
		out.Retryable = false
		out.Reason = egress.PublicMessage(err)
	case errors.As(err, &timeoutErr):
		out.Retryable = false
		out.Reason = timeoutErr.Error()
	case errors.Is(err, ErrTooLong):
		out.Retryable = false
		out.Reason = ErrTooLong.Error()
	case isMalformed(err):
		out.Reason = ErrMalformed.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Reason = ErrBrokeOff.Error()
	default:
		out.Reason = egress.PublicMessage(err)
		for _, plain := range []error{errIdleTimeout, ErrBrokeOff, ErrMalformedCall, ErrReported} {
			if errors.Is(err, plain) {
				out.Reason = plain.Error()
			}
		}
	}
	return out
}

// isMalformed reports whether err says that the body is not the JSON it should be.
func isMalformed(err error) bool {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	return errors.Is(err, ErrMalformed) || errors.As(err, &syntax) || errors.As(err, &typed)
}

// statusError returns the error for an answer with another status than 200, and closes the body.
func (v Vendor) statusError(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	out := &llm.Error{
		Provider:   v.Name,
		Status:     resp.StatusCode,
		RetryAfter: ParseRetryAfter(resp.Header),
		Retryable:  llm.IsRetryableStatus(resp.StatusCode),
		Reason:     llm.StatusReason(resp.StatusCode),
	}
	if v.RefineError != nil {
		// A body that cannot be read has no code; the status is enough.
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		v.RefineError(out, text)
	}
	return out
}

// ParseRetryAfter returns the wait that the server asks for, 0 if none: Retry-After-Ms, which some vendors send, else
// Retry-After in seconds or as a date (RFC 9110, section 10.2.3).
func ParseRetryAfter(h http.Header) time.Duration {
	if d, ok := parseDuration(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	if d, ok := parseDuration(h.Get("Retry-After"), time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// parseDuration parses a number of units. It is cut to 24 h, so that it cannot overflow.
func parseDuration(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, float64(24*time.Hour/unit)) * float64(unit)), true
}
