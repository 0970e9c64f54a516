package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/indexing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// maxIndexLease bounds the lease of a pass over a document store. A worker whose heartbeat is older than
// --queue-stale-threshold counts as dead; where that is shorter, so is the lease.
const maxIndexLease = 30 * time.Second

// newIndexerLoop returns the loop that indexes the documents of all apps. A web process leaves that to the workers.
func (s *Server) newIndexerLoop() func(context.Context) error {
	if s.Settings.Role == roleWeb {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	load := func(ctx context.Context, tenant db.ID) (indexing.Configured, error) {
		return loadDocumentStores(ctx, s, tenant)
	}
	return indexing.New(indexing.Options{
		DB: s.Storage.DB, LoadConfigured: load, OpenApp: s.Execution.openIndexingApp, CheckActive: s.Execution.Runtimes.CheckActive, Bus: s.bus,
		Hooks: s.telemetry.newIndexingHooks(), Tracer: s.telemetry.tracer, Log: s.Log, Lease: min(maxIndexLease, s.Settings.Queue.StaleThreshold),
	}).Run
}

// openIndexingApp returns an app for the indexer.
func (e *Execution) openIndexingApp(ctx context.Context, tenant db.ID) (*indexing.App, error) {
	a, of, release, err := e.Runtimes.Acquire(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return a.NewIndexingApp(of.Name, release), nil
}

// loadDocumentStores returns the document stores of an app's current configuration. Only an app that has some is built for
// it.
func loadDocumentStores(ctx context.Context, s *Server, tenant db.ID) (indexing.Configured, error) {
	snapshot, err := s.Apps.LoadSnapshot(ctx, tenant, 0)
	if err != nil {
		return indexing.Configured{}, err
	}
	c := indexing.Configured{Generation: snapshot.App.Generation}
	// The default app is always active.
	if tenant != tenancy.DefaultID && snapshot.App.Status != tenancy.Active {
		c.IsKept = true
		return c, nil
	}
	cfg, err := s.DefaultApp.parseConfig(snapshot, s.network.configMemory)
	switch {
	case err != nil: // a caller of the app gets the error
		c.IsKept = true
		return c, nil
	case len(cfg.DocumentStores) == 0:
		return c, nil
	}
	a, of, release, err := s.Execution.Runtimes.Acquire(ctx, tenant)
	defer release()
	switch {
	case errors.Is(err, tenancy.ErrSuspended):
		c.IsKept = true
		return c, nil
	case err != nil:
		return c, fmt.Errorf("load app %s: %w", snapshot.App.Name, err)
	case of.Generation < c.Generation:
		return c, fmt.Errorf("load app %s: the runtime of an earlier revision is in use", snapshot.App.Name)
	}
	c.Specs = a.DocumentSpecs()
	return c, nil
}

// oldestPendingDocument returns how long the document waits that waits longest for its indexing, 0 if none does.
func oldestPendingDocument(ctx context.Context, d *db.DB) (time.Duration, error) {
	oldest, now, err := corpus.NewPasses(d).OldestPending(ctx)
	if err != nil || oldest.IsZero() {
		return 0, err
	}
	return max(now.Sub(oldest), 0), nil
}
