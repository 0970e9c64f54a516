package tenancy

import (
	"cmp"
	"context"

	"stoa/tenancy/db"
)

// RebuildAppsOnPlan has every app that is on a plan built anew, in the transaction in which the plan changes, and returns them:
// whoever calls it publishes them on [TopicApp] after the commit.
func RebuildAppsOnPlan(ctx context.Context, tx *db.Tx, plan string) (on []db.ID, err error) {
	err = tx.Query(ctx, func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		on = append(on, db.ID(id))
		return err
	}, `UPDATE app SET inputs = inputs + 1, generation = generation + 1 WHERE plan = $1 RETURNING tenant`, plan)
	return on, err
}

// checkPlanExists refuses the name of a plan, where one is given, that does not exist.
func (s *Service) checkPlanExists(ctx context.Context, name *string) error {
	if name == nil || *name == "" || s.options.CheckPlan == nil {
		return nil
	}
	return s.options.CheckPlan(ctx, *name)
}

// EffectiveLimits returns the limits that hold for the app: its own, where it has none its plan's, else the defaults.
func (a App) EffectiveLimits() Limits {
	l := a.Limits
	l.Weight = cmp.Or(l.Weight, a.planLimits.Weight)
	l.MaxConcurrentTasks = cmp.Or(l.MaxConcurrentTasks, a.planLimits.MaxConcurrentTasks)
	l.QueueDepth = cmp.Or(l.QueueDepth, a.planLimits.QueueDepth)
	return l.WithDefaults()
}
