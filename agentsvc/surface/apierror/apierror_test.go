package apierror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/router"
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
		{"disk full", errors.Join(agentsvc.ErrOverloaded, db.ErrDiskFull), Unavailable, 503, -32603, "the disk of the server's database is full: the operator has to make space", time.Second},
		{"not ready, the disk is full", NewNotReadyError(fmt.Errorf("ping: %w", db.ErrDiskFull)), Unavailable, 503, -32603, "the service is not ready: the disk of the database is full", time.Second},
		{"not ready, no database", NewNotReadyError(refused), Unavailable, 503, -32603, "the service is not ready: the database does not answer", time.Second},
		{"not ready, it stops", NewNotReadyError(errors.New("stopping")), Unavailable, 503, -32603, "the service is not ready: it is stopping", time.Second},
		{"stopping", agentsvc.ErrStopping, Unavailable, 503, -32603, agentsvc.ErrStopping.Error(), time.Second},
		{"same id, other body", task.ErrConflict, InvalidArgument, 422, -32602, "a message with this id and another body was sent before", 0},
		{"input", fmt.Errorf("x: %w", agentsvc.NewInvalidError("a.b", "is wrong")), InvalidArgument, 400, -32602, "a.b: is wrong", 0},
		{"input of an app", agentsvc.NewInvalidError("name", "is wrong"), InvalidArgument, 400, -32602, "name: is wrong", 0},
		{"config", &document.Error{Problems: []document.Problem{{Path: "agents"}}}, InvalidArgument, 400, -32602, "the configuration is not valid", 0},
		{"push", ErrNoPush, InvalidArgument, 400, -32003, "push notifications are not supported", 0},
		{"content", agentsvc.NewError(CodeContentType, "it is a picture"), InvalidArgument, 400, -32005, "it is a picture", 0},
		{"no message", agentsvc.NewError(CodeMalformed, "no message"), InvalidArgument, 400, -32600, "no message", 0},

		{"no credential", router.ErrUnauthenticated, Unauthenticated, 401, -32603, authz.ErrUnauthenticated.Error(), 0},
		{"bad token", fmt.Errorf("verify: %w", authz.ErrUnauthenticated), Unauthenticated, 401, -32603, authz.ErrUnauthenticated.Error(), 0},
		{"denied", agentsvc.NewError(agentsvc.CodeDenied, "permission denied: the scope is missing"), PermissionDenied, 403, -32603, "permission denied: the scope is missing", 0},
		{"operator", router.ErrOperator, PermissionDenied, 403, -32603, "the operator's credential is for /admin alone", 0},
		{"suspended", tenancy.ErrSuspended, PermissionDenied, 403, -32004, "the app is suspended", 0},
		{"exhausted", ratelimit.NewExhaustedError(7 * time.Second), ResourceExhausted, 429, -32603, "limit reached, try again in 7 s", 7 * time.Second},

		{"unknown app", fmt.Errorf("x: %w", agentsvc.NewError(agentsvc.CodeNotFound, "no such app")), NotFound, 404, -32001, "no such app", 0},
		{"name taken", agentsvc.NewError(agentsvc.CodeExists, "already exists"), AlreadyExists, 409, -32603, "already exists", 0},
		{"other revision", agentsvc.NewError(agentsvc.CodePrecondition, "precondition failed"), FailedPrecondition, 412, -32603, "precondition failed", 0},
		{"in progress", idempotency.ErrInProgress, Aborted, 409, -32004, idempotency.ErrInProgress.Error(), 0},
		{"key reused", agentsvc.ErrKeyReused, InvalidArgument, 422, -32602, "this Idempotency-Key was used for another request", 0},

		{"outcome unknown", fmt.Errorf("x: %w", db.ErrUnknownOutcome), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"database closed", db.ErrClosed, Unavailable, 503, -32603, textUnavailable, time.Second},
		{"connection refused", fmt.Errorf("x: %w", refused), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"connection broken", io.ErrUnexpectedEOF, Unavailable, 503, -32603, textUnavailable, time.Second},
		{"deadline", context.DeadlineExceeded, Unavailable, 503, -32603, textUnavailable, time.Second},
		{"postgres stops", stateError("57P01"), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"postgres is full", stateError("53300"), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"postgres refuses a statement", stateError("42601"), Internal, 500, -32603, TextInternal, 0},
		{"sqlite is busy", resultError(5 | 1<<8), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"disk full", resultError(13), Unavailable, 503, -32603, textUnavailable, time.Second},
		{"sqlite constraint", resultError(19), Internal, 500, -32603, TextInternal, 0},
		{"anything else", errors.New("password=hunter2"), Internal, 500, -32603, TextInternal, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := Classify(tt.err)
			if v.Code != tt.code || v.Status != tt.status || v.RPC != tt.rpc || v.Text != tt.text || v.retryAfter != tt.retry {
				t.Errorf("judge = %+v, want %+v", v, tt)
			}
		})
	}
}

// TestMappings checks that each code that is declared has a mapping, that each name of responses goes with its own HTTP
// statuses only, and that protocols know the other values.
func TestMappings(t *testing.T) {
	t.Parallel()
	statuses := map[Code][]int{
		InvalidArgument: {400, 405, 422}, Unauthenticated: {401}, PermissionDenied: {403}, NotFound: {404}, AlreadyExists: {409},
		Aborted: {409}, FailedPrecondition: {412}, ResourceExhausted: {413, 429, 431}, Internal: {500}, Unavailable: {503},
	}
	declared := append(declaredCodes(t, "../../errors.go", "Code"), declaredCodes(t, "table.go", "agentsvc.Code")...)
	if len(declared) != len(mappings) {
		t.Errorf("%d codes are declared, %d have a mapping", len(declared), len(mappings))
	}
	for _, code := range declared {
		m := mappings[code]
		if !slices.Contains(statuses[m.Code], m.Status) {
			t.Errorf("%s: %s does not go with %d", code, m.Code, m.Status)
		}
		if rpcMessages[m.RPC] == "" {
			t.Errorf("%s: the JSON-RPC code %d has no message", code, m.RPC)
		}
		if m.Reason == "" || m.GRPC == "" || m.REST03 == 0 || m.OpenAI == "" {
			t.Errorf("%s: a protocol has no value in %+v", code, m)
		}
		if (m.Scheme != "") != (m.Status == http.StatusUnauthorized) {
			t.Errorf("%s: the scheme %q does not go with %d", code, m.Scheme, m.Status)
		}
	}
}

// TestErrorsPage checks that the table of the errors page has a row for each mapping, with its values, and no others.
func TestErrorsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/api/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var printed, want []string
	for _, m := range regexp.MustCompile("(?m)^\\|[^|]+(\\| `[A-Z_]+` \\| \\d+ \\|.+\\|)[^|]+\\|$").FindAllStringSubmatch(string(page), -1) {
		printed = append(printed, m[1])
	}
	for code, m := range mappings {
		rpc := strconv.Itoa(m.RPC)
		// These are answered by their HTTP status before a call is read, see jsonrpc.Endpoint.
		if (Response{mapping: m}).IsHTTPError() || slices.Contains([]agentsvc.Code{CodeNoEndpoint, codeNoPath, codeMethodNotAllowed}, code) {
			rpc = "HTTP"
		}
		want = append(want, fmt.Sprintf("| `%s` | %d | %s | `%s` | `%s` | %d | `%s` |", m.Code, m.Status, rpc, m.Reason, m.GRPC, m.REST03, m.OpenAI))
	}
	slices.Sort(printed)
	slices.Sort(want)
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Errorf("docs/api/errors.md differs from the table of the code:\n%s", diff)
	}
}

// declaredCodes returns the constants of a file that have that type, by its text.
func declaredCodes(t *testing.T, file, kind string) (codes []agentsvc.Code) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t[Cc]ode\w+ +`+kind+` += "(.+?)"`).FindAllStringSubmatch(string(src), -1) {
		codes = append(codes, agentsvc.Code(m[1]))
	}
	return codes
}
