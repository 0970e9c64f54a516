package indexing

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Configured are the document stores of an app's configuration at a generation of its record.
type Configured struct {
	Generation int64
	// IsKept means that the rows stay as they are, because the app is suspended or its configuration does not load.
	IsKept bool
	Specs  []corpus.StoreSpec
}

const (
	// changedApps is how many changed apps are read at once.
	changedApps = 100
	// syncInterval is how often apps are looked for that have changed without a signal, and those that could not be
	// adapted are tried again.
	syncInterval = 10 * time.Second
)

// syncApps adapts the rows of document stores to the configurations of apps that have changed, until ctx ends.
func (x *Indexer) syncApps(ctx context.Context) {
	changed := make(chan struct{}, 1)
	defer x.options.Bus.WatchTopic(tenancy.TopicApp, func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	// defaultGeneration is that of the default app, which is each process's own.
	defaultGeneration, healthy := int64(0), true
	for {
		g, err := x.syncApp(ctx, tenancy.DefaultID, defaultGeneration)
		if err == nil {
			defaultGeneration = g
		}
		err = errors.Join(err, x.syncChangedApps(ctx))
		if (err == nil) != healthy && ctx.Err() == nil {
			if healthy = err == nil; healthy {
				x.options.Log.InfoContext(ctx, "the document stores of all apps are those of their configurations again")
			} else {
				x.options.Log.WarnContext(ctx, "document stores of some apps are not those of their configurations at present", "error", err)
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// syncChangedApps adapts the rows of all changed apps but the default app. The failure of one does not stop the others.
func (x *Indexer) syncChangedApps(ctx context.Context) error {
	var errs []error
	for after := db.ID(""); ctx.Err() == nil; {
		apps, err := x.passes.FindChangedApps(ctx, after, changedApps)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, a := range apps {
			if _, err := x.syncApp(ctx, a.ID, 0); err != nil {
				errs = append(errs, err)
			}
			after = a.ID
		}
		if len(apps) < changedApps {
			break
		}
	}
	return errors.Join(errs...)
}

// syncApp adapts the rows of an app, unless its configuration is that of the generation known. It returns the generation.
func (x *Indexer) syncApp(ctx context.Context, id db.ID, known int64) (int64, error) {
	c, err := x.options.LoadConfigured(ctx, id)
	switch {
	case errors.Is(err, agentsvc.CodeNotFound): // deleted, or a default app that this process does not have
		return 0, nil
	case err != nil || c.Generation == known:
		return known, err
	}
	rows := corpus.New(x.options.DB, id, corpus.Limits{})
	if !c.IsKept {
		err := ApplyConfiguration(ctx, rows, c.Specs)
		x.wakeUp()
		if errors.Is(err, ErrBeingDeleted) {
			return known, nil // tried again after syncInterval
		}
		if err != nil {
			return known, err
		}
	}
	if id == tenancy.DefaultID {
		return c.Generation, nil
	}
	return c.Generation, rows.Index.SaveConfigured(ctx, c.Generation)
}

// ApplyConfiguration adapts the rows of an app's document stores to its current configuration, which has the stores of
// specs: new and changed ones get a pass, those that have left become invisible and get passes that delete them. The caller
// must know that no newer configuration is in force, because a store that is missing in specs is deleted. The error is
// [ErrBeingDeleted] if all that is left to do are stores whose names are still being deleted: the pass that deletes one makes
// it again only if it knows this configuration.
func ApplyConfiguration(ctx context.Context, rows *corpus.Store, specs []corpus.StoreSpec) error {
	configured := map[string]bool{}
	isWaiting := false
	var errs []error
	for _, spec := range specs {
		configured[spec.Name] = true
		_, err := rows.Index.EnsureStore(ctx, spec)
		if errors.Is(err, agentsvc.CodeState) {
			isWaiting = true
			continue
		}
		errs = append(errs, err)
	}
	present, err := rows.Documents.ListStores(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, s := range present {
		if configured[s.Name] {
			continue
		}
		_, err := rows.Index.DropStore(ctx, s.Name, 1)
		if err == nil {
			err = rows.Index.RequestPass(ctx, s.Name)
		}
		if !errors.Is(err, agentsvc.CodeNotFound) { // else the last row is deleted, here or by the pass of another process
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil || !isWaiting {
		return err
	}
	return ErrBeingDeleted
}

// ErrBeingDeleted reports that a store cannot be made yet.
var ErrBeingDeleted = errors.New("a document store cannot be made before an earlier one of its name is deleted")
