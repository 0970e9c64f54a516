package tenancy

import (
	"cmp"
	"context"

	"stoa/tenancy/db"
)

// RebuildAppsOnPlan marks every app on a plan for a new build, in the transaction that changes the plan, and returns
// their ids. The caller must publish them on [TopicApp] after the commit.
func RebuildAppsOnPlan(ctx context.Context, tx *db.Tx, plan string) (on []db.ID, err error) {
	err = tx.Query(ctx, func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		on = append(on, db.ID(id))
		return err
	}, `UPDATE app SET inputs = inputs + 1, generation = generation + 1 WHERE plan = $1 RETURNING tenant`, plan)
	return on, err
}

// checkPlanExists returns the error of Options.CheckPlan if name is set and not empty.
func (s *Service) checkPlanExists(ctx context.Context, name *string) error {
	if name == nil || *name == "" || s.store.options.CheckPlan == nil {
		return nil
	}
	return s.store.options.CheckPlan(ctx, *name)
}

// EffectiveLimits returns the limits that apply to the app: its own, else its plan's, else the defaults. Rates are the
// app's own.
func (a App) EffectiveLimits() Limits {
	l := a.Limits
	l.Weight = cmp.Or(l.Weight, a.planLimits.Weight)
	l.MaxConcurrentTasks = cmp.Or(l.MaxConcurrentTasks, a.planLimits.MaxConcurrentTasks)
	l.QueueDepth = cmp.Or(l.QueueDepth, a.planLimits.QueueDepth)
	return l.WithDefaults()
}

// insertPlanChange records that an app is on its plan from now on.
func insertPlanChange(ctx context.Context, tx *db.Tx, a *App) error {
	_, err := tx.Exec(ctx, `INSERT INTO app_plan (tenant, since, plan) VALUES ($1, stoa_now(), $2)
		ON CONFLICT (tenant, since) DO UPDATE SET plan = excluded.plan`, string(a.ID), a.Plan)
	return err
}
