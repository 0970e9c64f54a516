package indexing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/trail"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

const (
	// idleInterval is the time to the next pass of a store in which nothing is due. What changes requests one before.
	idleInterval = 30 * 24 * time.Hour
	// removalInterval is the same for a store with an external vector store: a removal may become due that a process noted
	// before it was killed. It is so too for a store without the approximate index that it needs: the extension may be installed.
	removalInterval = time.Hour
	// minPause is the least time to the next pass of a store in which nothing is left to do now.
	minPause = 50 * time.Millisecond
	// wakeHorizon bounds the pauses after which this process looks for the pass at once. Longer ones end at the next poll.
	wakeHorizon = time.Minute
	// noAppPause is the pause of a pass whose app this process does not have, or has an earlier revision of.
	noAppPause = 2 * time.Second
	// dropLimit bounds the rows that one transaction deletes.
	dropLimit = 50
	// indexLimit bounds the vectors that one transaction inserts into an approximate index: a fraction of a second, in which
	// deletions of the same documents wait.
	indexLimit = 200
	// stuckPause is the pause of a pass that waits for somebody to change something, which requests a pass at once.
	stuckPause = 15 * time.Minute
	// lostShare bounds the documents that may be missing in a generation that becomes the live one: one of lostShare. A few
	// that fail with the new recipe do not keep back all others for ever; many are a sign that the recipe is wrong.
	lostShare = 20
)

// passRun is a pass that this process holds.
type passRun struct {
	x    *Indexer
	pass corpus.Pass
	// ctx ends when the pass must end; stop ends it with a cause.
	ctx  context.Context
	stop context.CancelCauseFunc
	// unlink ends the connection of ctx with the indexer's context.
	unlink func() bool
	// checkNow and appChanged (capacity 1) report that the app may have changed: to renewLease, and to a pass that waits.
	checkNow, appChanged chan struct{}
	// ended is closed at the end. before is an earlier pass over the store in this process that has lost its lease, nil if
	// there is none.
	ended  chan struct{}
	before *passRun
	slot   *slot
	// isWaiting is set while the pass waits for changes of its source. Guarded by Indexer.mu.
	isWaiting bool

	// Set by the goroutine of execute, then read-only for those of documents.
	app     *App
	store   *Store // nil = it has left the configuration
	listing *listing
	cursor  cursor
	slice
}

// slice is what belongs to one slice of a pass.
type slice struct {
	// Set by the goroutine of execute, then read-only for those of documents.
	generation int64
	// collectionNote names the generation's collection in the external vector store, "" = there is none.
	collectionNote string
	deadline       time.Time // of the slice

	// hasObstacle is set if the store is large and can have no approximate index at present. Used by the goroutine of execute.
	hasObstacle bool
	// answered is set when the embedder and the vector store have indexed a document in this slice.
	answered atomic.Bool
	mu       sync.Mutex // guards the fields below
	// heldBy is why the pass is held, nil if it is not.
	heldBy *failure
	// suspects are documents for which something did not answer before it answered for any.
	suspects []suspect
	// streak is how many documents in a row something did not answer for.
	streak int
	// retryAt is when the first postponed document is due; zero if none was postponed.
	retryAt time.Time
}

// newPassRun registers a claimed pass. ctx is that of the indexer.
func (x *Indexer) newPassRun(ctx context.Context, p corpus.Pass) *passRun {
	r := &passRun{x: x, pass: p, slot: &slot{x: x, held: true}, checkNow: make(chan struct{}, 1), appChanged: make(chan struct{}, 1), ended: make(chan struct{}), cursor: parseCursor(p.Cursor)}
	r.ctx, r.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	r.unlink = context.AfterFunc(ctx, func() { r.stop(errStopped) })
	x.add(r)
	return r
}

func (r *passRun) key() passKey { return passKey{r.pass.Tenant, r.pass.Store} }

func (r *passRun) log() *slog.Logger {
	return r.x.options.Log.With("tenant", string(r.pass.Tenant), "store", r.pass.Store)
}

// execute carries out the pass and gives it back. The caller has taken a slot, which execute frees.
func (r *passRun) execute() {
	began := time.Now()
	ctx, cancel := context.WithCancel(r.ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { r.renewLease(ctx) })
	p := r.workOrAbandon(ctx)
	cancel()
	renewing.Wait()
	// A pass that was stopped says nothing about its source.
	if r.ctx.Err() != nil {
		p.outcome, p.end.After, p.end.Failure = PassEnded, 0, ""
	}
	if !errors.Is(context.Cause(r.ctx), corpus.ErrPassLost) {
		r.release(p.end)
	}
	r.unlink()
	r.stop(nil)
	r.slot.close()
	r.x.options.Hooks.OnPass(p.name, p.outcome, time.Since(began))
}

// work opens the app and carries out the pass. name is the app's, "" if it has none here.
func (r *passRun) work(ctx context.Context) (o PassOutcome, end corpus.Release, name string) {
	app, err := r.x.options.OpenApp(ctx, r.pass.Tenant)
	switch {
	case errors.Is(err, agentsvc.CodeNotFound), errors.Is(err, tenancy.ErrSuspended):
		return PassEnded, corpus.Release{After: noAppPause}, ""
	case err != nil:
		return PassHeld, corpus.Release{After: r.retry().delay(int(r.pass.Attempts)+1, 0), Failure: "the app cannot be loaded at present"}, ""
	}
	defer app.Release()
	r.app, r.store = app, app.Stores[r.pass.Store]
	ctx, span := r.startTrace(ctx)
	defer func() {
		span.SetAttributes(attribute.String("stoa.outcome", string(o)))
		span.End()
	}()
	if r.store == nil {
		o, end = r.result(containFault(ctx, r.log(), func() error { return r.dropStore(ctx) }))
		return o, end, app.Name
	}
	for {
		o, end = r.result(containFault(ctx, r.log(), func() error { return r.workSlice(ctx) }))
		if o != PassCompleted || !r.store.Watch {
			return o, end, app.Name
		}
		if !r.awaitChange(ctx) {
			if !r.isCurrent(ctx) {
				end.After = minPause // the request of the new revision may have been taken while this one waited
			}
			return o, end, app.Name
		}
	}
}

// startTrace begins the trace of the pass.
func (r *passRun) startTrace(ctx context.Context) (context.Context, trace.Span) {
	if r.x.options.Tracer == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return r.x.options.Tracer.Start(ctx, "index documents", trace.WithAttributes(trail.AppKey.String(r.app.Name), attribute.String("stoa.document_store", r.pass.Store)))
}

// errYield reports that the slice is over and work is left.
var errYield = errors.New("the slice is over")

// result returns how the pass ends with err, the result of a slice.
func (r *passRun) result(err error) (PassOutcome, corpus.Release) {
	if at := r.retryAt; !at.IsZero() {
		r.cursor.RetryAt = at.UnixMilli() + 1
	}
	var paused *pauseError
	switch {
	case err == nil:
		return PassCompleted, corpus.Release{After: r.nextPass(time.Now())}
	case errors.Is(err, errYield):
		return PassYielded, corpus.Release{}
	case r.ctx.Err() != nil:
		return PassEnded, corpus.Release{}
	case errors.As(err, &paused):
		return PassYielded, corpus.Release{After: paused.after}
	case errors.Is(err, corpus.ErrPassLost):
		r.stop(err)
		return PassEnded, corpus.Release{}
	}
	f, retry := newFailure(err), r.retry()
	var origin *source.Error
	if errors.As(err, &origin) {
		retry.MaxDelay = max(retry.MaxDelay, stuckPause)
	}
	after := retry.delay(int(r.pass.Attempts)+1, f.retryAfter)
	switch {
	case errors.Is(err, agentsvc.CodeState) || source.IsPermanent(err):
		after = stuckPause
	case int(r.pass.Attempts) >= retry.MaxRetries && !db.IsOutage(err):
		after = max(after, r.x.options.Pauses.Failed)
	}
	r.log().Warn("the indexing of documents waits", "reason", f.reason, "error", err)
	return PassHeld, corpus.Release{After: after, Failure: f.reason}
}

// pauseError reports that this process cannot go on for a while, for a reason that no one needs to read.
type pauseError struct{ after time.Duration }

// Error implements error.
func (*pauseError) Error() string { return "the pass pauses" }

// retry returns the store's settings, or defaults if there is no store.
func (r *passRun) retry() Retry {
	if r.store == nil || r.store.Retry == (Retry{}) {
		return Retry{MaxRetries: 3, BaseDelay: time.Second, MaxDelay: 30 * time.Second}
	}
	return r.store.Retry
}

// nextPass returns the time to the next pass of a store in which nothing is left to do now.
func (r *passRun) nextPass(now time.Time) time.Duration {
	next := idleInterval
	if r.store != nil {
		if r.store.Vectors != nil || r.hasObstacle {
			next = removalInterval
		}
		if d := r.cursor.nextListing(r.store, now); d >= 0 {
			next = min(next, d)
		}
	}
	if r.cursor.RetryAt > 0 {
		next = min(next, time.UnixMilli(r.cursor.RetryAt).Sub(now))
	}
	return max(next, minPause)
}

// workSlice does what is due, until the slice is over: then the error is errYield.
func (r *passRun) workSlice(ctx context.Context) error {
	r.beginSlice()
	stopYield := r.slot.freeAt(r.deadline)
	defer func() { stopYield() }()
	index := r.app.Rows.Index
	g, err := index.EnsureStore(ctx, r.store.Spec)
	switch {
	case errors.Is(err, agentsvc.CodeState): // a store of this name is still being removed, and then made again
		if err := r.dropStore(ctx); err != nil {
			return err
		}
		_, err := index.EnsureStore(ctx, r.store.Spec)
		return err
	case err != nil:
		return err
	case g.Outdated:
		return &pauseError{noAppPause} // another process has a newer revision, and this one will have it soon
	}
	r.generation = g.Target()
	if r.store.Vectors != nil {
		r.collectionNote = newCollectionNote(r.store.VectorStore, r.store.Collection(r.generation))
	}
	listErr := r.listIfDue(ctx)
	if listErr != nil && ctx.Err() != nil {
		return listErr
	}
	if r.isOver() { // The listing has taken all of the slice: what it found gets one of its own.
		stopYield()
		if !r.slot.take(ctx) {
			return context.Cause(ctx)
		}
		r.deadline = time.Now().Add(r.x.options.Slice)
		stopYield = r.slot.freeAt(r.deadline)
	}
	// What is listed is indexed also if the listing ended with an error.
	if err := (documentWorker{r}).workDocuments(ctx); err != nil {
		return err
	}
	if err := (vectorIndexer{r}).indexVectors(ctx); err != nil {
		return err
	}
	if err := r.switchGeneration(ctx, g); err != nil {
		return err
	}
	vectorIndexer{r}.dropIndexes(ctx)
	if err := (remover{r}).carryOutRemovals(ctx); err != nil {
		return err
	}
	if err := (remover{r}).deleteHidden(ctx); err != nil {
		return err
	}
	if err := (remover{r}).carryOutRemovals(ctx); err != nil { // of the hidden chunks
		return err
	}
	if listErr != nil {
		return listErr
	}
	if !r.store.Watch {
		r.x.keepListing(r.key(), nil)
	}
	return r.expectRetries(ctx)
}

// expectRetries makes sure that the next pass comes when documents were postponed whose time is not known, because the
// process that postponed them was killed.
func (r *passRun) expectRetries(ctx context.Context) error {
	if !r.retryAt.IsZero() {
		return nil
	}
	wait, found, err := r.app.Rows.Index.NextAttempt(ctx, r.pass.Store)
	if err == nil && found {
		r.retryAt = time.Now().Add(max(wait, r.retry().MaxDelay))
	}
	return err
}

// beginSlice resets what belongs to one slice.
func (r *passRun) beginSlice() {
	r.deadline = time.Now().Add(r.x.options.Slice)
	r.answered.Store(false)
	r.heldBy, r.suspects, r.streak, r.retryAt = nil, nil, 0, time.Time{}
	if at := r.cursor.RetryAt; at > 0 {
		if due := time.UnixMilli(at); time.Now().Before(due) {
			r.retryAt = due
		}
		r.cursor.RetryAt = 0
	}
}

// isOver reports whether the slice is over.
func (r *passRun) isOver() bool { return !time.Now().Before(r.deadline) }

// listIfDue lists the source if that is due, or if this process needs its items to open documents or to see changes.
func (r *passRun) listIfDue(ctx context.Context) error {
	if r.store.Source == nil {
		return nil
	}
	r.listing = r.x.findListing(r.key(), r.store)
	if r.cursor.nextListing(r.store, time.Now()) == 0 || r.listing == nil && r.store.Watch {
		return (lister{r}).listSource(ctx)
	}
	if r.listing != nil {
		return nil
	}
	pending, err := r.app.Rows.Index.NextPending(ctx, r.pass.Store, "", 1)
	if err != nil || len(pending) == 0 {
		return err
	}
	return (lister{r}).listSource(ctx)
}

// switchGeneration makes the generation that is being built the live one when it is complete, and deletes what is left of
// others.
func (r *passRun) switchGeneration(ctx context.Context, g corpus.Generations) error {
	index := r.app.Rows.Index
	if g.Building != 0 {
		status, err := r.app.Rows.Documents.StoreStatus(ctx, r.pass.Store)
		if err != nil || status.Pending > 0 {
			return err
		}
		switched, err := index.SwitchGeneration(ctx, r.pass, status.Documents/lostShare)
		switch {
		case err != nil:
			return err
		case !switched:
			return agentsvc.NewError(agentsvc.CodeState, "the index is not replaced by the one for the changed settings, because too many documents failed with these: %d of %d", status.Failed, status.Documents)
		}
		r.log().InfoContext(ctx, "a rebuilt index is in use", "generation", g.Building)
	}
	for {
		more, err := index.DropGenerations(ctx, r.pass.Store, dropLimit)
		if err != nil || !more {
			return err
		}
		if r.isOver() {
			return errYield
		}
	}
}

// dropStore deletes a store that has left the configuration. Its rows go after its vectors, which the notes in the rows
// name.
func (r *passRun) dropStore(ctx context.Context) error {
	r.deadline = time.Now().Add(r.x.options.Slice)
	if _, err := r.app.Rows.Documents.StoreStatus(ctx, r.pass.Store); r.store == nil && err == nil {
		// It was not dropped: the runtime here is that of an earlier revision, or the new one was not applied yet.
		return &pauseError{noAppPause}
	} else if err != nil && !errors.Is(err, agentsvc.CodeNotFound) {
		return err
	}
	for {
		done, err := r.app.Rows.Index.ContinueDrop(ctx, r.pass.Store, dropLimit)
		if err != nil {
			return err
		}
		if err := (remover{r}).deleteHidden(ctx); err != nil {
			return err
		}
		if err := (remover{r}).carryOutRemovals(ctx); err != nil {
			return err
		}
		if done {
			return nil
		}
		if r.isOver() {
			return errYield
		}
	}
}
