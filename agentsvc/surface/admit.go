package surface

import (
	"cmp"
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/store/vault"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/authz"
)

// Authorize returns nil if the caller may take action with agent ("" = any). Handlers call it before they look up
// anything that the request names, so that a refusal says nothing about what exists. The session is not part of the
// decision today. It returns an [authz.ErrDenied], or an [authz.ErrUnauthenticated] if the agent requires a credential
// of its own that the caller did not send.
func (v *Request) Authorize(ctx context.Context, action authz.Scope, agent string, _ agentsvc.ContextID) (err error) {
	_, span := trail.StartSpan(ctx, "admit")
	defer func() { trail.EndSpan(span, err) }()
	if err := v.requireAgentCredentials(ctx, agent); err != nil {
		return err
	}
	return v.policy.Authorize(v.Principal, action, agent)
}

// ResolveVisibility returns which tasks of an agent ("" = of every agent) the caller may act on: all of the app's if it
// has the scope wide, else its own. The task service answers for a task outside of the visibility as for one that does
// not exist. It returns an [authz.ErrDenied] for a caller who has neither, or an [authz.ErrUnauthenticated] as
// [Request.Authorize] does.
func (v *Request) ResolveVisibility(ctx context.Context, wide authz.Scope, agent string) (task.Visibility, error) {
	if err := v.requireAgentCredentials(ctx, agent); err != nil {
		return task.Visibility{}, err
	}
	allowed, err := v.policy.AuthorizeTasks(v.Principal, wide, agent)
	if err != nil {
		return task.Visibility{}, err
	}
	visibility := task.Visibility{Agents: allowed.Agents}
	if agent != "" {
		visibility.Agents = []string{agent}
	}
	if !allowed.All {
		owner := v.Principal.Owner()
		visibility.Owner = &owner
	}
	return visibility, nil
}

// ResolveAgentVisibility is [Request.ResolveVisibility] for an agent that must also exist for the caller, see
// [Request.FindAgent].
func (v *Request) ResolveAgentVisibility(ctx context.Context, wide authz.Scope, agent string) (task.Visibility, error) {
	visibility, err := v.ResolveVisibility(ctx, wide, agent)
	if err == nil {
		_, err = v.FindAgent(agent)
	}
	return visibility, err
}

// AuthorizeAgent is [Request.Authorize] followed by [Request.FindAgent]. The order matters: a caller without the
// permission gets the same refusal whether or not the agent exists.
func (v *Request) AuthorizeAgent(ctx context.Context, action authz.Scope, agent string, session agentsvc.ContextID) error {
	if err := v.Authorize(ctx, action, agent, session); err != nil {
		return err
	}
	_, err := v.FindAgent(agent)
	return err
}

// AdmitMessage admits the caller to send m to an agent and returns the submission for the task service. All protocols
// admit messages here.
//
// A message with decisions on tool calls needs the scope [authz.TasksApprove] instead of [authz.AgentsCall]; the task
// service records the decisions and resumes the turn that waits for them. A message that brings credentials for a tool
// needs AgentsCall; their values are moved from the message into the decisions, so that they are not stored with it.
// Neither counts against limits and budgets. Any other message does: Reservation of the submission then says what is
// reserved for its turn, and [Request.ReleaseApp] gives that back unless a turn was written.
//
// wrong is the error that the protocol found while it decoded m, nil if none. It is returned only to a caller who is
// permitted. The errors are, in this order: [authz.ErrDenied] or [authz.ErrUnauthenticated], an unknown agent, wrong,
// an error in the decisions or credentials, an [*agentsvc.BudgetExhaustedError] or a [ratelimit.ErrExhausted].
func (v *Request) AdmitMessage(ctx context.Context, agent string, m agentsvc.Message, wrong error) (task.Submission, error) {
	if wrong != nil {
		return task.Submission{}, cmp.Or(v.AuthorizeAgent(ctx, authz.AgentsCall, agent, m.Context), wrong)
	}
	decisions, wrong := task.ParseDecisions(&m)
	action := authz.AgentsCall
	if task.HasDecision(m) {
		action = authz.TasksApprove
	}
	if err := v.AuthorizeAgent(ctx, action, agent, m.Context); err != nil {
		return task.Submission{}, err
	}
	sub := task.Submission{Agent: agent, Owner: v.Principal.Owner(), Message: m, Decisions: decisions}
	// A decision or a credential continues a turn that was counted when it began.
	if wrong != nil || len(decisions) > 0 {
		return sub, wrong
	}
	return sub, v.reserveUsage(ctx, &sub)
}

// Tasks returns the app's task service, which is bound to the app.
func (v *Request) Tasks() *task.Service { return v.tasks }

// Vault returns the store of credentials that users supplied for tools, nil if the app has none.
func (v *Request) Vault() *vault.Vault { return v.runtime.Vault() }

// Memories returns what the app's agents remember about its users.
func (v *Request) Memories() *memory.Recall { return v.runtime.Memories() }
