package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface/idempotency"
	"stoa/authz/jwks"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
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
func eraseApp(ctx context.Context, by audit.Actor, shared runtime.Dependencies, stale time.Duration, a tenancy.App, load deletingLoader) error {
	if err := dropVectors(ctx, shared, a, load); err != nil {
		return err
	}
	if err := corpus.New(shared.DB, a.ID, corpus.Limits{}).Vectors.Drop(ctx, true); err != nil {
		return err
	}
	if err := awaitRuns(ctx, shared, stale, a); err != nil {
		return err
	}
	return errors.Join(shared.InMemory.DeleteApp(ctx, a.ID), jwks.NewCache(shared.DB).Delete(ctx, a.Auth.JWKSURL), shared.Billing.CloseApp(ctx, by, a),
		idempotency.New(shared.DB, shared.Log).DeleteApp(ctx, a.ID))
}

// eraseMovedApp is eraseApp for an app that continues in another installation: its vector stores and its accounts are that
// one's. What it has used still counts for the platform's budgets here.
func eraseMovedApp(ctx context.Context, shared runtime.Dependencies, stale time.Duration, a tenancy.App) error {
	rows := corpus.New(shared.DB, a.ID, corpus.Limits{})
	if err := rows.Index.EndPasses(ctx); err != nil {
		return err
	}
	if err := rows.Vectors.Drop(ctx, true); err != nil {
		return err
	}
	if err := awaitRuns(ctx, shared, stale, a); err != nil {
		return err
	}
	return errors.Join(shared.InMemory.DeleteApp(ctx, a.ID), jwks.NewCache(shared.DB).Delete(ctx, a.Auth.JWKSURL), shared.Billing.Budgets.ArchiveUsage(ctx, a.ID),
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

// deletingLoader returns the configuration of an app that is being deleted, and the app as it is built with it.
type deletingLoader func(ctx context.Context, id db.ID) (*config.Config, runtime.Tenant, error)

// dropVectors removes what external vector stores have of the app, whose addresses only its configuration has. A store that
// does not answer holds up the deletion until maxEraseWait has passed since the app was marked as deleting; then its
// collections stay, which is logged.
func dropVectors(ctx context.Context, shared runtime.Dependencies, a tenancy.App, load deletingLoader) error {
	rows := corpus.New(shared.DB, a.ID, corpus.Limits{})
	if all, err := rows.Index.ListCollections(ctx); err != nil || len(all) == 0 {
		return errors.Join(err, rows.Index.EndPasses(ctx))
	}
	left, err := dropCollections(ctx, shared, a, load)
	if err != nil && time.Since(a.UpdatedAt) < maxEraseWait {
		return fmt.Errorf("remove its vectors: %w", err)
	}
	if err != nil || len(left) > 0 {
		shared.Log.WarnContext(ctx, "an app is deleted although vectors of it stay in its vector stores", "app", a.Name, "collections", left, "error", err)
	}
	return nil
}

// dropCollections builds the app once more, to reach its vector stores.
func dropCollections(ctx context.Context, shared runtime.Dependencies, a tenancy.App, load deletingLoader) (left []string, err error) {
	cfg, t, err := load(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	built, err := runtime.Build(cfg, t, shared)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxEraseWait)
	defer cancel()
	left, err = indexing.DropCollections(ctx, built.NewIndexingApp(a.Name, func() {}))
	return left, errors.Join(err, built.Close())
}

// newDeletingLoader returns the loader for tenants' apps; apps is set when it is first called.
func newDeletingLoader(apps **tenancy.Service, memory *configMemory) deletingLoader {
	return func(ctx context.Context, id db.ID) (*config.Config, runtime.Tenant, error) {
		s, err := (*apps).Revisions.LoadDeleting(ctx, id)
		if err != nil {
			return nil, runtime.Tenant{}, err
		}
		cfg, err := parseAppConfig(s, memory)
		t := runtime.Tenant{ID: s.App.ID, Name: s.App.Name, Revision: s.App.Revision, Plan: s.App.Plan, Grants: s.App.Grants, PrivateNetwork: s.App.Grants.Has(grant.PrivateNetwork)}
		return cfg, t, err
	}
}
