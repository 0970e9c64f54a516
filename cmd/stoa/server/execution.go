package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/agentsvc/trigger"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/runtimecache"
	"stoa/tenancy/signal"
)

// Execution executes the runs of apps and delivers their notifications: it has the built apps, the worker pools and the
// dispatchers of a process. These depend on each other: a run is executed by an app, and an app is built with the pool
// that executes its runs. newExecution therefore constructs them together; their callbacks are methods of Execution,
// which are first called when the process serves. All fields are read-only from then on.
type Execution struct {
	// Runtimes caches the built apps by app and revision. A request or run acquires one and releases it when it is done.
	Runtimes *runtimecache.Cache[*runtime.Runtime]
	// RunPool executes the runs of the durable database, inMemoryPool those of the in-memory database.
	RunPool      *queue.Pool
	inMemoryPool *queue.Pool
	// deadLetters are the runs of the durable database that failed for good.
	deadLetters *task.DeadLetters
	// dispatchers send notifications, one for each database that this process serves.
	dispatchers []*notify.Dispatcher

	apps      *tenancy.Service
	hub       *task.Hub
	inMemory  *runtime.InMemoryDB
	telemetry telemetry
	log       *slog.Logger
}

// newExecution returns the execution of a process and the complete dependencies of apps: base with the pools and the
// notifications. It takes the pools' first leases, as process. A run is executed under a lease with an epoch; a worker whose lease
// was lost cannot change its tasks any more, because every such write is conditional on the epoch. A web process opens
// RunPool in accept-only mode. On SQLite no other process can hold a lease, so that the runs a crashed predecessor left
// behind are rescued at once.
func newExecution(ctx context.Context, process string, o Options, base runtime.Dependencies, memory *configMemory, apps *tenancy.Service, bus *signal.Bus, t telemetry, c *closers) (*Execution, runtime.Dependencies, error) {
	x := &Execution{apps: apps, hub: base.Hub, inMemory: base.InMemory, telemetry: t, log: o.Log}
	q := o.Settings.Queue
	options := queue.Options{
		Worker: process, Workers: q.Workers, MaxInflight: q.MaxInflight, AppInflight: q.AppInflight, StaleAfter: q.StaleThreshold, Retry: base.Retry,
		ConfigHash: o.DefaultApp.fileFingerprint, AcceptOnly: o.Settings.Role == roleWeb, Bus: bus, Calls: base.Hub, Log: o.Log,
	}
	// An attempt is executed by executeRun; the pool has taken the lease and renews it.
	x.RunPool, x.deadLetters = x.newPool(base.DB, x.executeRun, options)
	// The tasks in memory exist in this process only: no other process can execute them or be signalled about them.
	options.AcceptOnly, options.Bus = false, nil
	x.inMemoryPool, _ = x.newPool(base.InMemory.DB, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		run.InMemory = true
		return x.executeRun(ctx, run, lease)
	}, options)
	x.dispatchers = newDispatchers(o, base, x.acquireNotifier)

	complete := base
	complete.Workers, complete.InMemoryWorkers = x.RunPool, x.inMemoryPool
	complete.Notifications = newNotifyOptions(o, x.dispatchers, t)
	cache := t.newRuntimeCacheOptions()
	cache.Log, cache.OnChange = o.Log, x.handleAppChange
	x.Runtimes = runtimecache.New(apps, o.DefaultApp.newAppBuilder(complete, memory), cache)
	c.add(func() error { x.Runtimes.Close(); return nil })
	// A subscription that begins after an app was suspended or deleted ends at once instead of waiting for events
	// that never come.
	base.Hub.SetTenantCheck(x.Runtimes.CheckActive)
	// Pools are opened before the first run is accepted: a run is born under the lease of its process.
	return x, complete, errors.Join(x.RunPool.Open(ctx, base.DB.Engine() == db.SQLite), x.inMemoryPool.Open(ctx, true))
}

// newPool returns the pool that executes the runs of d, and the dead letters that these become when they have had their
// attempts.
func (e *Execution) newPool(d *db.DB, execute queue.Handler, o queue.Options) (*queue.Pool, *task.DeadLetters) {
	var pool *queue.Pool
	dead := task.NewDeadLetters(d, e.hub, func() { pool.WakeClaimers() }, task.DeadOptions{ReleaseTokens: e.releaseTokens})
	o.GiveUp = func(ctx context.Context, run store.Run, reason string) error { return e.giveUp(ctx, dead, run, reason) }
	pool = queue.New(d, execute, o)
	return pool, dead
}

// pools returns the pools of this process: of the durable and of the in-memory database.
func (e *Execution) pools() []*queue.Pool { return []*queue.Pool{e.RunPool, e.inMemoryPool} }

// Inflight returns the number of runs that this process executes at present.
func (e *Execution) Inflight() (n int) {
	for _, p := range e.pools() {
		n += p.Inflight()
	}
	return n
}

// executeRun executes a run with the app it belongs to. It uses the revision under which the turn was accepted, so that
// an update of the configuration does not change a task in progress. It uses the current one if that revision is no
// longer kept, and for the default app, which has no other. It returns [queue.ErrPostponed] for an app that is
// suspended or deleted: the run keeps its attempts and waits until the app is active again.
func (e *Execution) executeRun(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
	began := time.Now()
	a, of, release, err := e.Runtimes.AcquireRevision(ctx, run.Tenant, run.Revision)
	if errors.Is(err, agentsvc.CodeNotFound) {
		a, of, release, err = e.Runtimes.Acquire(ctx, run.Tenant)
	}
	switch {
	case errors.Is(err, tenancy.ErrSuspended), errors.Is(err, agentsvc.CodeNotFound):
		e.hub.EndTenant(run.Tenant, err) // a caller that was admitted just before the change would wait for ever
		return queue.ErrPostponed
	case err != nil:
		return fmt.Errorf("load app %s at revision %d: %w", run.Tenant, run.Revision, err)
	}
	defer release()
	return e.telemetry.executeWithSpan(ctx, began, of, a, run, lease)
}

// giveUp makes a run that has had its attempts a dead letter, and logs and counts it.
func (e *Execution) giveUp(ctx context.Context, dead *task.DeadLetters, run store.Run, reason string) error {
	if err := dead.GiveUp(ctx, run, reason); err != nil {
		return err
	}
	app := e.AppName(ctx, run.Tenant)
	e.log.ErrorContext(ctx, "a run was given up", "app", app, "tenant", run.Tenant, "task", run.Task, "attempts", run.Attempts, "error", reason)
	if m := e.telemetry.metrics; m != nil {
		m.RecordRunState(ctx, app, "dead")
	}
	return nil
}

// GiveUp makes a run of the durable database a dead letter.
func (e *Execution) GiveUp(ctx context.Context, run store.Run, reason string) error {
	return e.giveUp(ctx, e.deadLetters, run, reason)
}

// releaseTokens releases what the turn of a dead letter has reserved of its app's limits; note is the
// reservation as the run stored it. If the app cannot be loaded, the reservation lapses with its window.
func (e *Execution) releaseTokens(ctx context.Context, tenant db.ID, t agentsvc.Task, note string) {
	a, _, release, err := e.Runtimes.Acquire(ctx, tenant)
	if err != nil {
		e.log.WarnContext(ctx, "the reservation of a dead letter is not released before its window ends", "task", t.ID, "error", err)
		return
	}
	defer release()
	a.RateLimits().ReleaseTask(t, note)
}

// AppName returns the name of an app for a metric's label, "" if the app cannot be read.
func (e *Execution) AppName(ctx context.Context, id db.ID) string {
	// Its name is fixed, so that no query is needed.
	if id == tenancy.DefaultID {
		return tenancy.DefaultName
	}
	s, err := e.apps.LoadSnapshot(ctx, id, 0)
	if err != nil {
		return ""
	}
	return s.App.Name
}

// handleAppChange applies a change of an app's status in this process. runtimecache.Cache calls it in every process
// that has the app loaded, possibly more than once for one change. A suspended or deleted app has its subscriptions
// ended, its runs stopped and its notifications paused; an active one has the runs and notifications resumed that
// were postponed. A deleted app also loses its rows in the in-memory database, which no transaction of another
// process can delete.
func (e *Execution) handleAppChange(a tenancy.App) {
	// The record in the runtime cache is already the new one: a suspended or deleted app cannot be acquired from here
	// on.
	switch a.Status {
	case tenancy.Active:
		for _, p := range e.pools() {
			p.ResumeTenant(a.ID)
		}
		for _, c := range e.dispatchers {
			c.ExpediteTenant(context.Background(), a.ID)
		}
		return
	case tenancy.Suspended:
		e.hub.EndTenant(a.ID, tenancy.ErrSuspended)
	default:
		e.hub.EndTenant(a.ID, agentsvc.ErrNotFound)
	}
	for _, p := range e.pools() {
		p.StopTenant(a.ID)
	}
	for _, c := range e.dispatchers {
		c.StopTenant(a.ID)
	}
	if a.Status == tenancy.Suspended {
		return
	}
	if err := e.inMemory.DeleteApp(context.Background(), a.ID); err != nil {
		e.log.Error("the data of a deleted app in memory could not be deleted", "app", a.Name, "error", err)
	}
}

// acquireNotifier returns the notifier of an active app and the function that releases its runtime.
func (e *Execution) acquireNotifier(ctx context.Context, tenant db.ID) (*notify.Notifier, func(), error) {
	a, _, release, err := e.Runtimes.Acquire(ctx, tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("load app %s: %w", tenant, err)
	}
	return a.Notifier(), release, nil
}

// runDispatchers delivers notifications until ctx ends.
func (e *Execution) runDispatchers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range e.dispatchers {
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// checkBuild returns an error unless the runtime of an app is that of its record at a generation: while a revision
// cannot be built, the runtime of the one before stays in use. A suspended app has no runtime and needs none.
func (e *Execution) checkBuild(ctx context.Context, id db.ID, generation int64) error {
	_, of, release, err := e.Runtimes.Acquire(ctx, id)
	release()
	switch {
	case errors.Is(err, tenancy.ErrSuspended):
		return nil
	case err == nil && of.Generation < generation:
		return errors.New("the runtime of an earlier revision is in use")
	}
	return err
}

// startTick starts the agent of a tick with the app's current revision. Starting the same tick twice finds the same
// task (see [trigger.SchedulerOptions]). A tick whose schedule no longer exists is not counted.
func (e *Execution) startTick(ctx context.Context, t trigger.Tick) (agentsvc.TaskID, error) {
	a, of, release, err := e.Runtimes.Acquire(ctx, t.Tenant)
	if err != nil {
		return "", err
	}
	defer release()
	id, err := a.StartTick(ctx, t)
	if m := e.telemetry.metrics; m != nil && !errors.Is(err, trigger.ErrNoSchedule) {
		m.RecordTick(of.Name, err)
	}
	return id, err
}

// sweepExternal deletes the expired sessions of an app that has them in a database of its own. That needs the app's
// runtime, because the address and the credentials are in its configuration.
func (e *Execution) sweepExternal(ctx context.Context, id db.ID, r store.Retention) (store.SweepCounts, error) {
	a, _, release, err := e.Runtimes.Acquire(ctx, id)
	if err != nil {
		return store.SweepCounts{}, fmt.Errorf("load the app: %w", err)
	}
	defer release()
	return a.SweepExpired(ctx, r)
}

// executeWithSpan executes a run with app a and records its span. The span's parent is that of the request that
// created the run, also if another process accepted it: the run carries the trace parent in its row. began includes
// the time in which the app was loaded.
func (t telemetry) executeWithSpan(ctx context.Context, began time.Time, of *tenancy.App, a *runtime.Runtime, run store.Run, lease agentsvc.LeaseCheck) error {
	ctx = context.WithValue(ctx, runKey{}, runInfo{of.Name, string(run.Task)})
	if t.tracer == nil {
		return t.recordOutcome(ctx, of.Name, a.ExecuteRun(ctx, run, lease))
	}
	ctx = trail.WithTraceParent(ctx, run.Trace)
	// A run without a trace parent (a schedule, or an untraced request) begins a trace of its own.
	if part, specific := of.TraceRatio(); specific && run.Trace == "" {
		ctx = trail.WithSamplingRatio(ctx, part)
	}
	kind := trace.SpanKindInternal
	if run.Epoch == 0 {
		kind = trace.SpanKindConsumer // no epoch yet: it was claimed from the queue
	}
	ctx, span := t.tracer.Start(ctx, "run", trace.WithTimestamp(began), trace.WithSpanKind(kind), trace.WithAttributes(
		trail.AppKey.String(of.Name), trail.TaskKey.String(string(run.Task)), attribute.Int64("stoa.turn", run.Turn), attribute.Int64("stoa.attempt", run.Attempts)))
	err := a.ExecuteRun(ctx, run, lease)
	if out := runOutcome(err); out != "" {
		span.SetAttributes(runStateKey.String(out))
	}
	trail.EndSpan(span, err)
	return t.recordOutcome(ctx, of.Name, err)
}

// runStateKey is the span attribute with the outcome of a run.
const runStateKey = attribute.Key("stoa.state")

// runOutcome names the outcome of an attempt that ended without recording a state on the task's log, by the error of
// Runtime.ExecuteRun; it returns "" if the attempt did record one. A lost lease is an error here because another worker
// has the task: this one must not write any more.
func runOutcome(err error) string {
	var cancelled *agentsvc.CallCancelledError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &cancelled):
		return "cancelled"
	case errors.Is(err, agentsvc.ErrLeaseLost):
		return "lost"
	case errors.Is(err, queue.ErrPostponed):
		return "postponed"
	case errors.Is(err, queue.ErrStopping), errors.Is(err, queue.ErrStale):
		return "stopped"
	}
	return "unrecorded"
}
