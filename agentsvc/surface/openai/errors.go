package openai

import (
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// encodeError encodes a fault in OpenAI's form. code is the code of the other surfaces in lower case, param the
// field that is wrong.
func encodeError(f apierror.Fault) (status int, body any) {
	e := errorRecord{Message: f.Text, Type: f.OpenAI, Code: strings.ToLower(string(f.Code)), Details: f.Details}
	if f.Field != "" {
		e.Param = &f.Field
	}
	return f.Status, errorBody{e}
}

// taskFailure describes a task that has no answer.
type taskFailure struct {
	task   agentsvc.TaskID
	status int    // HTTP status of a response without a stream
	code   string // member code of the error, task_ and the state
	text   string
	cause  any // why the task failed, see [agentsvc.Failure]; nil = unknown
}

// newTaskFailure returns why a task has no answer, or nil if it has one. A failed task is 422 and not 5xx: this
// server has worked, and a client that retried would start another task. A task that is still in progress after
// BlockFor is 504.
func newTaskFailure(t agentsvc.Task) *taskFailure {
	e := &taskFailure{task: t.ID, status: http.StatusUnprocessableEntity, code: "task_" + string(t.Status.State)}
	switch t.Status.State {
	case agentsvc.Failed, agentsvc.Cancelled:
		e.text = fmt.Sprintf("the task ended %s", t.Status.State)
		// The runner's message about the failure, which is meant for callers.
		if m := t.Status.Message; m != nil && m.Role == agentsvc.RoleAgent && messageText(*m) != "" {
			e.text, e.cause = messageText(*m), m.Metadata[agentsvc.FailureKey]
		}
		return e
	case agentsvc.Submitted, agentsvc.Working:
		e.status, e.text = http.StatusGatewayTimeout, "the agent has not finished; the task continues and can be read by its id"
		return e
	}
	return nil
}

// toErrorBody returns the error's body with the task's ID, under which the task can be read on other surfaces.
func (f *taskFailure) toErrorBody(requestID string) errorBody {
	details := map[string]any{"task_id": f.task, "request_id": requestID}
	if f.cause != nil {
		details[agentsvc.FailureKey] = f.cause
	}
	return errorBody{errorRecord{Message: f.text, Type: "task_error", Code: f.code, Details: details}}
}
