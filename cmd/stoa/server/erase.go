package server

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface/idempotency"
	"stoa/authz/jwks"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// Timing of an app's deletion: how long after the request its last invoice waits for runs that workers still execute,
// and how often they are counted.
const (
	maxEraseWait      = 20 * time.Second
	erasePollInterval = 100 * time.Millisecond
)

// eraseApp is tenancy.Options.EraseApp: it removes what an app owns outside its rows in the durable database and
// closes its accounts. It waits for the workers first, because usage that is recorded after the last invoice would
// never be charged. stale is the age of a heartbeat at which a worker counts as dead. It may be called again after an
// error.
func eraseApp(ctx context.Context, by audit.Actor, shared runtime.Dependencies, stale time.Duration, a tenancy.App) error {
	if err := awaitRuns(ctx, shared, stale, a); err != nil {
		return err
	}
	return errors.Join(shared.InMemory.DeleteApp(ctx, a.ID), jwks.NewCache(shared.DB).Delete(ctx, a.Auth.JWKSURL), shared.Billing.CloseApp(ctx, by, a),
		idempotency.New(shared.DB, shared.Log).DeleteApp(ctx, a.ID))
}

// awaitRuns returns when no live worker has a lease on a run of the app, or when maxEraseWait has passed since the
// app was last changed (that is, marked as deleting). Runs of dead workers do not count: they record nothing any
// more.
func awaitRuns(ctx context.Context, shared runtime.Dependencies, stale time.Duration, a tenancy.App) error {
	runs := store.NewRunQueue(shared.DB)
	tick := time.NewTicker(erasePollInterval)
	defer tick.Stop()
	for {
		n, now, err := runs.CountLeasedRuns(ctx, a.ID, stale)
		if err != nil || n == 0 {
			return err
		}
		// The database's clock on both sides: the clock of this process may differ.
		if now.Sub(a.UpdatedAt) > maxEraseWait {
			shared.Log.WarnContext(ctx, "an app is deleted although workers still have runs of it: their further usage is on no invoice", "app", a.Name,
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
