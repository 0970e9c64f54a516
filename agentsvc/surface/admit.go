package surface

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// Admit decides whether the caller may take an action with an agent ("" = any) in a session ("" = none yet). It is
// asked before anything is looked up that the request names, so that a refusal tells nothing of what there is. It
// returns an [authz.ErrDenied].
func (v *Visit) Admit(_ context.Context, action authz.Scope, agent string, _ agentsvc.ContextID) error {
	return v.house.Policy().May(v.Principal, action, agent)
}

// Reach returns which tasks of an agent ("" = of all) the caller may act on: the app's with wide, else its own. It
// returns an [authz.ErrDenied] for a caller who may neither.
func (v *Visit) Reach(wide authz.Scope, agent string) (task.Reach, error) {
	allowed, err := v.house.Policy().Tasks(v.Principal, wide, agent)
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

// Tasks returns the app's task service.
func (v *Visit) Tasks() *task.Service { return v.tasks }
