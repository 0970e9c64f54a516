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

	// ErrEnding says that the server ends its streams, and that the client should come back.
	ErrEnding = errors.New("the server stops, come back")

	// ErrNotReady says that requests should go to another replica.
	ErrNotReady = errors.New("the service is not ready")

	errNoPath  = errors.New("there is nothing at this path")
	errNoApp   = &refusal{code: NotFound, status: http.StatusNotFound, text: "no such app"}
	errNoAgent = &refusal{code: NotFound, status: http.StatusNotFound, text: "no such agent"}
)

// codes is the one place that knows what an error is called. The first row that fits counts. A row that is said speaks
// the whole error; any other speaks the text of its own.
var codes = []struct {
	err    error
	code   Code
	status int
	rpc    int
	said   bool
}{
	{agentsvc.ErrNotFound, NotFound, http.StatusNotFound, rpcTaskNotFound, false},
	{ErrNotCancelable, Aborted, http.StatusConflict, rpcNotCancelable, false},
	{agentsvc.ErrTerminal, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrBusy, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrOccupied, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrUndecided, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrNoCredential, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrPaused, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrDecided, Aborted, http.StatusConflict, rpcUnsupported, false},
	{agentsvc.ErrLost, Aborted, http.StatusConflict, rpcUnsupported, false},
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
	{authz.ErrKeys, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
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

	{ErrEnding, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{ErrNotReady, Unavailable, http.StatusServiceUnavailable, rpcInternal, false},
	{errNoPath, NotFound, http.StatusNotFound, rpcMethodNotFound, false},
}

const (
	textInternal        = "internal error; the operator finds it in the log by its request_id"
	textUnavailable     = "the service cannot answer at present, try again shortly"
	textUnauthenticated = "missing or invalid credential"
)

// retryAfter is the hint that goes with what is unavailable.
const retryAfter = time.Second

// refusal is an error that is born with its answer.
type refusal struct {
	code   Code
	status int
	text   string
	retry  time.Duration // when to come back, 0 = nobody knows
}

// Error returns the text that the caller reads.
func (e *refusal) Error() string { return e.text }

// verdict is what a caller is told about an error.
type verdict struct {
	code     Code
	status   int
	rpc      int
	text     string
	field    string
	problems []config.Problem
	retry    time.Duration
	spent    *agentsvc.ExhaustedError
	limit    *ratelimit.State // that is reached
	shown    bool             // a credential was, and it is that which was refused
	wanted   string           // how the caller is to prove who it is, "" = that is not what is wrong
}

// judge finds out what err is called. What nobody foresaw is internal and says nothing of itself.
func judge(err error) verdict {
	v := verdict{code: Internal, status: http.StatusInternalServerError, rpc: rpcInternal, text: textInternal}
	invalid := func(field, text string) {
		v = verdict{code: InvalidArgument, status: http.StatusBadRequest, rpc: rpcInvalidParams, text: text, field: field}
	}
	var own *refusal
	var word *agentsvc.InvalidError
	var tenant *tenancy.InvalidError
	var document *config.Error
	var rpc *rpcError
	var spent *agentsvc.ExhaustedError
	var full *agentsvc.StoredError
	var bill *billing.InvalidError
	var large *capacity.TooLargeError
	switch {
	case errors.As(err, &large):
		v = verdict{code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, rpc: rpcInternal, text: large.Error()}
	case errors.As(err, &spent):
		v = verdict{code: ResourceExhausted, status: http.StatusTooManyRequests, rpc: rpcInternal, text: spent.Error(), spent: spent}
	case errors.As(err, &full):
		v = verdict{code: ResourceExhausted, status: http.StatusTooManyRequests, rpc: rpcInternal, text: full.Error(), retry: full.Retry}
	case errors.As(err, &bill):
		invalid(bill.Field, bill.Error())
	case errors.As(err, &own):
		v = verdict{code: own.code, status: own.status, rpc: rpcInvalidRequest, text: own.text, retry: own.retry}
	case errors.As(err, &rpc):
		v = verdict{code: InvalidArgument, status: http.StatusBadRequest, rpc: rpc.code, text: rpc.detail}
	case errors.As(err, &word):
		invalid(word.Field, word.Error())
	case errors.As(err, &tenant):
		invalid(tenant.Field, tenant.Error())
	case errors.As(err, &document):
		invalid("config", "the configuration is not valid")
		v.problems = document.Problems
	default:
		for _, row := range codes {
			if !errors.Is(err, row.err) {
				continue
			}
			v = verdict{code: row.code, status: row.status, rpc: row.rpc, text: row.err.Error()}
			if row.said {
				v.text = said(err, row.err)
			}
			break
		}
		if v.code == Internal && unavailable(err) {
			v = verdict{code: Unavailable, status: http.StatusServiceUnavailable, rpc: rpcInternal, text: textUnavailable}
		}
	}
	var exhausted *ratelimit.ExhaustedError
	switch {
	case errors.Is(err, trigger.ErrUnsigned):
		v.wanted = "Signature"
	case v.code == Unauthenticated:
		v.text, v.wanted = textUnauthenticated, "Bearer"
	case errors.As(err, &exhausted):
		v.retry, v.limit = exhausted.RetryAfter, exhausted.State
	case spent != nil && !spent.Resets.IsZero():
		v.retry = max(time.Until(spent.Resets), time.Second)
	case v.code == Unavailable:
		v.retry = retryAfter
	}
	return v
}

// said returns what the innermost of the errors around cause says, without what was being done at the time.
func said(err, cause error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil || next == cause || !errors.Is(next, cause) { //nolint:errorlint // the very one
			return err.Error()
		}
		err = next
	}
}

// door reports whether v is an answer of the door: it is told by the HTTP status even where the dialect has errors of
// its own.
func (v verdict) door() bool {
	switch v.code {
	case Unauthenticated, PermissionDenied, ResourceExhausted, Unavailable:
		return true
	}
	return false
}

// fail writes err as the answer and logs it if it is ours. A client that is gone is told nothing.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, rec *record, err error) {
	rec.err = err
	if r.Context().Err() != nil && unavailable(err) {
		if rec.status == 0 {
			rec.status = statusGone
		}
		return
	}
	v := judge(err)
	rec.code = v.code
	if credential, _ := bearer(r); credential != "" {
		v.shown = rec.visit == nil // else it is good, and what the agent asks for itself is missing
	}
	s.logFault(rec.within(r.Context()), rec, v, err)
	if rec.status != 0 {
		return // a stream, which has told what there was to tell
	}
	rec.tell.write(w, rec.id, v)
}

func (s *Server) logFault(ctx context.Context, rec *record, v verdict, err error) {
	level := slog.LevelError
	switch {
	case errors.Is(err, ErrNotReady), errors.Is(err, ErrEnding), v.code != Internal && v.code != Unavailable:
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
	v := judge(err)
	return ErrorRecord{v.code, v.text, v.details(RequestID(r))}
}

func (v verdict) details(requestID string) map[string]any {
	d := map[string]any{"request_id": requestID}
	if v.field != "" {
		d["field"] = v.field
	}
	if s := v.spent; s != nil {
		d["budget"], d["scope"], d["resets_at"] = s.Budget, s.Scope, nil
		if !s.Resets.IsZero() {
			d["resets_at"] = Timestamp(s.Resets)
		}
	}
	if v.problems != nil {
		d["errors"] = v.problems
	}
	if v.limit != nil {
		maps.Copy(d, limitDetails(v.limit))
	}
	return d
}

// headers writes what is told of v in headers.
func (v verdict) headers(h http.Header) {
	switch {
	case v.wanted == "":
	case v.shown:
		h.Set("WWW-Authenticate", v.wanted+` error="invalid_token"`) // RFC 6750, 3.1
	default:
		h.Set("WWW-Authenticate", v.wanted)
	}
	if v.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(v.retry.Seconds()))))
	}
}
