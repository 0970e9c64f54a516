package webhook

import (
	"net/http"

	"stoa/agentsvc"
)

// deliveryResponse is the answer to a delivery and the body of a callback. Status is accepted, completed, failed or
// timeout; Result is set only for completed.
type deliveryResponse struct {
	TaskID    agentsvc.TaskID `json:"task_id"`
	Status    string          `json:"status"`
	Result    *string         `json:"result,omitempty"`
	Error     string          `json:"error,omitempty"`
	AgentName string          `json:"agent_name"`
}

// newDeliveryResponse returns the HTTP status and body for a task that a webhook started. waits says that the
// webhook is configured to wait for the result; without it the answer is only that the task was accepted.
func newDeliveryResponse(t agentsvc.Task, waits bool) (status int, a deliveryResponse) {
	a = deliveryResponse{TaskID: t.ID, AgentName: t.Agent}
	text := ""
	if m := t.Status.Message; m != nil {
		text = m.Text()
	}
	switch state := t.Status.State; {
	case !waits, state.IsInterrupted(): // a task that waits for a human gives no result either
		status, a.Status = http.StatusAccepted, "accepted"
	case state == agentsvc.Completed:
		status, a.Status, a.Result = http.StatusOK, "completed", &text
	case state.IsTerminal():
		status, a.Status, a.Error = http.StatusInternalServerError, "failed", text
		if text == "" {
			a.Error = "the task is " + string(state)
		}
	// The wait is over; the task continues.
	default:
		status, a.Status = http.StatusGatewayTimeout, "timeout"
		a.Error = "the agent is still at work; GET /tasks shows what comes of it"
	}
	return status, a
}

// triggerList is the answer of GET /triggers.
type triggerList struct {
	Triggers []triggerInfo `json:"triggers"`
}

// triggerInfo is a trigger of type schedule or webhook. Cron to LastError belong to schedules, Path and Methods to
// webhooks. Times are RFC 3339 in UTC.
type triggerInfo struct {
	Agent      string          `json:"agent"`
	Type       string          `json:"type"`
	Cron       string          `json:"cron,omitempty"`
	Timezone   string          `json:"timezone,omitempty"`
	NextAt     string          `json:"next_at,omitempty"`
	LastAt     string          `json:"last_at,omitempty"`
	LastTaskID agentsvc.TaskID `json:"last_task_id,omitempty"`
	LastError  string          `json:"last_error,omitempty"`
	Path       string          `json:"path,omitempty"`
	Methods    []string        `json:"methods,omitempty"`
}
