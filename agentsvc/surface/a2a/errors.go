package a2a

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/errordetails"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// errorKinds maps the JSON-RPC codes of A2A (A2A 1.0, 5.4) to the reason in google.rpc.ErrorInfo and to the name of
// the status over REST and gRPC. The codes are those that package surface assigns in its error table.
var errorKinds = map[int]struct{ reason, status string }{
	-32700: {spec.ErrorReason(spec.ErrParseError), "INVALID_ARGUMENT"},
	-32600: {spec.ErrorReason(spec.ErrInvalidRequest), "INVALID_ARGUMENT"},
	-32601: {spec.ErrorReason(spec.ErrMethodNotFound), "UNIMPLEMENTED"},
	-32602: {spec.ErrorReason(spec.ErrInvalidParams), "INVALID_ARGUMENT"},
	-32001: {spec.ErrorReason(spec.ErrTaskNotFound), "NOT_FOUND"},
	-32002: {spec.ErrorReason(spec.ErrTaskNotCancelable), "FAILED_PRECONDITION"},
	-32003: {spec.ErrorReason(spec.ErrPushNotificationNotSupported), "FAILED_PRECONDITION"},
	-32004: {spec.ErrorReason(spec.ErrUnsupportedOperation), "FAILED_PRECONDITION"},
	-32005: {spec.ErrorReason(spec.ErrUnsupportedContentType), "INVALID_ARGUMENT"},
	-32009: {spec.ErrorReason(spec.ErrVersionNotSupported), "FAILED_PRECONDITION"},
}

// transportReasons are the reasons of errors that have no code of A2A because they arise before the protocol:
// authentication, authorization, limits and unavailability.
var transportReasons = map[apierror.Code]string{
	apierror.Unauthenticated: spec.ErrorReason(spec.ErrUnauthenticated), apierror.PermissionDenied: spec.ErrorReason(spec.ErrUnauthorized),
	apierror.ResourceExhausted: string(apierror.ResourceExhausted), apierror.Unavailable: string(apierror.Unavailable),
	apierror.Internal: spec.ErrorReason(spec.ErrInternalError), apierror.NotFound: string(apierror.NotFound),
}

// codeInternal is the JSON-RPC code of every error that has no code of its own.
const codeInternal = -32603

// transportCodes are the codes that version 0.3 over REST uses for transport errors instead of codeInternal. -31401
// and -31403 are the codes of the protocol's Go library for unauthenticated and unauthorized; with codeInternal the
// clients of 0.3 would report a limit or a wrong token as a fault of the server.
var transportCodes = map[apierror.Code]int{
	apierror.Unauthenticated: -31401, apierror.PermissionDenied: -31403, apierror.ResourceExhausted: -32000, apierror.Unavailable: -32000,
}

// fieldSpelling replaces the field names of the domain packages (snake_case) by those of the protocol.
var fieldSpelling = strings.NewReplacer("page_token", "pageToken", "page_size", "pageSize", "context_id", "contextId", "message_id", "messageId", "task_id", "taskId")

// RespellField returns err with the field name of an [agentsvc.InvalidError] as the protocol spells it. Other
// errors are returned unchanged.
func RespellField(err error) error {
	var wrong *agentsvc.InvalidError
	if !errors.As(err, &wrong) {
		return err
	}
	return agentsvc.NewInvalidError(fieldSpelling.Replace(wrong.Field), "%s", wrong.Reason)
}

// ErrorReason returns the reason for google.rpc.ErrorInfo and the name of the status, such as NOT_FOUND. A missing
// task is TASK_NOT_FOUND although its class, not found, has a reason of its own; for all other errors the transport
// class takes precedence over the code.
func ErrorReason(f apierror.Fault) (reason, status string) {
	kind, known := errorKinds[f.RPC]
	transportReason := transportReasons[f.Code]
	switch {
	case f.RPC == -32001:
		return kind.reason, kind.status
	case transportReason != "":
		return transportReason, string(f.Code)
	case known:
		return kind.reason, kind.status
	}
	return string(f.Code), string(f.Code)
}

// ErrorMetadata returns the metadata of google.rpc.ErrorInfo: the details of a fault that are texts or integers,
// such as the request ID, the limit or the budget. Values of other types have no form there.
func ErrorMetadata(f apierror.Fault) map[string]string {
	out := map[string]string{}
	for name, v := range f.Details {
		switch v := v.(type) {
		case string:
			if name != "field" { // the field is in a google.rpc.BadRequest instead
				out[name] = v
			}
		case int64:
			out[name] = strconv.FormatInt(v, 10)
		}
	}
	return out
}

// faultDetails returns the error details of a fault: an ErrorInfo, and a BadRequest if a field of the request is
// wrong.
func faultDetails(f apierror.Fault) []*errordetails.Typed {
	reason, _ := ErrorReason(f)
	all := []*errordetails.Typed{errordetails.NewErrorInfo(reason, spec.ProtocolDomain, ErrorMetadata(f))}
	if f.Field != "" {
		violation := map[string]any{"field": f.Field, "description": f.Text}
		all = append(all, errordetails.NewTyped("type.googleapis.com/google.rpc.BadRequest", map[string]any{"fieldViolations": []any{violation}}))
	}
	return all
}

// restError is the body of an error over REST (google.rpc.Status, AIP-193). Version 1.0 has only Error; version 0.3
// also has code, message and data at the top level.
type restError struct {
	Code    int                   `json:"code,omitempty"`
	Message string                `json:"message,omitempty"`
	Data    []*errordetails.Typed `json:"data,omitempty"`
	Error   restErrorStatus       `json:"error"`
}

// restErrorStatus is the status of version 1.0; Code is the HTTP status.
type restErrorStatus struct {
	Code    int                   `json:"code"`
	Status  string                `json:"status"`
	Message string                `json:"message"`
	Details []*errordetails.Typed `json:"details"`
}

// encodeError encodes a fault for version 1.0 over REST. FAILED_PRECONDITION is 400 there, as google.rpc.Code maps
// it; the other surfaces of Stoa answer 409.
func encodeError(f apierror.Fault) (int, any) {
	_, name := ErrorReason(f)
	status := f.Status
	if name == "FAILED_PRECONDITION" {
		status = http.StatusBadRequest
	}
	return status, restError{Error: restErrorStatus{status, name, f.FullMessage(), faultDetails(f)}}
}

// encodeError03 encodes a fault for version 0.3 over REST. It keeps the members of 1.0, since some clients of 0.3
// read that form.
func encodeError03(f apierror.Fault) (int, any) {
	status, body := encodeError(f)
	p, _ := body.(restError)
	if n, ok := transportCodes[f.Code]; ok && f.RPC == codeInternal {
		f.RPC = n
	}
	p.Code, p.Message, p.Data = f.RPC, p.Error.Message, p.Error.Details
	return status, p
}
