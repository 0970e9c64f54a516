package surface

import (
	"cmp"
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/authz"
)

// Authorize decides whether the caller may take an action with an agent ("" = any) in a session ("" = none yet). It is
// asked before anything is looked up that the request names, so that a refusal tells nothing of what there is. It
// returns an [authz.ErrDenied], or an [authz.ErrUnauthenticated] where the agent asks for a credential of its own.
func (v *Request) Authorize(ctx context.Context, action authz.Scope, agent string, _ agentsvc.ContextID) (err error) {
	_, span := trail.StartSpan(ctx, "admit")
	defer func() { trail.EndSpan(span, err) }()
	if err := v.requireAgentCredentials(ctx, agent); err != nil {
		return err
	}
	return v.policy.Authorize(v.Principal, action, agent)
}

// ResolveVisibility returns which tasks of an agent ("" = of all) the caller may act on: the app's with wide, else its own. It
// returns an [authz.ErrDenied] for a caller who may neither, or an [authz.ErrUnauthenticated] as [Request.Authorize] does.
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

// ResolveAgentVisibility is [Request.ResolveVisibility] over the tasks of an agent that the caller may use.
func (v *Request) ResolveAgentVisibility(ctx context.Context, wide authz.Scope, agent string) (task.Visibility, error) {
	visibility, err := v.ResolveVisibility(ctx, wide, agent)
	if err == nil {
		_, err = v.FindAgent(agent)
	}
	return visibility, err
}

// AuthorizeAgent admits the caller to an action with an agent in a session, and finds that agent.
func (v *Request) AuthorizeAgent(ctx context.Context, action authz.Scope, agent string, session agentsvc.ContextID) error {
	if err := v.Authorize(ctx, action, agent, session); err != nil {
		return err
	}
	_, err := v.FindAgent(agent)
	return err
}

// AdmitMessage admits the caller to send m to an agent in m's session, and returns what to submit. A
// message that decides on tool calls needs another permission than one that calls the agent, and reaches the tasks of
// everyone; one that brings credentials does not, and what is submitted no longer holds them. Any other message counts
// against the app's limits. It returns an [authz.ErrDenied], else wrong, which is what its dialect found wrong with the
// message, else what is wrong with the decisions or credentials, or a [ratelimit.ErrExhausted].
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
	if wrong != nil || len(decisions) > 0 {
		return sub, wrong // an answer to what the agent asks for is no further call
	}
	return sub, v.reserveUsage(ctx, &sub)
}

// Tasks returns the app's task service.
func (v *Request) Tasks() *task.Service { return v.tasks }

// Vault returns what the app's users have entrusted to its tools, nil where nothing can be.
func (v *Request) Vault() *store.Vault { return v.runtime.Vault() }

// Memories returns what the app's agents remember of its users.
func (v *Request) Memories() *memory.Recall { return v.runtime.Memories() }
