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

// fieldSpelling replaces the field names of the domain packages (snake_case) by those of the protocol.
var fieldSpelling = strings.NewReplacer("page_token", "pageToken", "page_size", "pageSize", "context_id", "contextId", "message_id", "messageId", "task_id", "taskId")

// RespellField returns err with the field name of an error with [agentsvc.CodeInvalid] as the protocol spells it. Other
// errors are returned unchanged.
func RespellField(err error) error {
	var wrong *agentsvc.Error
	if !errors.As(err, &wrong) || wrong.Code != agentsvc.CodeInvalid {
		return err
	}
	return agentsvc.NewInvalidError(fieldSpelling.Replace(wrong.Field), "%s", wrong.Message)
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
	all := []*errordetails.Typed{errordetails.NewErrorInfo(f.Reason, spec.ProtocolDomain, ErrorMetadata(f))}
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

// restError10 is a restError of version 1.0.
type restError10 struct{ restError }

// MediaType returns the Content-Type of the error.
func (restError10) MediaType() string { return codec10.mediaType }

// newRESTError returns a fault as version 1.0 has it, with its HTTP status. FAILED_PRECONDITION is 400, as
// google.rpc.Code maps it; the other surfaces of Stoa answer 409.
func newRESTError(f apierror.Fault) (int, restError) {
	status := f.Status
	if f.GRPC == "FAILED_PRECONDITION" {
		status = http.StatusBadRequest
	}
	return status, restError{Error: restErrorStatus{status, f.GRPC, f.FullMessage(), faultDetails(f)}}
}

// encodeError encodes a fault for version 1.0 over REST.
func encodeError(f apierror.Fault) (int, any) {
	status, body := newRESTError(f)
	return status, restError10{body}
}

// encodeError03 encodes a fault for version 0.3 over REST. It keeps the members of 1.0, since some clients of 0.3
// read that form.
func encodeError03(f apierror.Fault) (int, any) {
	status, body := newRESTError(f)
	body.Code, body.Message, body.Data = f.REST03, body.Error.Message, body.Error.Details
	return status, body
}
