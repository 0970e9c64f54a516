// Package apierror decides what callers get to know about an error. [Classify] maps the errors of all packages by one
// table to a code, an HTTP status, a JSON-RPC code and a text, and an [Encoder] writes these in a protocol's form. The
// texts of errors that are not in the table never reach a caller.
package apierror

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/authz/jwks"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/router"
	"stoa/tenancy/runtimecache"
)

// Code is the symbolic name of an error in responses, such as NOT_FOUND.
type Code string

// The codes of errors. errorTable and Classify decide which one an error has; TestCodes keeps each code to a fixed
// set of HTTP statuses.
const (
	InvalidArgument    Code = "INVALID_ARGUMENT"
	Unauthenticated    Code = "UNAUTHENTICATED"
	PermissionDenied   Code = "PERMISSION_DENIED"
	NotFound           Code = "NOT_FOUND"
	AlreadyExists      Code = "ALREADY_EXISTS"
	Aborted            Code = "ABORTED"
	FailedPrecondition Code = "FAILED_PRECONDITION"
	ResourceExhausted  Code = "RESOURCE_EXHAUSTED"
	Internal           Code = "INTERNAL"
	Unavailable        Code = "UNAVAILABLE"
)

// Errors that routes of any protocol may return.
var (
	// ErrNotCancelable says that the task to be cancelled has ended.
	ErrNotCancelable = errors.New("the task has ended and cannot be cancelled")
	// ErrUnsupported says that the server does not implement an operation.
	ErrUnsupported = errors.New("not supported")
	// ErrNoPush says that the app has no push notifications.
	ErrNoPush = errors.New("push notifications are not supported")

	// ErrVersion says that the server does not speak the requested version of a protocol.
	ErrVersion = errors.New("this version of the protocol is not supported")

	// ErrStopping says that the server ends its streams; the client should reconnect, and reaches another process then.
	ErrStopping = errors.New("the server stops, come back")

	// ErrNotReady says that requests should go to another process.
	ErrNotReady = errors.New("the service is not ready")

	// ErrNoPath says that no route has the path.
	ErrNoPath = errors.New("there is nothing at this path")
	// ErrNoApp is also the answer for an app that exists and is not the caller's.
	ErrNoApp = &Error{Code: NotFound, Status: http.StatusNotFound, Text: "no such app"}
	// ErrNoAgent is also the answer for an agent that the caller may not know of.
	ErrNoAgent = &Error{Code: NotFound, Status: http.StatusNotFound, Text: "no such agent"}
)

// errorTable maps an error of any package to its code, its HTTP status and its JSON-RPC code, for all protocols. The
// first row whose err is in the chain counts. The text for the caller is the text of the row's err, which is fixed; if
// isInnermost is set, it is the text of the innermost error that wraps err (see innermostMessage), which names what was wrong.
// Only errors whose texts are written for callers may set it.
var errorTable = []struct {
	err         error
	code        Code
	status      int
	rpc         int
	isInnermost bool
}{
	{agentsvc.ErrNotFound, NotFound, http.StatusNotFound, rpcTaskNotFound, false},
	{ErrNotCancelable, Aborted, http.StatusConflict, rpcNotCancelable, false},
	{agentsvc.ErrTaskEnded, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrTaskBusy, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrSessionBusy, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrAwaitingDecision, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrAwaitingCredential, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrAwaitingBudget, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrNoOpenDecision, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrLeaseLost, Aborted, http.StatusConflict, rpcUnsupported, false},
	{task.ErrNotRestorable, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrOverloaded, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{task.ErrConflict, InvalidArgument, http.StatusUnprocessableEntity, rpcInvalidParams, false},
	{task.ErrKeyReused, InvalidArgument, http.StatusUnprocessableEntity, rpcInvalidParams, false},
	{ErrNoPush, InvalidArgument, http.StatusBadRequest, rpcNoPush, false},
	{ErrContentType, InvalidArgument, http.StatusBadRequest, rpcContentType, true},
	{ErrVersion, InvalidArgument, http.StatusBadRequest, rpcVersion, true},
	{ErrUnsupported, InvalidArgument, http.StatusBadRequest, rpcUnsupported, true},

	{trigger.ErrUnsigned, Unauthenticated, http.StatusUnauthorized, rpcInternal, false},
	{authz.ErrUnauthenticated, Unauthenticated, http.StatusUnauthorized, rpcInternal, false},
	{router.ErrUnauthenticated, Unauthenticated, http.StatusUnauthorized, rpcInternal, false},
	{jwks.ErrUnavailable, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{authz.ErrDenied, PermissionDenied, http.StatusForbidden, rpcInternal, true},
	{router.ErrOperator, PermissionDenied, http.StatusForbidden, rpcInternal, false},
	{tenancy.ErrSuspended, PermissionDenied, http.StatusForbidden, rpcUnsupported, false},
	{capacity.ErrFull, ResourceExhausted, http.StatusTooManyRequests, rpcInternal, false},
	{ratelimit.ErrExhausted, ResourceExhausted, http.StatusTooManyRequests, rpcInternal, true},

	{tenancy.ErrNotFound, NotFound, http.StatusNotFound, rpcTaskNotFound, true},
	{tenancy.ErrExists, AlreadyExists, http.StatusConflict, rpcInternal, true},
	{tenancy.ErrPrecondition, FailedPrecondition, http.StatusPreconditionFailed, rpcInternal, true},
	{tenancy.ErrConflict, Aborted, http.StatusConflict, rpcInternal, true},
	{idempotency.ErrInProgress, Aborted, http.StatusConflict, rpcUnsupported, true},
	{agentsvc.ErrKeyReused, InvalidArgument, http.StatusUnprocessableEntity, rpcInvalidParams, true},
	{runtimecache.ErrUnavailable, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{runtimecache.ErrClosed, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},

	{ErrStopping, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{ErrNotReady, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{ErrNoPath, NotFound, http.StatusNotFound, RPCMethodNotFound, false},
}

// These texts replace those of errors that must not reach the caller.
const (
	TextInternal        = "internal error; the operator finds it in the log by its request_id"
	textUnavailable     = "the service cannot answer at present, try again shortly"
	textUnauthenticated = "missing or invalid credential"
)

// retryInterval is the Retry-After of an unavailable dependency.
const retryInterval = time.Second

// Error is an error that is created together with its code, status and text for the caller.
type Error struct {
	Code   Code
	Status int
	Text   string
	// retryAfter is the Retry-After header, 0 = none.
	RetryAfter time.Duration
}

// Error returns the text for the caller.
func (e *Error) Error() string { return e.Text }

// Response is everything that a response may say about an error, independent of the protocol.
type Response struct {
	Code   Code
	Status int
	// rpc is the JSON-RPC code.
	rpc  int
	Text string
	// field is the path of the request's field that was wrong, "" = unknown.
	field string
	// problems are those of an invalid configuration, with their positions.
	problems   []document.Problem
	retryAfter time.Duration
	// exhaustedBudget is the budget that refused the call, if one did.
	exhaustedBudget *agentsvc.BudgetExhaustedError
	// exhaustedLimit is the limit that refused the call, if one did.
	exhaustedLimit *ratelimit.State
	// credentialShown says that the request had a credential, and that this credential was refused.
	CredentialShown bool
	// authScheme is the scheme for WWW-Authenticate, "" = the error is not about authentication.
	authScheme string
}

// Classify returns the response for err: by its type if it has one of the known error types, else by errorTable,
// else "unavailable" if a dependency did not answer, else "internal" with a fixed text, so that nothing internal
// reaches the caller.
func Classify(err error) Response {
	v := Response{Code: Internal, Status: http.StatusInternalServerError, rpc: rpcInternal, Text: TextInternal}
	invalid := func(field, text string) {
		v = Response{Code: InvalidArgument, Status: http.StatusBadRequest, rpc: rpcInvalidParams, Text: text, field: field}
	}
	var own *Error
	var word *agentsvc.InvalidError
	var invalidConfig *document.Error
	var rpc *rpcError
	var spent *agentsvc.BudgetExhaustedError
	var full *agentsvc.StorageLimitError
	var large *capacity.TooLargeError
	switch {
	case errors.As(err, &large):
		v = Response{Code: ResourceExhausted, Status: http.StatusRequestEntityTooLarge, rpc: rpcInternal, Text: large.Error()}
	case errors.As(err, &spent):
		v = Response{Code: ResourceExhausted, Status: http.StatusTooManyRequests, rpc: rpcInternal, Text: spent.Error(), exhaustedBudget: spent}
	case errors.As(err, &full):
		v = Response{Code: ResourceExhausted, Status: http.StatusTooManyRequests, rpc: rpcInternal, Text: full.Error(), retryAfter: full.RetryAfter}
	case errors.As(err, &own):
		v = Response{Code: own.Code, Status: own.Status, rpc: rpcInvalidRequest, Text: own.Text, retryAfter: own.RetryAfter}
	case errors.As(err, &rpc):
		v = Response{Code: InvalidArgument, Status: http.StatusBadRequest, rpc: rpc.code, Text: rpc.detail}
	case errors.As(err, &word):
		invalid(word.Field, word.Error())
	case errors.As(err, &invalidConfig):
		invalid("config", "the configuration is not valid")
		v.problems = invalidConfig.Problems
	default:
		for _, row := range errorTable {
			if !errors.Is(err, row.err) {
				continue
			}
			v = Response{Code: row.code, Status: row.status, rpc: row.rpc, Text: row.err.Error()}
			if row.isInnermost {
				v.Text = innermostMessage(err, row.err)
			}
			break
		}
		if v.Code == Internal && IsUnavailable(err) {
			v = Response{Code: Unavailable, Status: http.StatusServiceUnavailable, rpc: rpcInternal, Text: textUnavailable}
		}
	}
	var exhausted *ratelimit.ExhaustedError
	switch {
	case errors.Is(err, trigger.ErrUnsigned):
		v.authScheme = "Signature"
	case v.Code == Unauthenticated:
		v.Text, v.authScheme = textUnauthenticated, "Bearer"
	case errors.As(err, &exhausted):
		v.retryAfter, v.exhaustedLimit = exhausted.RetryAfter, exhausted.State
	case spent != nil && !spent.ResetsAt.IsZero():
		v.retryAfter = max(time.Until(spent.ResetsAt), time.Second)
	case v.Code == Unavailable:
		v.retryAfter = retryInterval
	}
	return v
}

// innermostMessage returns the text of the error in err's chain that wraps cause directly. Errors outside of it say
// what the server was doing, which is for the log.
func innermostMessage(err, cause error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil || next == cause || !errors.Is(next, cause) { //nolint:errorlint // the very one
			return err.Error()
		}
		err = next
	}
}

// IsHTTPError reports whether the error is about access or capacity. It is then answered by an HTTP status in every
// protocol, also in JSON-RPC, whose other errors have status 200: proxies and client libraries react to the status.
func (v Response) IsHTTPError() bool {
	switch v.Code {
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
func (v Response) buildDetails(requestID string) map[string]any {
	d := map[string]any{"request_id": requestID}
	if v.field != "" {
		d["field"] = v.field
	}
	if s := v.exhaustedBudget; s != nil {
		d["budget"], d["scope"], d["resets_at"] = s.Budget, s.Scope, nil
		if !s.ResetsAt.IsZero() {
			d["resets_at"] = encode.FormatTime(s.ResetsAt)
		}
	}
	if v.problems != nil {
		d["errors"] = v.problems
	}
	if v.exhaustedLimit != nil {
		maps.Copy(d, limitDetails(v.exhaustedLimit))
	}
	return d
}

// WriteHeaders sets WWW-Authenticate and Retry-After (whole seconds, rounded up) where they apply.
func (v Response) WriteHeaders(h http.Header) {
	switch {
	case v.authScheme == "":
	case v.CredentialShown:
		h.Set("WWW-Authenticate", v.authScheme+` error="invalid_token"`) // RFC 6750, 3.1
	default:
		h.Set("WWW-Authenticate", v.authScheme)
	}
	if v.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(v.retryAfter.Seconds()))))
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

// NewMethodError returns a 405 error.
func NewMethodError(method string) error {
	return &Error{Code: InvalidArgument, Status: http.StatusMethodNotAllowed, Text: "the method " + method + " is not allowed here"}
}

// ErrContentType says that a message has content of a type that its agent does not read.
var ErrContentType = errors.New("the agent does not read this type of content")

// NewTooManyError returns the error for a body with more than allowed of what.
func NewTooManyError(what string, allowed int) error {
	return &Error{
		Code: ResourceExhausted, Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("the body holds too many %s, %d are allowed", what, allowed),
	}
}

// ErrNoWebhook says that no webhook has the path. It is also the answer for an app that does not exist.
var ErrNoWebhook error = &Error{Code: NotFound, Status: http.StatusNotFound, Text: "no such webhook"}

// ErrOrigin is for a handshake, or a request that writes, from a page of an origin that may not call.
var ErrOrigin = &Error{Code: PermissionDenied, Status: http.StatusForbidden, Text: "pages of this origin may not call here"}
