package openai

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
)

var (
	errStopped       = errors.New("the reader stopped")
	errIdle          = errors.New("no further piece of the answer came in time")
	errBrokeOff      = errors.New("the answer broke off")
	errTooLong       = errors.New("the answer is too long")
	errMalformedCall = errors.New("the model made a malformed tool call")
)

// maxErrorBody bounds how much of an error's body is looked at.
const maxErrorBody = 64 << 10

// codes tells what a code in an error's body means. Nothing but these codes is ever taken from a body.
var codes = map[string]string{
	"context_length_exceeded": "the conversation is longer than the model can read",
	"insufficient_quota":      "the account's quota is used up",
	"model_not_found":         "the model is unknown there",
}

// failure puts what went wrong into words that a caller may read.
func (p *Provider) failure(err error) error {
	var known *llm.Error
	if errors.As(err, &known) {
		return known
	}
	out := &llm.Error{Provider: p.opts.Name, Retryable: true}
	var (
		inStream *ssestream.StreamError
		refused  *egress.NotAllowedError
		large    *egress.TooLargeError
	)
	switch {
	case errors.As(err, &refused), errors.As(err, &large):
		out.Retryable = false
		out.Reason = egress.Reason(err)
	case errors.Is(err, errTooLong):
		out.Retryable = false
		out.Reason = errTooLong.Error()
	case errors.Is(err, errIdle), errors.Is(err, errBrokeOff), errors.Is(err, errMalformedCall):
		out.Reason = err.Error()
	case errors.As(err, &inStream):
		out.Reason = "the server reported an error in the middle of the answer"
	case malformed(err):
		out.Reason = "the answer is malformed"
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Reason = errBrokeOff.Error()
	default:
		out.Reason = egress.Reason(err)
	}
	return out
}

func malformed(err error) bool {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &typed)
}

// status returns the error that an answer other than 200 stands for. It closes the body.
func (p *Provider) status(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Error struct {
			Code any    `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	// A body that cannot be read has no code; the status says enough.
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxErrorBody)).Decode(&body)
	code, _ := body.Error.Code.(string)
	out := &llm.Error{
		Provider:   p.opts.Name,
		Status:     resp.StatusCode,
		RetryAfter: retryAfter(resp.Header),
		Retryable:  llm.RetryableStatus(resp.StatusCode) && code != "insufficient_quota" && body.Error.Type != "insufficient_quota",
		Reason:     llm.StatusReason(resp.StatusCode),
	}
	if known := codes[code]; known != "" {
		out.Reason = known
	}
	return out
}

// retryAfter reads the wait a server asks for: milliseconds in OpenAI's own header, else seconds or a date
// (RFC 9110, section 10.2.3).
func retryAfter(h http.Header) time.Duration {
	if d, ok := duration(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	if d, ok := duration(h.Get("Retry-After"), time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

func duration(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, float64(24*time.Hour/unit)) * float64(unit)), true
}
