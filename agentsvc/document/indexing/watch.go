package indexing

import (
	"context"
	"errors"
	"time"
)

// waitCheckInterval is how often a pass that waits for changes of its source looks whether something else is due.
const waitCheckInterval = 10 * time.Second

// awaitChange waits until the source of the store has changed. The pass keeps its lease meanwhile, so that one process
// watches, and gives its slot to others. It reports whether the pass goes on; otherwise it ends, because the app or its
// configuration has changed, the source cannot be watched, or the process stops.
func (r *passRun) awaitChange(ctx context.Context) bool {
	r.x.setWaiting(r, true)
	r.slot.free()
	defer func() {
		r.slot.take(ctx) // not at the end of ctx, when there is nothing left to do
		r.x.setWaiting(r, false)
	}()
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	changed := make(chan error, 1)
	go func() {
		changed <- containFault(waiting, r.log(), func() error { return r.store.Source.Wait(waiting) })
	}()
	defer func() {
		stopWaiting()
		// Wait has returned before the next listing begins.
		for range changed {
			return
		}
	}()
	tick := time.NewTicker(waitCheckInterval)
	defer tick.Stop()
	listAt := time.NewTimer(max(r.cursor.nextListing(r.store, time.Now()), time.Second))
	defer listAt.Stop()
	// A request that came during the slice asks for what the slice may have listed before.
	if r.isWorkDue(ctx) {
		return true
	}
	for {
		select {
		case err := <-changed:
			changed <- err // for the deferred function
			if err == nil {
				r.cursor.ListedAt = 0 // listed at once
				return true
			}
			if ctx.Err() == nil && !errors.Is(err, errors.ErrUnsupported) {
				r.log().WarnContext(ctx, "the source of documents is not watched at present", "error", err)
			}
			return false
		case <-listAt.C:
			return true
		case <-r.appChanged:
			if !r.isCurrent(ctx) {
				return false
			}
			if r.isWorkDue(ctx) {
				return true
			}
		case <-tick.C:
			if !r.isCurrent(ctx) {
				return false
			}
			if r.isWorkDue(ctx) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// isCurrent reports whether the app still has the store of this pass.
func (r *passRun) isCurrent(ctx context.Context) bool {
	app, err := r.x.options.OpenApp(ctx, r.pass.Tenant)
	if err != nil {
		return false
	}
	defer app.Release()
	return app.Stores[r.pass.Store] == r.store
}

// isWorkDue reports whether a pass was requested, which begins with a listing, or documents or removals wait. It records that
// the pass has caught up until now.
func (r *passRun) isWorkDue(ctx context.Context) bool {
	requested, err := r.x.passes.Settle(ctx, r.pass)
	if err == nil {
		r.pass.Attempts = 0
	}
	if requested {
		r.cursor.ListedAt = 0 // listed at once
		return true
	}
	pending, err := r.app.Rows.Index.NextPending(ctx, r.pass.Store, "", 1)
	if err == nil && len(pending) > 0 {
		return true
	}
	removals, err := r.app.Rows.Index.ListRemovals(ctx, r.pass.Store, 1)
	return err == nil && len(removals) > 0
}
