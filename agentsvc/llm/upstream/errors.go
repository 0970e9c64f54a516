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
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
)

// What can be wrong with an answer. Their texts may be shown to anyone.
var (
	ErrBrokeOff      = errors.New("the answer broke off")
	ErrTooLong       = errors.New("the answer is too long")
	ErrMalformed     = errors.New("the answer is malformed")
	ErrMalformedCall = errors.New("the model made a malformed tool call")
	ErrReported      = errors.New("the server reported an error in the middle of the answer")
)

var (
	errReaderStopped = errors.New("the reader stopped")
	errIdleTimeout   = errors.New("no further piece of the answer came in time")
)

// answerTimeoutError says that an answer went on for longer than it may. To ask again would cost as much and end no earlier.
type answerTimeoutError struct{ limit time.Duration }

func (e *answerTimeoutError) Error() string { return "the answer took longer than " + e.limit.String() }

// maxErrorBody bounds how much of an error's body is looked at.
const maxErrorBody = 64 << 10

// publicError puts what went wrong into words that a caller may read.
func (v Vendor) publicError(err error) error {
	var invalid *agentsvc.InvalidError
	var known *llm.Error
	var large *capacity.TooLargeError
	switch {
	case errors.Is(err, capacity.ErrFull):
		return capacity.ErrFull
	case errors.As(err, &large):
		return large
	case errors.As(err, &invalid):
		return invalid
	case errors.As(err, &known):
		return known
	}
	out := &llm.Error{Provider: v.Name, Retryable: true}
	var (
		refused *egress.NotAllowedError
		tooMuch *egress.TooLargeError
		late    *answerTimeoutError
	)
	switch {
	case errors.As(err, &refused), errors.As(err, &tooMuch):
		out.Retryable = false
		out.Reason = egress.PublicMessage(err)
	case errors.As(err, &late):
		out.Retryable = false
		out.Reason = late.Error()
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

func isMalformed(err error) bool {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	return errors.Is(err, ErrMalformed) || errors.As(err, &syntax) || errors.As(err, &typed)
}

// statusError returns the error that an answer other than 200 stands for. It closes the body.
func (v Vendor) statusError(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	out := &llm.Error{
		Provider:   v.Name,
		Status:     resp.StatusCode,
		RetryAfter: parseRetryAfter(resp.Header),
		Retryable:  llm.IsRetryableStatus(resp.StatusCode),
		Reason:     llm.StatusReason(resp.StatusCode),
	}
	if v.RefineError != nil {
		// A body that cannot be read has no code; the status says enough.
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		v.RefineError(out, text)
	}
	return out
}

// parseRetryAfter reads the wait a server asks for: milliseconds in a header that some vendors send, else seconds or a date
// (RFC 9110, section 10.2.3).
func parseRetryAfter(h http.Header) time.Duration {
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

func parseDuration(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, float64(24*time.Hour/unit)) * float64(unit)), true
}
