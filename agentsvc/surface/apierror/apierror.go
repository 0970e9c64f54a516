// Package apierror decides what callers get to know about an error. [Classify] maps the errors of all packages by one
// table to a code, an HTTP status, a JSON-RPC code and a text, and an [Encoder] writes these in a protocol's form. The
// texts of errors that are not in the table never reach a caller.
package apierror

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/task"
	"stoa/ratelimit"
	"stoa/tenancy/db"
)

// Errors that routes of any protocol may return.
var (
	// ErrNotCancelable says that the task to be cancelled has ended.
	ErrNotCancelable = agentsvc.NewError(codeNotCancelable, "the task has ended and cannot be cancelled")
	// ErrNoPush says that the app has no push notifications.
	ErrNoPush = agentsvc.NewError(codeNoPush, "push notifications are not supported")
	// ErrStopping says that the server ends its streams; the client should reconnect, and reaches another process then.
	ErrStopping = agentsvc.NewError(agentsvc.CodeUnavailable, "the server stops, come back")
	// ErrNotReady says that requests should go to another process. See [NewNotReadyError].
	ErrNotReady = agentsvc.NewError(agentsvc.CodeUnavailable, "the service is not ready")
	// ErrNoPath says that no route has the path.
	ErrNoPath = agentsvc.NewError(codeNoPath, "there is nothing at this path")
	// ErrHeadersTooLarge says that the headers have more than surface.MaxHeader bytes.
	ErrHeadersTooLarge = agentsvc.NewError(codeHeadersTooLarge, "the request line and the headers are too large, 32 KiB are allowed")
	// ErrNoApp is also the answer for an app that exists and is not the caller's.
	ErrNoApp = agentsvc.NewError(CodeNoEndpoint, "no such app")
	// ErrNoAgent is also the answer for an agent that the caller may not know of.
	ErrNoAgent = agentsvc.NewError(CodeNoEndpoint, "no such agent")
	// ErrNoWebhook says that no webhook has the path. It is also the answer for an app that does not exist.
	ErrNoWebhook = agentsvc.NewError(CodeNoEndpoint, "no such webhook")
	// ErrOrigin is for a handshake, or a request that writes, from a page of an origin that may not call.
	ErrOrigin = agentsvc.NewError(CodeForeignPage, "pages of this origin may not call here")
)

// NewNotReadyError returns an error that matches [ErrNotReady] and shows why the process is not ready.
func NewNotReadyError(cause error) error {
	reason := "it is stopping"
	switch {
	case errors.Is(cause, db.ErrDiskFull):
		reason = db.ErrDiskFull.Error()
	case IsUnavailable(cause):
		reason = db.ErrUnreachable.Error()
	}
	return &agentsvc.Error{Code: agentsvc.CodeUnavailable, Message: ErrNotReady.Error() + ": " + reason, Err: errors.Join(ErrNotReady, cause)}
}

// NewMethodError returns a 405 error for a path that has the allowed methods.
func NewMethodError(method string, allowed []string) error {
	return agentsvc.NewError(codeMethodNotAllowed, "the method %.20s is not allowed here; there are %s", method, strings.Join(allowed, ", "))
}

// NewTooManyError returns the error for a body with more than allowed of what.
func NewTooManyError(what string, allowed int) error {
	return agentsvc.NewError(CodeBodyTooLarge, "the body holds too many %s, %d are allowed", what, allowed)
}

// These texts replace those of errors that must not reach the caller.
const (
	TextInternal    = "internal error; the operator finds it in the log by its request_id"
	textDiskFull    = "the disk of the server's database is full: the operator has to make space"
	textUnavailable = "the service cannot answer at present, try again shortly"
)

// retryInterval is the Retry-After of an unavailable dependency.
const retryInterval = time.Second

// Response is everything that a response may say about an error, independent of the protocol.
type Response struct {
	mapping
	Text string
	// field is the path of the request's field that was wrong, "" = unknown.
	field string
	// problems are those of an invalid configuration, with their positions.
	problems   []document.Problem
	retryAfter time.Duration
	// exhaustedBudget is the budget that refused the call, if one did.
	exhaustedBudget *agentsvc.ExhaustedBudget
	// exhaustedLimit is the limit that refused the call, if one did.
	exhaustedLimit *ratelimit.State
	// credentialShown says that the request had a credential, and that this credential was refused.
	CredentialShown bool
}

// Classify returns the response for err: of a full disk, else of the first [*agentsvc.Error] in its chain, else of an invalid configuration,
// else "unavailable" if a dependency did not answer, else "internal" with a fixed text, so that nothing internal reaches
// the caller.
func Classify(err error) Response {
	e := &agentsvc.Error{Code: codeInternal, Message: TextInternal}
	var invalidConfig *document.Error
	switch {
	// Before the errors of the domain: a store may have joined a more general one.
	case errors.Is(err, db.ErrDiskFull) && !errors.Is(err, ErrNotReady):
		e = &agentsvc.Error{Code: agentsvc.CodeUnavailable, Message: textDiskFull}
	case errors.As(err, &e):
	case errors.As(err, &invalidConfig):
		v := newResponse(&agentsvc.Error{Code: agentsvc.CodeInvalid, Message: "the configuration is not valid"})
		v.field, v.problems = "config", invalidConfig.Problems
		return v
	case IsUnavailable(err):
		e = &agentsvc.Error{Code: agentsvc.CodeUnavailable, Message: textUnavailable}
	}
	return newResponse(e)
}

// protocolTexts are the texts of errors that name what the protocols call a key.
var protocolTexts = map[error]string{
	agentsvc.ErrKeyReused: "this Idempotency-Key was used for another request",
	task.ErrKeyReused:     "this key was used for another message; use a new Idempotency-Key, or over MCP a new id of the call",
}

// newResponse returns the response for e. What is unavailable has a Retry-After always.
func newResponse(e *agentsvc.Error) Response {
	v := Response{mapping: mappings[e.Code], Text: cmp.Or(protocolTexts[e], e.Error()), field: e.Field, retryAfter: e.RetryAfter}
	v.exhaustedBudget, _ = e.Detail.(*agentsvc.ExhaustedBudget)
	v.exhaustedLimit, _ = e.Detail.(*ratelimit.State)
	if v.Code == Unavailable {
		v.retryAfter = retryInterval
	}
	return v
}

// IsHTTPError reports whether the error is about access or capacity. It is then answered by an HTTP status in every
// protocol, also in JSON-RPC, whose other errors have status 200: proxies and client libraries react to the status.
func (r Response) IsHTTPError() bool {
	switch r.Code {
	case Unauthenticated, PermissionDenied, ResourceExhausted, Unavailable:
		return true
	}
	return false
}

// errorBody is the body of an error on routes without an Encoder.
type errorBody struct {
	Error Record `json:"error"`
}

// Record is an error in the form of the REST endpoints. Details has at least request_id.
type Record struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details"`
}

// NewRecord returns the record for err, for responses that contain errors among other things.
func NewRecord(requestID string, err error) Record {
	v := Classify(err)
	return Record{v.Code, v.Text, v.buildDetails(requestID)}
}

// buildDetails returns the details of the error: request_id always, the others where they apply. resets_at is null for
// a budget that never resets.
func (r Response) buildDetails(requestID string) map[string]any {
	d := map[string]any{"request_id": requestID}
	if r.field != "" {
		d["field"] = r.field
	}
	if s := r.exhaustedBudget; s != nil {
		maps.Copy(d, s.Details())
	}
	if r.problems != nil {
		d["errors"] = r.problems
	}
	if r.exhaustedLimit != nil {
		maps.Copy(d, limitDetails(r.exhaustedLimit))
	}
	return d
}

// WriteHeaders sets WWW-Authenticate and Retry-After (whole seconds, rounded up) where they apply.
func (r Response) WriteHeaders(h http.Header) {
	switch {
	case r.Scheme == "":
	case r.CredentialShown:
		h.Set("WWW-Authenticate", r.Scheme+` error="invalid_token"`) // RFC 6750, 3.1
	default:
		h.Set("WWW-Authenticate", r.Scheme)
	}
	if r.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
	}
}

// limitDetails returns the details of an error for the rule that refused the call.
func limitDetails(s *ratelimit.State) map[string]any {
	d := map[string]any{
		"rule": s.Name(), "scope": string(s.Scope), "type": string(s.Unit), "window": string(s.Window), "limit": s.Limit, "reset": encode.FormatTime(s.Reset),
	}
	if s.Agent != "" {
		d["agent"] = s.Agent
	}
	return d
}
