package surface

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// Admit decides whether the caller may take an action with an agent ("" = any) in a session ("" = none yet). It is
// asked before anything is looked up that the request names, so that a refusal tells nothing of what there is. It
// returns an [authz.ErrDenied].
func (v *Visit) Admit(_ context.Context, action authz.Scope, agent string, _ agentsvc.ContextID) error {
	return v.policy.May(v.Principal, action, agent)
}

// Reach returns which tasks of an agent ("" = of all) the caller may act on: the app's with wide, else its own. It
// returns an [authz.ErrDenied] for a caller who may neither.
func (v *Visit) Reach(wide authz.Scope, agent string) (task.Reach, error) {
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

// Submission admits the caller to send m, in a session ("" = none yet), to an agent, and returns what to submit. A
// message that decides on tool calls needs another permission than one that calls the agent, and reaches the tasks of
// everyone; one that brings credentials does not, and what is submitted no longer holds them. Any other message counts
// against the app's limits. It returns an [authz.ErrDenied], what is wrong with the decisions or credentials, or a
// [ratelimit.ErrExhausted].
func (v *Visit) Submission(ctx context.Context, agent string, session agentsvc.ContextID, m agentsvc.Message) (task.Submission, error) {
	rulings, wrong := task.Rulings(&m)
	action := authz.AgentsCall
	if task.Decides(m) {
		action = authz.TasksApprove
	}
	if err := v.Admit(ctx, action, agent, session); err != nil {
		return task.Submission{}, err
	}
	if _, err := v.Callee(agent); err != nil {
		return task.Submission{}, err
	}
	sub := task.Submission{Agent: agent, Owner: v.Principal.Owner(), Message: m, Rulings: rulings}
	if wrong != nil || len(rulings) > 0 {
		return sub, wrong // an answer to what the agent asks for is no further call
	}
	// The budgets first: they are only looked at, so that a call which they refuse counts for no limit.
	if err := v.house.Afford(ctx, agent, sub.Owner); err != nil {
		return task.Submission{}, err
	}
	var err error
	sub.Hold, err = v.limited(ctx, agent, session, m)
	return sub, err
}

// Tasks returns the app's task service.
func (v *Visit) Tasks() *task.Service { return v.tasks }

// Vault returns what the app's users have entrusted to its tools, nil where nothing can be.
func (v *Visit) Vault() *store.Vault { return v.house.Vault() }

// Memories returns what the app's agents remember of its users.
func (v *Visit) Memories() *memory.Recall { return v.house.Memories() }
