package openai

import (
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// errorTypes are what OpenAI calls errors of a kind.
var errorTypes = map[surface.Code]string{
	surface.Unauthenticated: "authentication_error", surface.PermissionDenied: "permission_error", surface.ResourceExhausted: "rate_limit_error",
	surface.Internal: "server_error", surface.Unavailable: "server_error",
}

const invalidRequest = "invalid_request_error"

// encodeError tells of an error as OpenAI does. Its code is the house's own, in lower case.
func encodeError(f surface.Fault) (status int, body any) {
	e := errorRecord{Message: f.Text, Type: errorTypes[f.Code], Code: strings.ToLower(string(f.Code)), Details: f.Details}
	if e.Type == "" {
		e.Type = invalidRequest
	}
	if f.Field != "" {
		e.Param = &f.Field
	}
	return f.Status, errorBody{e}
}

// taskFailure is what is told of a task that came to no answer.
type taskFailure struct {
	task   agentsvc.TaskID
	status int
	code   string
	text   string
}

// newTaskFailure returns why a task has no answer, nil if it has one. That it failed is no failure of this server's, and asking
// again would be another task.
func newTaskFailure(t agentsvc.Task) *taskFailure {
	e := &taskFailure{task: t.ID, status: http.StatusUnprocessableEntity, code: "task_" + string(t.Status.State)}
	switch t.Status.State {
	case agentsvc.Failed, agentsvc.Cancelled:
		e.text = fmt.Sprintf("the task ended %s", t.Status.State)
		if m := t.Status.Message; m != nil && m.Role == agentsvc.RoleAgent && messageText(*m) != "" {
			e.text = messageText(*m)
		}
		return e
	case agentsvc.Submitted, agentsvc.Working:
		e.status, e.text = http.StatusGatewayTimeout, "the agent is still at work; the task goes on and can be read under its id"
		return e
	}
	return nil
}

func (e *taskFailure) toErrorBody(requestID string) errorBody {
	return errorBody{errorRecord{Message: e.text, Type: "task_error", Code: e.code, Details: map[string]any{"task_id": e.task, "request_id": requestID}}}
}
