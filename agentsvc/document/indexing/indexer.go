// Package indexing carries out the passes over document stores: an [Indexer] in each process that executes runs claims
// the pass of a store (package corpus), lists the store's source, and reads, divides, embeds and commits its documents
// one by one.
//
// A pass is held under a lease with an epoch, which fences each commit. A process that is killed loses nothing: the next
// holder goes on with the documents that still wait. A pass is given back after a slice of time, so that the stores of
// other apps get their turn, and at once when the process drains.
//
// Why indexing is not a run of the queue: docs/decisions/indexing-passes.md.
//
// A newcomer reads on in pass.go (the steps of a pass), document.go (those of a document), failure.go (what errors mean)
// and watch.go (sources that report changes).
package indexing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/processor"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// TopicPass is the topic of signals that a pass is due. The key is the app's id. Whatever requests a pass publishes it
// after its commit.
const TopicPass = "index_pass"

// errStopped is the cause with which a pass ends because the process drains or the app is not active any more.
var errStopped = errors.New("the pass was stopped")

// Options are the options of an [Indexer]. DB, LoadConfigured, OpenApp and CheckActive are required; a zero field of the
// others takes the default named with it.
type Options struct {
	DB *db.DB
	// LoadConfigured returns the document stores of an app's current configuration. It is called for each generation of an
	// app by the process that finds the change. The error is [agentsvc.CodeNotFound] for an app that this process does not
	// have; after any other error it is called again.
	LoadConfigured func(ctx context.Context, tenant db.ID) (Configured, error)
	// OpenApp returns an app. The error is [agentsvc.CodeNotFound] or [tenancy.ErrSuspended] for one that is not active.
	OpenApp func(ctx context.Context, tenant db.ID) (*App, error)
	// CheckActive returns an error of OpenApp for an app that is not active, and nil otherwise. It does not wait for a build.
	CheckActive func(ctx context.Context, tenant db.ID) error
	// Bus wakes the indexer when a pass is due; nil = it finds it at its next poll.
	Bus   *signal.Bus
	Hooks Hooks
	// Tracer begins a trace for each pass; nil = none is recorded.
	Tracer trace.Tracer
	Log    *slog.Logger

	// Lease is how long a pass belongs to a process that does not renew it; 30 seconds.
	Lease time.Duration
	// Slice is how long a pass goes on before others get their turn; 5 seconds.
	Slice time.Duration
	// PollInterval is how often a due pass is looked for without a signal; 2 seconds.
	PollInterval time.Duration
	Pauses       Pauses
	// Passes is how many passes are at work in the process; 4.
	Passes int
	Bounds Bounds
	// Documents is how many documents are at work in the process; twice the processors, at least 4.
	Documents int
	// MemoryBytes bounds the estimated memory of the documents at work; 256 MiB.
	MemoryBytes int64
}

// Pauses are the times between attempts. A zero field takes the default named with it.
type Pauses struct {
	// Failed is the least time to the next pass of a store whose pass has failed after its retries; 5 minutes.
	Failed time.Duration
	// Sweep is the time between two searches for tables of approximate indexes that nothing names; 1 hour.
	Sweep time.Duration
}

// Bounds are the bounds for sources that do not answer. A zero field takes the default named with it.
type Bounds struct {
	// List bounds the listing of a source; 15 minutes. Read bounds the reading of one document of it; 1 minute.
	List, Read time.Duration
	// Abandon is how long the end of a pass is waited for after it was stopped; 10 seconds.
	Abandon time.Duration
}

// withDefaults returns o with the defaults of zero fields.
func (o Options) withDefaults() Options {
	o.Lease, o.Slice, o.PollInterval = cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.Slice, 5*time.Second), cmp.Or(o.PollInterval, 2*time.Second)
	b := &o.Bounds
	b.List, b.Read, b.Abandon = cmp.Or(b.List, 15*time.Minute), cmp.Or(b.Read, time.Minute), cmp.Or(b.Abandon, 10*time.Second)
	o.Pauses.Failed, o.Pauses.Sweep = cmp.Or(o.Pauses.Failed, 5*time.Minute), cmp.Or(o.Pauses.Sweep, time.Hour)
	o.Passes, o.Documents = cmp.Or(o.Passes, 4), cmp.Or(o.Documents, max(4, 2*runtime.GOMAXPROCS(0)))
	o.MemoryBytes = cmp.Or(o.MemoryBytes, 256<<20)
	o.Hooks = o.Hooks.withDefaults()
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Indexer carries out the passes of a database's document stores. Each process that executes runs has one.
type Indexer struct {
	options Options
	passes  *corpus.Passes
	holder  string // unique to this process
	wake    chan struct{}
	// slots has Options.Passes places, each taken by a pass at work. A pass that waits for changes of its source has none,
	// nor has one whose source did not answer within its slice.
	slots chan struct{}
	// documents and memory bound the documents at work in the process. Apps get places one after the other. memoryTurn lets
	// one document at a time wait for memory, which has no such order.
	documents, memoryTurn *processor.Semaphore
	memory                *semaphore.Weighted

	mu sync.Mutex // guards the fields below
	// active are the passes of this process by what they index, those that wait for changes included.
	active map[passKey]*passRun
	// listings are what sources have listed here, by the store, as long as documents of it wait or its source is watched.
	listings map[passKey]*listing
	// obstacles are why large stores have no approximate index, as the log has them.
	obstacles map[passKey]string
}

// passKey identifies a document store across apps.
type passKey struct {
	tenant db.ID
	store  string
}

// startListingAge is how long ago the last pass of a store began whose source is listed at the start of a process.
const startListingAge = 10 * time.Second

// New returns an indexer. It does nothing before Run.
func New(o Options) *Indexer {
	o = o.withDefaults()
	return &Indexer{
		options: o, passes: corpus.NewPasses(o.DB), holder: agentsvc.NewID(), wake: make(chan struct{}, 1), slots: make(chan struct{}, o.Passes),
		documents: processor.NewPermits(o.Documents), memoryTurn: processor.NewPermits(1), memory: semaphore.NewWeighted(o.MemoryBytes), active: map[passKey]*passRun{}, listings: map[passKey]*listing{}, obstacles: map[passKey]string{},
	}
}

// wakeUp makes the indexer look for a due pass. It does not block.
func (x *Indexer) wakeUp() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Run carries out passes until ctx ends. It then gives back those at work, so that another process goes on with them at
// once, and returns. A failure of the database is logged once at its beginning and end.
func (x *Indexer) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	defer x.options.Bus.WatchTopic(TopicPass, func(id string) {
		x.wakeUp()
		x.recheckWaiting(db.ID(id))
	})()
	defer x.options.Bus.WatchTopic(tenancy.TopicApp, func(id string) { x.recheckApp(db.ID(id)) })()
	// No other process can hold a lease on SQLite: what a predecessor that was killed has held is due at once.
	if x.options.DB.Engine() == db.SQLite {
		if err := x.passes.ExpireLeases(ctx); err != nil {
			x.options.Log.WarnContext(ctx, "the indexing that the process before left waits for the end of its leases", "error", err)
		}
	}
	// A source may have changed while no process ran. Several processes that start together list it once.
	if err := x.passes.RequestListings(ctx, startListingAge); err != nil {
		x.options.Log.WarnContext(ctx, "the sources of documents are not read at the start, only when their time has come", "error", err)
	}
	// The extension of approximate indexes may have been installed, or this be the first version that uses it.
	if err := x.passes.RequestIndexes(ctx); err != nil {
		x.options.Log.WarnContext(ctx, "large document stores without an approximate index get one only when their time has come", "error", err)
	}
	work.Go(func() { x.syncApps(ctx) })
	work.Go(func() { x.sweepIndexes(ctx) })
	healthy := true
	for {
		if !x.takeSlot(ctx) {
			return ctx.Err()
		}
		p, found, err := x.passes.Claim(ctx, x.holder, x.options.Lease, x.busyTenants())
		if (err == nil) != healthy && ctx.Err() == nil {
			if healthy = err == nil; healthy {
				x.options.Log.InfoContext(ctx, "documents are indexed again")
			} else {
				x.options.Log.WarnContext(ctx, "documents are not indexed at present", "error", err)
			}
		}
		if err == nil && found {
			r := x.newPassRun(ctx, p)
			work.Go(func() {
				r.execute()
				x.wakeUp()
			})
			continue
		}
		x.freeSlot()
		x.forgetListings()
		select {
		case <-x.wake:
		case <-time.After(x.options.PollInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeSlot takes a slot for a pass and reports whether it has one: it has none when ctx ends.
func (x *Indexer) takeSlot(ctx context.Context) bool {
	select {
	case x.slots <- struct{}{}:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// freeSlot gives back a slot that no pass has taken over.
func (x *Indexer) freeSlot() { <-x.slots }

// busyTenants returns the apps that have a pass at work here: an app has one at a time in a process.
func (x *Indexer) busyTenants() []db.ID {
	x.mu.Lock()
	defer x.mu.Unlock()
	busy := map[db.ID]struct{}{}
	for k, r := range x.active {
		if !r.isWaiting {
			busy[k.tenant] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(busy))
}

// add registers a pass as active. One of the same store that is registered has lost its lease and is stopped.
func (x *Indexer) add(r *passRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.before = x.active[r.key()]; r.before != nil {
		r.before.stop(corpus.ErrPassLost)
	}
	x.active[r.key()] = r
}

func (x *Indexer) remove(r *passRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.active[r.key()] == r {
		delete(x.active, r.key())
	}
}

// findListing returns what the source of a store has listed here, nil if it has not.
func (x *Indexer) findListing(k passKey, s *Store) *listing {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.listings[k]; l != nil && l.store == s {
		return l
	}
	return nil
}

// listingAge is how long a listing is kept while no pass of its store is at work here.
const listingAge = 2 * time.Minute

// forgetListings drops the listings of stores whose passes are at work elsewhere.
func (x *Indexer) forgetListings() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, l := range x.listings {
		if x.active[k] == nil && time.Since(l.keptAt) > listingAge {
			delete(x.listings, k)
		}
	}
}

// keepListing keeps what the source of a store has listed, or nil to forget it.
func (x *Indexer) keepListing(k passKey, l *listing) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l == nil {
		delete(x.listings, k)
	} else {
		l.keptAt = time.Now()
		x.listings[k] = l
	}
}

// setWaiting records whether a pass waits for changes of its source.
func (x *Indexer) setWaiting(r *passRun, waiting bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r.isWaiting = waiting
}

// recheckWaiting makes the passes of an app that wait for changes find out at once whether one was requested; "" = those of all
// apps.
func (x *Indexer) recheckWaiting(id db.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, r := range x.active {
		if r.isWaiting && (id == "" || k.tenant == id) {
			r.requestCheck()
		}
	}
}

// recheckApp makes the passes of an app find out at once whether the app is still active, and its stores the same; "" =
// those of all apps.
func (x *Indexer) recheckApp(tenant db.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, r := range x.active {
		if tenant == "" || k.tenant == tenant {
			r.requestCheck()
		}
	}
}
