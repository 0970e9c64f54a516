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

// Admit decides whether the caller may take an action with an agent ("" = any) in a session ("" = none yet). It is
// asked before anything is looked up that the request names, so that a refusal tells nothing of what there is. It
// returns an [authz.ErrDenied], or an [authz.ErrUnauthenticated] where the agent asks for a credential of its own.
func (v *Visit) Admit(ctx context.Context, action authz.Scope, agent string, _ agentsvc.ContextID) (err error) {
	_, span := trail.Start(ctx, "admit")
	defer func() { trail.End(span, err) }()
	if err := v.satisfy(ctx, agent); err != nil {
		return err
	}
	return v.policy.May(v.Principal, action, agent)
}

// Reach returns which tasks of an agent ("" = of all) the caller may act on: the app's with wide, else its own. It
// returns an [authz.ErrDenied] for a caller who may neither, or an [authz.ErrUnauthenticated] as [Visit.Admit] does.
func (v *Visit) Reach(ctx context.Context, wide authz.Scope, agent string) (task.Reach, error) {
	if err := v.satisfy(ctx, agent); err != nil {
		return task.Reach{}, err
	}
	allowed, err := v.policy.Tasks(v.Principal, wide, agent)
	if err != nil {
		return task.Reach{}, err
	}
	reach := task.Reach{Agents: allowed.Agents}
	if agent != "" {
		reach.Agents = []string{agent}
	}
	if !allowed.All {
		owner := v.Principal.Owner()
		reach.Owner = &owner
	}
	return reach, nil
}

// Within is [Visit.Reach] over the tasks of an agent that the caller may use.
func (v *Visit) Within(ctx context.Context, wide authz.Scope, agent string) (task.Reach, error) {
	reach, err := v.Reach(ctx, wide, agent)
	if err == nil {
		_, err = v.Callee(agent)
	}
	return reach, err
}

// Use admits the caller to an action with an agent in a session, and finds that agent.
func (v *Visit) Use(ctx context.Context, action authz.Scope, agent string, session agentsvc.ContextID) error {
	if err := v.Admit(ctx, action, agent, session); err != nil {
		return err
	}
	_, err := v.Callee(agent)
	return err
}

// Submission admits the caller to send m to an agent in m's session, and returns what to submit. A
// message that decides on tool calls needs another permission than one that calls the agent, and reaches the tasks of
// everyone; one that brings credentials does not, and what is submitted no longer holds them. Any other message counts
// against the app's limits. It returns an [authz.ErrDenied], else wrong, which is what its dialect found wrong with the
// message, else what is wrong with the decisions or credentials, or a [ratelimit.ErrExhausted].
func (v *Visit) Submission(ctx context.Context, agent string, m agentsvc.Message, wrong error) (task.Submission, error) {
	if wrong != nil {
		return task.Submission{}, cmp.Or(v.Use(ctx, authz.AgentsCall, agent, m.Context), wrong)
	}
	rulings, wrong := task.Rulings(&m)
	action := authz.AgentsCall
	if task.Decides(m) {
		action = authz.TasksApprove
	}
	if err := v.Use(ctx, action, agent, m.Context); err != nil {
		return task.Submission{}, err
	}
	sub := task.Submission{Agent: agent, Owner: v.Principal.Owner(), Message: m, Rulings: rulings}
	if wrong != nil || len(rulings) > 0 {
		return sub, wrong // an answer to what the agent asks for is no further call
	}
	return sub, v.reserve(ctx, &sub)
}

// Tasks returns the app's task service.
func (v *Visit) Tasks() *task.Service { return v.tasks }

// Vault returns what the app's users have entrusted to its tools, nil where nothing can be.
func (v *Visit) Vault() *store.Vault { return v.house.Vault() }

// Memories returns what the app's agents remember of its users.
func (v *Visit) Memories() *memory.Recall { return v.house.Memories() }
