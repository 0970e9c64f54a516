package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
)

// An agent's tool call that waits for a human's decision ends the turn. Both protocols name it by one identifier, which
// contains those of the task and of the call, so that the client can decide without any other. The Responses API has
// items for this purpose (mcp_approval_request and mcp_approval_response). In Chat Completions the request is a call of
// a function that no client has, and the decision is its result: a client that executes functions by itself finds none
// of this name and so cannot approve by mistake.

// approvalFunction is the name of that function, and the type of the item.
const approvalFunction = "mcp_approval_request"

const approvalPrefix = "mcpr_"

// newApprovalID returns the identifier of a tool call that waits for a decision.
func newApprovalID(id agentsvc.TaskID, call agentsvc.CallID) string {
	return fmt.Sprintf("%s%s_%s", approvalPrefix, id, call)
}

// parseApprovalID is the inverse of newApprovalID. Identifiers of tasks contain no underscore.
func parseApprovalID(text string) (id agentsvc.TaskID, call agentsvc.CallID, ok bool) {
	text, ok = strings.CutPrefix(text, approvalPrefix)
	before, after, named := strings.Cut(text, "_")
	return agentsvc.TaskID(before), agentsvc.CallID(after), ok && named && before != "" && after != ""
}

// isApprovalID reports whether text has the form of newApprovalID.
func isApprovalID(text string) bool {
	_, _, ok := parseApprovalID(text)
	return ok
}

// openApprovals returns the tool calls whose decisions the status of a task requests, none for other statuses.
func openApprovals(st agentsvc.Status) []agentsvc.Approval {
	if st.State != agentsvc.InputRequired || st.Message == nil {
		return nil
	}
	return task.ReadQuestion(*st.Message)
}

// decision is a client's decision about a tool call. Approve is nil where the client has left it out.
type decision struct {
	ID      string `json:"-"`
	Approve *bool  `json:"approve"`
	Reason  string `json:"reason"`
}

// newDecisionMessage returns the message that makes the decisions, which must be about calls of one task. at returns the
// path of the i-th decision for errors, idName is its member with the identifier.
func newDecisionMessage(decisions []decision, idName string, at func(i int) string) (agentsvc.Message, error) {
	var m agentsvc.Message
	for i, d := range decisions {
		id, call, ok := parseApprovalID(d.ID)
		switch {
		case !ok:
			return m, agentsvc.NewInvalidError(at(i)+"."+idName, "must be the id of an approval request")
		case m.Task != "" && id != m.Task:
			return m, agentsvc.NewInvalidError(at(i)+"."+idName, "belongs to another task than the decision before it: send one request for each task")
		}
		outcome := agentsvc.OutcomeRejected
		if *d.Approve {
			outcome = agentsvc.OutcomeApproved
		}
		m.Task = id
		m.Parts = append(m.Parts, task.NewDecisionPart(task.DecisionInput{Call: call, Outcome: outcome, Comment: d.Reason}))
	}
	m.Role = agentsvc.RoleUser
	return m, nil
}

// parseDecision decodes the result of the function approvalFunction.
func parseDecision(id, content string) (decision, error) {
	d := decision{ID: id}
	in := json.NewDecoder(bytes.NewReader([]byte(content)))
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil || d.Approve == nil {
		return d, errors.New(`must be {"approve": true} or {"approve": false}, with a reason if there is one`)
	}
	return d, nil
}

// nameRefusedDecision returns the error of a submission. An error about a decision names field in place of the member that
// it has in the messages of other protocols.
func nameRefusedDecision(err error, sub task.Submission, field string) error {
	var invalid *agentsvc.Error
	if len(sub.Decisions) == 0 || !errors.As(err, &invalid) || invalid.Code != agentsvc.CodeInvalid {
		return err
	}
	return agentsvc.NewInvalidError(field, "%s", strings.TrimPrefix(invalid.Error(), "call_id: "))
}

// describeRequest returns the arguments of approvalFunction for a call of the task.
func describeRequest(id agentsvc.TaskID, a agentsvc.Approval) string {
	raw, _ := json.Marshal(approvalArguments{string(id), string(a.Call.ID), a.Frame, a.Call.Name, a.Call.Arguments, a.Prompt})
	return string(raw)
}
