package webhook

import (
	"net/http"

	"stoa/agentsvc"
)

// deliveryResponse is what the sender of a delivery is told.
type deliveryResponse struct {
	TaskID    agentsvc.TaskID `json:"task_id"`
	Status    string          `json:"status"`
	Result    *string         `json:"result,omitempty"`
	Error     string          `json:"error,omitempty"`
	AgentName string          `json:"agent_name"`
}

// newDeliveryResponse tells how a task stands that a webhook has started. Where nobody waits for it, that it was.
func newDeliveryResponse(t agentsvc.Task, waits bool) (status int, a deliveryResponse) {
	a = deliveryResponse{TaskID: t.ID, AgentName: t.Agent}
	text := ""
	if m := t.Status.Message; m != nil {
		text = m.Text()
	}
	switch state := t.Status.State; {
	case !waits, state.IsInterrupted(): // or it waits for somebody itself
		status, a.Status = http.StatusAccepted, "accepted"
	case state == agentsvc.Completed:
		status, a.Status, a.Result = http.StatusOK, "completed", &text
	case state.IsTerminal():
		status, a.Status, a.Error = http.StatusInternalServerError, "failed", text
		if text == "" {
			a.Error = "the task is " + string(state)
		}
	default:
		status, a.Status = http.StatusGatewayTimeout, "timeout"
		a.Error = "the agent is still at work; GET /tasks shows what comes of it"
	}
	return status, a
}

// triggerList is what starts an app's agents without a caller.
type triggerList struct {
	Triggers []triggerInfo `json:"triggers"`
}

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
