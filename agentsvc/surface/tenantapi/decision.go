package tenantapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/task"
)

// decisionBody is the body of approve and reject. CallID may be "" if exactly one call waits. Arguments replace
// those of an approved call; missing or null means that the call keeps its own.
type decisionBody struct {
	CallID    string          `json:"call_id"`
	Arguments json.RawMessage `json:"arguments"`
	Comment   string          `json:"comment"`
}

// newDecisionHandler returns the handler that approves or rejects a tool call that waits for a decision.
//
// The task service ([task.Decisions.Decide]) writes the decision together with the task's new state in one transaction.
// If no other call of the turn waits, the same transaction queues a new run that continues the turn from its log: the
// model is not asked again for the step that called the tool. A rejection ends the task. A decision about a call that
// was decided before is an error, so of two concurrent decisions one takes effect.
//
// The route's scope (tasks:approve) is the authorization, so the visibility is unrestricted within the app. The
// response is the task as it stands after the commit, without history and artifacts.
func newDecisionHandler(outcome agentsvc.DecisionOutcome) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var b decisionBody
		if err := surface.DecodeBody(r, &b); err != nil {
			return err
		}
		if err := decode.CheckID("call_id", b.CallID); err != nil {
			return err
		}
		v := surface.RequestOf(r)
		decision := task.DecisionInput{Call: agentsvc.CallID(b.CallID), Outcome: outcome, Arguments: b.Arguments, Comment: b.Comment}
		// JSON null means no arguments, as a missing member does: the call keeps its own.
		if bytes.Equal(b.Arguments, []byte("null")) {
			decision.Arguments = nil
		}
		t, err := v.Tasks.Decisions.Decide(r.Context(), task.Visibility{Memory: surface.MemoryOf(r)}, agentsvc.TaskID(surface.PathParam(r, "task")), v.Principal.Owner(), v.Origin(), decision)
		if err != nil {
			return err
		}
		t.History, t.Artifacts = nil, nil
		return response.WriteJSON(w, http.StatusOK, newTaskRecord(t))
	}
}
