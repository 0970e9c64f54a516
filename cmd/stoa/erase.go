package main

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc/app"
	"stoa/agentsvc/store"
	"stoa/tenancy"
)

// Of an app that is to be deleted: how long after that was said its last invoice waits for the runs that workers still have in hand,
// and how often they are looked for.
const (
	maxEraseWait      = 20 * time.Second
	erasePollInterval = 100 * time.Millisecond
)

// eraseApp removes what an app owns outside its rows, and closes its books. Before the last invoice is made, every worker has let go of
// the app's runs and so has written down what they used.
func eraseApp(ctx context.Context, shared app.Dependencies, stale time.Duration, a tenancy.App) error {
	if err := awaitRuns(ctx, shared, stale, a); err != nil {
		return err
	}
	return errors.Join(shared.InMemory.DeleteApp(ctx, a.ID), shared.Billing.CloseApp(ctx, tenancy.System, a))
}

// awaitRuns waits until no live worker has a run of an app in hand, at most until maxEraseWait after the app was last changed. Dead
// workers write nothing more.
func awaitRuns(ctx context.Context, shared app.Dependencies, stale time.Duration, a tenancy.App) error {
	runs := store.NewRunQueue(shared.DB)
	tick := time.NewTicker(erasePollInterval)
	defer tick.Stop()
	for {
		n, now, err := runs.CountLeasedRuns(ctx, a.ID, stale)
		if err != nil || n == 0 {
			return err
		}
		if now.Sub(a.UpdatedAt) > maxEraseWait {
			shared.Log.WarnContext(ctx, "an app is deleted although workers still have runs of it: what they use from now on is on no invoice", "app", a.Name,
				"runs", n)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
