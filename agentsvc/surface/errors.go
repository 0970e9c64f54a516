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
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/billing"
	"stoa/ratelimit"
	"stoa/tenancy"
)

// Code is what an error is called on the wire.
type Code string

// The codes.
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

// What can go wrong with a request whatever it asks for.
var (
	// ErrNotCancelable says that the task to be cancelled has ended.
	ErrNotCancelable = errors.New("the task has ended and cannot be cancelled")
	// ErrUnsupported says that the server does not do this.
	ErrUnsupported = errors.New("not supported")
	// ErrNoPush says that there are no push notifications here.
	ErrNoPush = errors.New("push notifications are not supported")

	// ErrVersion says that the server does not speak this version of a protocol.
	ErrVersion = errors.New("this version of the protocol is not supported")

	// ErrStopping says that the server ends its streams, and that the client should come back.
	ErrStopping = errors.New("the server stops, come back")

	// ErrNotReady says that requests should go to another replica.
	ErrNotReady = errors.New("the service is not ready")

	errNoPath  = errors.New("there is nothing at this path")
	errNoApp   = &responseError{code: NotFound, status: http.StatusNotFound, text: "no such app"}
	errNoAgent = &responseError{code: NotFound, status: http.StatusNotFound, text: "no such agent"}
)

// errorTable is the one place that knows what an error is called. The first row that fits counts. A row that is said speaks
// the whole error; any other speaks the text of its own.
var errorTable = []struct {
	err    error
	code   Code
	status int
	rpc    int
	said   bool
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

	{billing.ErrNotFound, NotFound, http.StatusNotFound, rpcTaskNotFound, true},
	{billing.ErrPrecondition, FailedPrecondition, http.StatusPreconditionFailed, rpcInternal, true},
	{billing.ErrExists, AlreadyExists, http.StatusConflict, rpcInternal, true},

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

const (
	textInternal        = "internal error; the operator finds it in the log by its request_id"
	textUnavailable     = "the service cannot answer at present, try again shortly"
	textUnauthenticated = "missing or invalid credential"
)

// retryInterval is the hint that goes with what is unavailable.
const retryInterval = time.Second

// responseError is an error that is born with its answer.
type responseError struct {
	code       Code
	status     int
	text       string
	retryAfter time.Duration // when to come back, 0 = nobody knows
}

// Error returns the text that the caller reads.
func (e *responseError) Error() string { return e.text }

// errorResponse is what a caller is told about an error.
type errorResponse struct {
	code            Code
	status          int
	rpc             int
	text            string
	field           string
	problems        []config.Problem
	retryAfter      time.Duration
	exhaustedBudget *agentsvc.BudgetExhaustedError
	exhaustedLimit  *ratelimit.State // that is reached
	credentialShown bool             // a credential was, and it is that which was refused
	authScheme      string           // how the caller is to prove who it is, "" = that is not what is wrong
}

// classifyError finds out what err is called. What nobody foresaw is internal and says nothing of itself.
func classifyError(err error) errorResponse {
	v := errorResponse{code: Internal, status: http.StatusInternalServerError, rpc: rpcInternal, text: textInternal}
	invalid := func(field, text string) {
		v = errorResponse{code: InvalidArgument, status: http.StatusBadRequest, rpc: rpcInvalidParams, text: text, field: field}
	}
	var own *responseError
	var word *agentsvc.InvalidError
	var tenant *tenancy.InvalidError
	var document *config.Error
	var rpc *rpcError
	var spent *agentsvc.BudgetExhaustedError
	var full *agentsvc.StorageLimitError
	var bill *billing.InvalidError
	var large *capacity.TooLargeError
	switch {
	case errors.As(err, &large):
		v = errorResponse{code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, rpc: rpcInternal, text: large.Error()}
	case errors.As(err, &spent):
		v = errorResponse{code: ResourceExhausted, status: http.StatusTooManyRequests, rpc: rpcInternal, text: spent.Error(), exhaustedBudget: spent}
	case errors.As(err, &full):
		v = errorResponse{code: ResourceExhausted, status: http.StatusTooManyRequests, rpc: rpcInternal, text: full.Error(), retryAfter: full.RetryAfter}
	case errors.As(err, &bill):
		invalid(bill.Field, bill.Error())
	case errors.As(err, &own):
		v = errorResponse{code: own.code, status: own.status, rpc: rpcInvalidRequest, text: own.text, retryAfter: own.retryAfter}
	case errors.As(err, &rpc):
		v = errorResponse{code: InvalidArgument, status: http.StatusBadRequest, rpc: rpc.code, text: rpc.detail}
	case errors.As(err, &word):
		invalid(word.Field, word.Error())
	case errors.As(err, &tenant):
		invalid(tenant.Field, tenant.Error())
	case errors.As(err, &document):
		invalid("config", "the configuration is not valid")
		v.problems = document.Problems
	default:
		for _, row := range errorTable {
			if !errors.Is(err, row.err) {
				continue
			}
			v = errorResponse{code: row.code, status: row.status, rpc: row.rpc, text: row.err.Error()}
			if row.said {
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

// innermostMessage returns what the innermost of the errors around cause says, without what was being done at the time.
func innermostMessage(err, cause error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil || next == cause || !errors.Is(next, cause) { //nolint:errorlint // the very one
			return err.Error()
		}
		err = next
	}
}

// isHTTPError reports whether v is an answer of the door: it is told by the HTTP status even where the dialect has errors of
// its own.
func (v errorResponse) isHTTPError() bool {
	switch v.code {
	case Unauthenticated, PermissionDenied, ResourceExhausted, Unavailable:
		return true
	}
	return false
}

// writeError writes err as the answer and logs it if it is ours. A client that is gone is told nothing.
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
		v.credentialShown = rec.request == nil // else it is good, and what the agent asks for itself is missing
	}
	s.logError(rec.withSpan(r.Context()), rec, v, err)
	if rec.status != 0 {
		return // a stream, which has told what there was to tell
	}
	rec.errorEncoder.writeError(w, rec.id, v)
}

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

type errorBody struct {
	Error ErrorRecord `json:"error"`
}

// ErrorRecord is an error as REST endpoints tell it.
type ErrorRecord struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details"`
}

// NewErrorRecord returns what a caller is told of err, which happened while r was answered.
func NewErrorRecord(r *http.Request, err error) ErrorRecord {
	v := classifyError(err)
	return ErrorRecord{v.code, v.text, v.buildDetails(RequestID(r))}
}

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

// writeHeaders writes what is told of v in headers.
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
