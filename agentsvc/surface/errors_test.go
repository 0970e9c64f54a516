package surface

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

type stateError string

func (e stateError) Error() string    { return "postgres says " + string(e) }
func (e stateError) SQLState() string { return string(e) }

type resultError int

func (e resultError) Error() string { return fmt.Sprintf("sqlite says %d", int(e)) }
func (e resultError) Code() int     { return int(e) }

func TestClassifyError(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	tests := []struct {
		name   string
		err    error
		code   Code
		status int
		rpc    int
		text   string
		retry  time.Duration
	}{
		{"unknown task", fmt.Errorf("read task 7: %w", agentsvc.ErrNotFound), NotFound, 404, -32001, "not found", 0},
		{"message to an ended task", agentsvc.ErrTaskEnded, Aborted, 409, -32004, "the task has ended", 0},
		{"cancel of an ended task", ErrNotCancelable, Aborted, 409, -32002, "the task has ended and cannot be cancelled", 0},
		{"busy", agentsvc.ErrTaskBusy, Aborted, 409, -32004, "the task is still working on an earlier message", 0},
		{"busy with another task", agentsvc.ErrSessionBusy, Aborted, 409, -32004, agentsvc.ErrSessionBusy.Error(), 0},
		{"overloaded", agentsvc.ErrOverloaded, Unavailable, 503, -32603, "the server is at its limit, try again shortly", time.Second},
		{"same id, other body", task.ErrConflict, InvalidArgument, 422, -32602, "a message with this id and another body was sent before", 0},
		{"input", fmt.Errorf("x: %w", agentsvc.NewInvalidError("a.b", "is wrong")), InvalidArgument, 400, -32602, "a.b: is wrong", 0},
		{"input of an app", &tenancy.InvalidError{Field: "name", Reason: "is wrong"}, InvalidArgument, 400, -32602, "name: is wrong", 0},
		{"config", &document.Error{Problems: []document.Problem{{Path: "agents"}}}, InvalidArgument, 400, -32602, "the configuration is not valid", 0},
		{"push", ErrNoPush, InvalidArgument, 400, -32003, "push notifications are not supported", 0},
		{"content", fmt.Errorf("%w: it is a picture", ErrContentType), InvalidArgument, 400, -32005, ErrContentType.Error() + ": it is a picture", 0},
		{"no message", NewInvalidRequestError("no message"), InvalidArgument, 400, -32600, "no message", 0},

		{"no credential", tenancy.ErrUnauthenticated, Unauthenticated, 401, -32603, textUnauthenticated, 0},
		{"bad token", fmt.Errorf("verify: %w", authz.ErrUnauthenticated), Unauthenticated, 401, -32603, textUnauthenticated, 0},
		{"denied", fmt.Errorf("%w: the scope is missing", authz.ErrDenied), PermissionDenied, 403, -32603, "permission denied: the scope is missing", 0},
		{"operator", tenancy.ErrOperator, PermissionDenied, 403, -32603, "the operator's credential is for /admin alone", 0},
		{"suspended", tenancy.ErrSuspended, PermissionDenied, 403, -32004, "the app is suspended", 0},
		{"exhausted", &ratelimit.ExhaustedError{RetryAfter: 7 * time.Second}, ResourceExhausted, 429, -32603, "limit reached, try again in 7 s", 7 * time.Second},

		{"unknown app", fmt.Errorf("%w: no such app", tenancy.ErrNotFound), NotFound, 404, -32001, "not found: no such app", 0},
		{"name taken", tenancy.ErrExists, AlreadyExists, 409, -32603, "already exists", 0},
		{"other revision", tenancy.ErrPrecondition, FailedPrecondition, 412, -32603, "precondition failed", 0},
		{"in progress", tenancy.ErrInProgress, Aborted, 409, -32004, tenancy.ErrInProgress.Error(), 0},
		{"key reused", tenancy.ErrKeyReused, InvalidArgument, 422, -32602, tenancy.ErrKeyReused.Error(), 0},

		{"outcome unknown", fmt.Errorf("x: %w", db.ErrUnknownOutcome), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"database closed", db.ErrClosed, Unavailable, 503, -32603, textUnavailable, time.Second},
		{"connection refused", fmt.Errorf("x: %w", refused), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"connection broken", io.ErrUnexpectedEOF, Unavailable, 503, -32603, textUnavailable, time.Second},
		{"deadline", context.DeadlineExceeded, Unavailable, 503, -32603, textUnavailable, time.Second},
		{"postgres stops", stateError("57P01"), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"postgres is full", stateError("53300"), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"postgres refuses a statement", stateError("42601"), Internal, 500, -32603, textInternal, 0},
		{"sqlite is busy", resultError(5 | 1<<8), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"disk full", resultError(13), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"sqlite constraint", resultError(19), Internal, 500, -32603, textInternal, 0},
		{"anything else", errors.New("password=hunter2"), Internal, 500, -32603, textInternal, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := classifyError(tt.err)
			if v.code != tt.code || v.status != tt.status || v.rpc != tt.rpc || v.text != tt.text || v.retryAfter != tt.retry {
				t.Errorf("judge = %+v, want %+v", v, tt)
			}
		})
	}
}

// TestCodes checks that each code is used with its own HTTP statuses only.
func TestCodes(t *testing.T) {
	t.Parallel()
	statuses := map[Code][]int{
		InvalidArgument: {400, 405, 422}, Unauthenticated: {401}, PermissionDenied: {403}, NotFound: {404}, AlreadyExists: {409},
		Aborted: {409}, FailedPrecondition: {412}, ResourceExhausted: {413, 429}, Internal: {500}, Unavailable: {503},
	}
	for _, row := range errorTable {
		ok := false
		for _, s := range statuses[row.code] {
			ok = ok || s == row.status
		}
		if !ok {
			t.Errorf("%v: %s does not go with %d", row.err, row.code, row.status)
		}
		if rpcMessages[row.rpc] == "" {
			t.Errorf("%v: the JSON-RPC code %d has no message", row.err, row.rpc)
		}
		if http.StatusText(row.status) == "" {
			t.Errorf("%v: %d is no status", row.err, row.status)
		}
	}
}
