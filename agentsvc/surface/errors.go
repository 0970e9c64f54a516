package surface

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy"
)

// Code is the symbolic name of an error in responses, such as NOT_FOUND.
type Code string

// The codes of errors. errorTable and classifyError decide which one an error has; TestCodes keeps each code to a fixed
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

	// errNoPath says that no route has the path.
	errNoPath = errors.New("there is nothing at this path")
	// errNoApp is also the answer for an app that exists and is not the caller's.
	errNoApp = &responseError{code: NotFound, status: http.StatusNotFound, text: "no such app"}
	// errNoAgent is also the answer for an agent that the caller may not know of.
	errNoAgent = &responseError{code: NotFound, status: http.StatusNotFound, text: "no such agent"}
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
	{tenancy.ErrUnauthenticated, Unauthenticated, http.StatusUnauthorized, rpcInternal, false},
	{authz.ErrKeysUnavailable, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{authz.ErrDenied, PermissionDenied, http.StatusForbidden, rpcInternal, true},
	{tenancy.ErrOperator, PermissionDenied, http.StatusForbidden, rpcInternal, false},
	{tenancy.ErrSuspended, PermissionDenied, http.StatusForbidden, rpcUnsupported, false},
	{capacity.ErrFull, ResourceExhausted, http.StatusTooManyRequests, rpcInternal, false},
	{ratelimit.ErrExhausted, ResourceExhausted, http.StatusTooManyRequests, rpcInternal, true},

	{tenancy.ErrNotFound, NotFound, http.StatusNotFound, rpcTaskNotFound, true},
	{tenancy.ErrExists, AlreadyExists, http.StatusConflict, rpcInternal, true},
	{tenancy.ErrPrecondition, FailedPrecondition, http.StatusPreconditionFailed, rpcInternal, true},
	{tenancy.ErrConflict, Aborted, http.StatusConflict, rpcInternal, true},
	{tenancy.ErrInProgress, Aborted, http.StatusConflict, rpcUnsupported, true},
	{tenancy.ErrKeyReused, InvalidArgument, http.StatusUnprocessableEntity, rpcInvalidParams, true},
	{tenancy.ErrUnavailable, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{tenancy.ErrClosed, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},

	{ErrStopping, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{ErrNotReady, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{errNoPath, NotFound, http.StatusNotFound, rpcMethodNotFound, false},
}

// These texts replace those of errors that must not reach the caller.
const (
	textInternal        = "internal error; the operator finds it in the log by its request_id"
	textUnavailable     = "the service cannot answer at present, try again shortly"
	textUnauthenticated = "missing or invalid credential"
)

// retryInterval is the Retry-After of an unavailable dependency.
const retryInterval = time.Second

// responseError is an error that is created together with its code, status and text for the caller.
type responseError struct {
	code   Code
	status int
	text   string
	// retryAfter is the Retry-After header, 0 = none.
	retryAfter time.Duration
}

// Error returns the text for the caller.
func (e *responseError) Error() string { return e.text }

// errorResponse is everything that a response may say about an error, independent of the protocol.
type errorResponse struct {
	code   Code
	status int
	// rpc is the JSON-RPC code.
	rpc  int
	text string
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
	credentialShown bool
	// authScheme is the scheme for WWW-Authenticate, "" = the error is not about authentication.
	authScheme string
}

// classifyError returns the response for err: by its type if it has one of the known error types, else by errorTable,
// else "unavailable" if a dependency did not answer, else "internal" with a fixed text, so that nothing internal
// reaches the caller.
func classifyError(err error) errorResponse {
	v := errorResponse{code: Internal, status: http.StatusInternalServerError, rpc: rpcInternal, text: textInternal}
	invalid := func(field, text string) {
		v = errorResponse{code: InvalidArgument, status: http.StatusBadRequest, rpc: rpcInvalidParams, text: text, field: field}
	}
	var own *responseError
	var word *agentsvc.InvalidError
	var tenant *tenancy.InvalidError
	var invalidConfig *document.Error
	var rpc *rpcError
	var spent *agentsvc.BudgetExhaustedError
	var full *agentsvc.StorageLimitError
	var large *capacity.TooLargeError
	switch {
	case errors.As(err, &large):
		v = errorResponse{code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, rpc: rpcInternal, text: large.Error()}
	case errors.As(err, &spent):
		v = errorResponse{code: ResourceExhausted, status: http.StatusTooManyRequests, rpc: rpcInternal, text: spent.Error(), exhaustedBudget: spent}
	case errors.As(err, &full):
		v = errorResponse{code: ResourceExhausted, status: http.StatusTooManyRequests, rpc: rpcInternal, text: full.Error(), retryAfter: full.RetryAfter}
	case errors.As(err, &own):
		v = errorResponse{code: own.code, status: own.status, rpc: rpcInvalidRequest, text: own.text, retryAfter: own.retryAfter}
	case errors.As(err, &rpc):
		v = errorResponse{code: InvalidArgument, status: http.StatusBadRequest, rpc: rpc.code, text: rpc.detail}
	case errors.As(err, &word):
		invalid(word.Field, word.Error())
	case errors.As(err, &tenant):
		invalid(tenant.Field, tenant.Error())
	case errors.As(err, &invalidConfig):
		invalid("config", "the configuration is not valid")
		v.problems = invalidConfig.Problems
	default:
		for _, row := range errorTable {
			if !errors.Is(err, row.err) {
				continue
			}
			v = errorResponse{code: row.code, status: row.status, rpc: row.rpc, text: row.err.Error()}
			if row.isInnermost {
				v.text = innermostMessage(err, row.err)
			}
			break
		}
		if v.code == Internal && isUnavailable(err) {
			v = errorResponse{code: Unavailable, status: http.StatusServiceUnavailable, rpc: rpcInternal, text: textUnavailable}
		}
	}
	var exhausted *ratelimit.ExhaustedError
	switch {
	case errors.Is(err, trigger.ErrUnsigned):
		v.authScheme = "Signature"
	case v.code == Unauthenticated:
		v.text, v.authScheme = textUnauthenticated, "Bearer"
	case errors.As(err, &exhausted):
		v.retryAfter, v.exhaustedLimit = exhausted.RetryAfter, exhausted.State
	case spent != nil && !spent.ResetsAt.IsZero():
		v.retryAfter = max(time.Until(spent.ResetsAt), time.Second)
	case v.code == Unavailable:
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

// isHTTPError reports whether the error is about access or capacity. It is then answered by an HTTP status in every
// protocol, also in JSON-RPC, whose other errors have status 200: proxies and client libraries react to the status.
func (v errorResponse) isHTTPError() bool {
	switch v.code {
	case Unauthenticated, PermissionDenied, ResourceExhausted, Unavailable:
		return true
	}
	return false
}

// writeError logs err and writes it as the response, unless one has begun. If the client disconnected and that is what
// failed the request, it only records statusClientGone.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, rec *requestRecord, err error) {
	rec.err = err
	if r.Context().Err() != nil && isUnavailable(err) {
		if rec.status == 0 {
			rec.status = statusClientGone
		}
		return
	}
	v := classifyError(err)
	rec.code = v.code
	if credential, _ := bearerToken(r); credential != "" {
		v.credentialShown = rec.request == nil // else it is good, and a credential that the agent requires is missing
	}
	s.logError(rec.withSpan(r.Context()), rec, v, err)
	if rec.status != 0 {
		return // a stream, which has ended with the error itself
	}
	rec.errorEncoder.writeError(w, rec.id, v)
}

// logError logs an error that is the server's: internal ones at error level, unavailable dependencies at warn level.
// Errors of callers are not logged, they are in the request's log line.
func (s *Server) logError(ctx context.Context, rec *requestRecord, v errorResponse, err error) {
	level := slog.LevelError
	switch {
	case errors.Is(err, ErrNotReady), errors.Is(err, ErrStopping), v.code != Internal && v.code != Unavailable:
		return
	case v.code == Unavailable:
		level = slog.LevelWarn
	}
	s.options.Log.LogAttrs(ctx, level, "a request failed", slog.String("request_id", rec.id), slog.String("route", rec.route),
		slog.String("app", rec.app), slog.Any("error", err))
}

// errorBody is the body of an error on routes without an ErrorEncoder.
type errorBody struct {
	Error ErrorRecord `json:"error"`
}

// ErrorRecord is an error in the form of the REST endpoints. Details has at least request_id.
type ErrorRecord struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details"`
}

// NewErrorRecord returns the record for err, for responses that contain errors among other things.
func NewErrorRecord(r *http.Request, err error) ErrorRecord {
	v := classifyError(err)
	return ErrorRecord{v.code, v.text, v.buildDetails(RequestID(r))}
}

// buildDetails returns the details of the error: request_id always, the others where they apply. resets_at is null for
// a budget that never resets.
func (v errorResponse) buildDetails(requestID string) map[string]any {
	d := map[string]any{"request_id": requestID}
	if v.field != "" {
		d["field"] = v.field
	}
	if s := v.exhaustedBudget; s != nil {
		d["budget"], d["scope"], d["resets_at"] = s.Budget, s.Scope, nil
		if !s.ResetsAt.IsZero() {
			d["resets_at"] = FormatTime(s.ResetsAt)
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

// writeHeaders sets WWW-Authenticate and Retry-After (whole seconds, rounded up) where they apply.
func (v errorResponse) writeHeaders(h http.Header) {
	switch {
	case v.authScheme == "":
	case v.credentialShown:
		h.Set("WWW-Authenticate", v.authScheme+` error="invalid_token"`) // RFC 6750, 3.1
	default:
		h.Set("WWW-Authenticate", v.authScheme)
	}
	if v.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(v.retryAfter.Seconds()))))
	}
}
