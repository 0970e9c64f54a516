package a2a

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/errordetails"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// errorKinds are the errors that A2A has numbers for: their reason, and what REST and gRPC call them.
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

// transportReasons are those of the door.
var transportReasons = map[surface.Code]string{
	surface.Unauthenticated: spec.ErrorReason(spec.ErrUnauthenticated), surface.PermissionDenied: spec.ErrorReason(spec.ErrUnauthorized),
	surface.ResourceExhausted: string(surface.ResourceExhausted), surface.Unavailable: string(surface.Unavailable),
	surface.Internal: spec.ErrorReason(spec.ErrInternalError), surface.NotFound: string(surface.NotFound),
}

// codeInternal is the number of what has none of its own; doors are those that version 0.3 has for errors of the door over REST.
const codeInternal = -32603

var transportCodes = map[surface.Code]int{
	surface.Unauthenticated: -31401, surface.PermissionDenied: -31403, surface.ResourceExhausted: -32000, surface.Unavailable: -32000,
}

// fieldSpelling is how the protocol spells the fields that the rooms behind it know in another way.
var fieldSpelling = strings.NewReplacer("page_token", "pageToken", "page_size", "pageSize", "context_id", "contextId", "message_id", "messageId", "task_id", "taskId")

// RespellField returns err with the field that it is about as the protocol spells it.
func RespellField(err error) error {
	var wrong *agentsvc.InvalidError
	if !errors.As(err, &wrong) {
		return err
	}
	return agentsvc.NewInvalidError(fieldSpelling.Replace(wrong.Field), "%s", wrong.Reason)
}

// ErrorReason returns the reason of a fault, as google.rpc.ErrorInfo tells it, and the name of its status.
func ErrorReason(f surface.Fault) (reason, status string) {
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

// ErrorMetadata is what google.rpc.ErrorInfo tells of a fault beside the reason: its details that are texts or numbers, such as the
// limit or the budget that is reached.
func ErrorMetadata(f surface.Fault) map[string]string {
	out := map[string]string{}
	for name, v := range f.Details {
		switch v := v.(type) {
		case string:
			if name != "field" { // it is told of in a google.rpc.BadRequest
				out[name] = v
			}
		case int64:
			out[name] = strconv.FormatInt(v, 10)
		}
	}
	return out
}

// faultDetails are what is told of a fault beside its number and message: why, and which field is wrong.
func faultDetails(f surface.Fault) []*errordetails.Typed {
	reason, _ := ErrorReason(f)
	all := []*errordetails.Typed{errordetails.NewErrorInfo(reason, spec.ProtocolDomain, ErrorMetadata(f))}
	if f.Field != "" {
		violation := map[string]any{"field": f.Field, "description": f.Text}
		all = append(all, errordetails.NewTyped("type.googleapis.com/google.rpc.BadRequest", map[string]any{"fieldViolations": []any{violation}}))
	}
	return all
}

// restError is an error of REST (google.rpc.Status, AIP-193). Version 0.3 has number, message and data at the top.
type restError struct {
	Code    int                   `json:"code,omitempty"`
	Message string                `json:"message,omitempty"`
	Data    []*errordetails.Typed `json:"data,omitempty"`
	Error   restErrorStatus       `json:"error"`
}

type restErrorStatus struct {
	Code    int                   `json:"code"`
	Status  string                `json:"status"`
	Message string                `json:"message"`
	Details []*errordetails.Typed `json:"details"`
}

// encodeError tells of errors as version 1.0 does over REST.
func encodeError(f surface.Fault) (int, any) {
	_, name := ErrorReason(f)
	status := f.Status
	if name == "FAILED_PRECONDITION" {
		status = http.StatusBadRequest
	}
	return status, restError{Error: restErrorStatus{status, name, f.FullMessage(), faultDetails(f)}}
}

// encodeError03 tells of them so that clients of version 0.3 find them, those too that read the form of 1.0.
func encodeError03(f surface.Fault) (int, any) {
	status, body := encodeError(f)
	p, _ := body.(restError)
	if n, ok := transportCodes[f.Code]; ok && f.RPC == codeInternal {
		f.RPC = n
	}
	p.Code, p.Message, p.Data = f.RPC, p.Error.Message, p.Error.Details
	return status, p
}
