package indexing

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc/document/corpus"
)

// vectorIndexer is the part of a pass that maintains the approximate index of a store on PostgreSQL.
type vectorIndexer struct{ *passRun }

// indexVectors brings the approximate index over the vectors of the generation up to date, if the database has the vectors and
// they are many. A failure is logged and no more: a search compares what is not in the index one by one.
func (r vectorIndexer) indexVectors(ctx context.Context) error {
	if r.store.Embedder == nil || r.store.Vectors != nil {
		return nil
	}
	for {
		got, err := r.app.Rows.Vectors.Update(ctx, r.pass, r.generation, indexLimit)
		switch {
		case errors.Is(err, corpus.ErrPassLost), err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			r.log().WarnContext(ctx, "the approximate index over the vectors of a document store is not up to date: its searches compare the other vectors one by one", "error", err)
			return nil
		case got.Created:
			r.log().InfoContext(ctx, "a document store has so many vectors that it gets an approximate index", "generation", r.generation)
		}
		r.hasObstacle = got.Obstacle != ""
		if r.x.setObstacle(r.key(), got.Obstacle) && r.hasObstacle {
			r.log().WarnContext(ctx, "a document store has so many vectors that it needs an approximate index, and can have none: its searches compare all vectors one by one", "reason", got.Obstacle)
		}
		if !got.More {
			return nil
		}
		if r.isOver() {
			return errYield
		}
	}
}

// setObstacle records why a store has no approximate index, "" = nothing, and reports whether that is new.
func (x *Indexer) setObstacle(key passKey, obstacle string) (isNew bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	isNew = x.obstacles[key] != obstacle
	if x.obstacles[key] = obstacle; obstacle == "" {
		delete(x.obstacles, key)
	}
	return isNew
}

// dropIndexes drops the approximate indexes of generations that are not used any more. One that is being read is dropped by a
// later pass.
func (r vectorIndexer) dropIndexes(ctx context.Context) {
	if err := r.app.Rows.Vectors.Drop(ctx, false); err != nil && ctx.Err() == nil {
		r.log().WarnContext(ctx, "the approximate index of an earlier generation stays until the next pass", "error", err)
	}
}

// sweepIndexes drops the tables of approximate indexes that nothing names, now and then until ctx ends.
func (x *Indexer) sweepIndexes(ctx context.Context) {
	tick := time.NewTicker(x.options.Pauses.Sweep)
	defer tick.Stop()
	for {
		n, err := x.passes.DropUnknownIndexes(ctx)
		if n > 0 {
			x.options.Log.InfoContext(ctx, "tables of approximate indexes that nothing named are dropped", "tables", n)
		}
		if err != nil && ctx.Err() == nil {
			x.options.Log.WarnContext(ctx, "tables of approximate indexes that nothing names stay until the next attempt", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
