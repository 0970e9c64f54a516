package surface

import (
	"cmp"
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// AdmitMessage admits the caller to send m to an agent and returns the submission for the task service. All protocols
// admit messages here.
//
// A message with decisions on tool calls needs the scope [authz.TasksApprove] instead of [authz.AgentsCall]; the task
// service records the decisions and resumes the turn that waits for them. A message that brings credentials for a tool
// needs AgentsCall; their values are moved from the message into the decisions, so that they are not stored with it.
// Neither counts against limits and budgets. Any other message does: LimitReservation of the submission then says what is
// reserved for its turn, and [Request.ReleaseApp] gives that back unless a turn was written.
//
// wrong is the error that the protocol found while it decoded m, nil if none. It is returned only to a caller who is
// permitted. The errors are, in this order: error with [agentsvc.CodeDenied] or [authz.ErrUnauthenticated], an unknown
// agent, wrong, an error in the decisions or credentials, an error with the detail [*agentsvc.ExhaustedBudget] or a
// [agentsvc.CodeExhausted].
func (req *Request) AdmitMessage(ctx context.Context, agent string, m agentsvc.Message, wrong error) (task.Submission, error) {
	if wrong != nil {
		return task.Submission{}, cmp.Or(req.AuthorizeAgent(ctx, authz.AgentsCall, agent), wrong)
	}
	decisions, wrong := task.ParseDecisions(&m)
	action := authz.AgentsCall
	if task.HasDecision(m) {
		action = authz.TasksApprove
	}
	if err := req.AuthorizeAgent(ctx, action, agent); err != nil {
		return task.Submission{}, err
	}
	sub := task.Submission{Agent: agent, Owner: req.Principal.Owner(), Roles: req.Principal.Roles, Message: m, Decisions: decisions}
	// A decision or a credential continues a turn that was counted when it began.
	if wrong != nil || len(decisions) > 0 {
		return sub, wrong
	}
	return sub, req.AdmitCall(ctx, &sub)
}
