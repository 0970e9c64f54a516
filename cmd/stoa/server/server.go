// Package server composes the serving process and runs it. A newcomer starts here:
//
//   - [New] constructs the parts of a [Server] in order of dependency: listeners' bounds and telemetry, databases and
//     secrets, signals, outgoing requests, billing, identity and apps, the execution of runs, the default app. Each
//     constructor takes what it needs, registers how to close what it opened, and returns a finished value.
//   - [Server.Serve] starts the background loops and the listeners; surfaces.go lists the protocols that answer.
//   - drain stops the process without losing a request or a run.
//
// How a message becomes an answer, and where to read on:
//
//   - A request reaches package surface over the listener of Serve. It verifies the credential with the verifier or the
//     API keys (opened in identity.go), which decides the tenant, and acquires the tenant's built app from [Execution].Runtimes.
//   - The app's task service writes the turn and starts its run here with a lease, or leaves it to the queue.
//     [Execution].RunPool claims queued runs and calls executeRun, which selects the app and the revision of the run.
//   - The worker writes events with the epoch of its lease. A worker that lost its lease changes nothing of the
//     task any more: its statements match no row, and its context ends. Only usage that it owes is still recorded.
//   - Budgets are reserved and settled around each model call (packages runtime and billing, opened by openBilling);
//     limits are counted at admission (openRateCounts).
//   - Every answer is read from the task's log. The signal bus announces new events to the subscriptions of other
//     processes.
//   - background.go has the work that no request starts: schedules and retention; notify.go delivers notifications and
//     callbacks.
//   - A new protocol is a package below agentsvc/surface and a line in newProtocolRoutes (surfaces.go).
//
// Functions that answer what is asked first. Files without a folder are in this package, all others are named from the
// root of the module; TestReferences checks that they declare the functions:
//
//   - Who is the caller, which tenant is it, and what if the URL names another one? agentsvc/surface/authenticate.go
//     (Server.Authenticate) asks authz/tokenapp.go (issuerEntry.setAppFromClaims) or authz/apikey.go
//     (APIKeys.VerifyKey) which app the credential belongs to. tenancy/router/apprequest.go (AppRequest.chooseApp) takes
//     that app and no other, tenancy/router/router.go (Router.FindApp) finds its id; a URL that names another one is an
//     unknown app (AppRequest.CheckApp).
//   - How does a message become a task and a run? agentsvc/surface/admit.go (Request.AdmitMessage),
//     agentsvc/surface/submit.go (Request.SubmitMessage), agentsvc/task/submit.go (Messages.Submit),
//     agentsvc/task/accept.go (pipeline.accept, one for messages, decisions and restored checkpoints),
//     agentsvc/store/createtask.go (Tasks.Create, Tasks.Continue). Two turns are written without accept: that of a
//     requeued run by agentsvc/task/deadletter.go (DeadLetters.Requeue), and that of a task that waited for a budget by
//     agentsvc/task/expiry.go (approvalExpiry.resumeWithinBudget).
//   - What does a model call reserve, and when is that settled or released? agentsvc/runtime/meteredmodel.go
//     (meteredModel.Stream, meteredCall.reserveBudget, meteredCall.endReservation),
//     agentsvc/runtime/meteredembedder.go for embedders (meteredEmbedder.Embed), billing/budget/reserve.go
//     (Gate.ReserveBudget), billing/budget/settle.go (CostReservation.SettleReservation,
//     CostReservation.ReleaseReservation), billing/budget/expiry.go for a dead process (Service.ExpireReservations).
//   - What stops a worker that lost its lease? agentsvc/store/lease.go (type Lease says where the epoch rises;
//     Runs.advanceTask compares it, and all other statements of a record depend on that),
//     agentsvc/store/record.go (Runs.appendRecord, where no row is a lost lease), agentsvc/queue/heartbeat.go
//     (heartbeater.renewBeforeExpiry, heartbeater.confirmHeartbeat), agentsvc/queue/watch.go (watcher.reconcileRuns,
//     when signalled and periodically), agentsvc/queue/active_run.go (activeRuns.stopLost),
//     agentsvc/leasecheck.go (LeaseCheck.Check), which agentsvc/tool/set.go, agentsvc/agent/remote.go and
//     agentsvc/llm/upstream/transport.go call before each effect outside.
//   - How does a decision continue a turn? agentsvc/surface/tenantapi/tenantapi.go has the route,
//     agentsvc/surface/tenantapi/decision.go the handler (newDecisionHandler). agentsvc/task/decide.go
//     (Decisions.Decide, turnFactory.newDecisionPlan), agentsvc/store/approval.go (Approvals.RecordDecisions),
//     agentsvc/task/accept.go (pipeline.dispatch). A message can carry decisions too
//     (agentsvc/task/submit.go). A worker executes the new run by execution.go (Execution.executeRun) and
//     agentsvc/runner/runner.go (Runner.Run), reads the decision in agentsvc/runner/execution.go
//     (execution.replayJournal) and agentsvc/runner/turnstate.go (turnState.applyDecision), and agentsvc/agent/llm.go
//     (llmRun.runSteps) hands the approved call to agentsvc/agent/tool_call.go (toolCalls.resumeCalls), which runs it by
//     agentsvc/tool/set.go (Set.Call).
//   - What does a slow reader of a stream cost? agentsvc/surface/stream/writesse.go (Subscription.WriteSSE),
//     agentsvc/surface/sse/sse.go (Writer.flushBuffer sets the deadline of each write), agentsvc/task/hub.go
//     (Hub.publishLocal), agentsvc/task/recent.go (recentEvents bounds what waits for all readers of a task),
//     agentsvc/task/follow.go (logReader.stream, in which a reader that lags reads the log again; Hub.pauseOf paces many
//     readers of a tenant). A write may take [surface.Timeouts].PieceTimeout. What an app's requests and streams
//     have in memory together: agentsvc/capacity/pool.go (Pool). How many connections and HTTP/2 requests are open:
//     cmd/stoa/server/listener/limiter.go (Limiter); event streams have no bound of their own.
//   - What happens to usage while the database is away? billing/usage/pending.go.
//   - What follows a new revision? tenancy/runtimecache/cache.go (Cache.Acquire returns a new runtime from then on; the
//     former one while the new revision cannot be built), and
//     for a run that was accepted before execution.go (Execution.executeRun keeps its revision, except in the default
//     app). Schedules:
//     agentsvc/trigger/scheduler.go (Scheduler.syncSchedules), background.go (backgroundConfigs.loadSchedules),
//     agentsvc/trigger/scheduletable.go (scheduleTable.saveSchedules replaces the stored ones; a
//     configuration that cannot be loaded or built leaves them). A tick of a schedule that has gone starts nothing:
//     agentsvc/runtime/triggers.go (Runtime.StartTick).
//   - What must be added for a new protocol? surfaces.go (Server.newProtocolRoutes); the comment at the head of
//     agentsvc/surface/surface.go has the rest.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/fleet"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store/leader"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/temporary"
	"stoa/billing/export"
	"stoa/cmd/stoa/server/metrics"
	"stoa/cmd/stoa/server/systemd"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/router"
	"stoa/tenancy/signal"
	"stoa/web"
)

// Options are what a server is made of besides its environment.
type Options struct {
	// Version is that of this binary, as the log, the protocols and exported telemetry show it, Commit what it was built
	// from.
	Version, Commit string

	Settings Settings
	// DefaultApp is the app of the operator's file. Its configuration can be replaced while the server runs.
	DefaultApp *DefaultApp
	Log        *slog.Logger
}

// Server is one composed serving process. Its fields are set by [New] and then read-only: what changes at run time (the
// default app's configuration, counters, caches) is behind the types of the fields, each of which is safe for
// concurrent use.
type Server struct {
	Options
	telemetry telemetry
	// reporter shows this process to the operator, through any process.
	reporter *fleet.Reporter
	Storage  Storage
	// bus wakes other processes after a commit. A lost signal costs time and never data, because every reader also
	// polls.
	bus *signal.Bus
	// Apps is the service of apps, revisions, secrets and grants.
	Apps     *tenancy.Service
	identity identity
	router   *router.Router // maps host names to apps
	// Dependencies are what the runtimes of all apps share.
	Dependencies runtime.Dependencies
	// Exporter sends usage to files, webhooks and Stripe.
	Exporter          *export.Exporter
	Execution         *Execution
	backgroundConfigs *backgroundConfigs
	network           network
	// grpcListener is nil in a worker.
	grpcListener net.Listener
	// consoleListener is nil unless the console has a listener of its own.
	consoleListener net.Listener
	closers         closers
}

// Roles of a process (--role). A web process accepts turns and leaves their runs to workers; a worker executes runs
// and serves health, metrics and other routes that belong to no tenant.
const (
	roleAll    = "all"
	roleWeb    = "web"
	roleWorker = "worker"
)

// closers are functions that release what constructors opened. A constructor adds one as soon as its resource exists.
type closers []func() error

// add registers f to be called by close.
func (c *closers) add(f func() error) { *c = append(*c, f) }

// close calls the functions in reverse order and joins their errors.
func (c *closers) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	return errors.Join(errs...)
}

// removeTemporaryFolders removes what processes that were killed have left. A failure is no reason not to serve.
func removeTemporaryFolders(log *slog.Logger) {
	removed, err := temporary.RemoveFolders()
	if removed > 0 {
		log.Info("the temporary folders of processes that were killed are removed", "folders", removed)
	}
	if err != nil {
		log.Warn("a temporary folder of a process that was killed cannot be removed", "error", err)
	}
}

// New constructs everything but the HTTP listener. If a step fails, it closes what the earlier steps opened. The order
// is the order of dependency. A process whose schema is behind migrates it at its start, without --no-migrate. An error
// that only a change of the settings or of a file cures has a method WrongSetting.
func New(ctx context.Context, o Options) (_ *Server, err error) {
	var c closers
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	network, err := newNetwork(o)
	if err != nil {
		return nil, settingError{err}
	}
	t, err := openTelemetry(ctx, o, &c)
	if err != nil {
		return nil, err
	}
	removeTemporaryFolders(o.Log)
	storage, err := openStorage(ctx, o, t, &c)
	if err != nil {
		return nil, err
	}
	if err := recordKeyChange(ctx, storage.DB, storage.keyring, audit.New(storage.DB, storage.keyring, o.Log)); err != nil {
		return nil, err
	}
	bus, err := openBus(o, storage.DB, t, &c)
	if err != nil {
		return nil, err
	}
	if o.Settings.Studio && o.DefaultApp.path == "" {
		return nil, settingError{errors.New("--studio edits the file of --config: name one")}
	}
	// Without a file, only a server on SQLite has a default app: a fleet serves the apps of its database.
	if o.DefaultApp.Config() == nil && storage.DB.Engine() == db.SQLite {
		if err := o.DefaultApp.useBuiltinConfig(o.Settings.isLoopback()); err != nil {
			return nil, err
		}
	}
	base, err := openDependencies(ctx, o, storage, bus, t, network.gcTuner, &c)
	if err != nil {
		return nil, err
	}
	exporter, err := NewExporter(base, t.exportHook())
	if err != nil {
		return nil, err
	}
	platform, err := openVerifier(ctx, o, base, &c)
	if err != nil {
		return nil, err
	}
	var apps *tenancy.Service
	apps = tenancy.New(storage.DB, storage.keyring, bus, newTenancyOptions(base, o.Settings.Queue.StaleThreshold, platform.verifier, network.configMemory, &apps))
	owned, err := openAppIdentity(ctx, apps, platform, base, &c)
	if err != nil {
		return nil, err
	}
	id := fleet.NewProcessID()
	execution, complete, err := newExecution(ctx, id, o, base, network.configMemory, apps, bus, t, &c)
	if err != nil {
		return nil, err
	}
	setAppNames(o.Log, execution.Runtimes.AppName)
	hosts, err := router.New(apps, o.Settings.Listen.AppHosts)
	if err != nil {
		return nil, err
	}
	c.add(func() error { hosts.Close(); return nil })
	if err := o.DefaultApp.publishAtStart(ctx, apps, complete); err != nil {
		return nil, err
	}
	// Opened before the HTTP server is built, because agent cards contain its address.
	grpcListener, err := openGRPCListener(o.Settings, &c)
	if err != nil {
		return nil, err
	}
	pages, err := openConsoleListener(o.Settings, &c)
	if err != nil {
		return nil, err
	}
	reporter, err := newReporter(id, o, storage.DB, network.drainer, t)
	if err != nil {
		return nil, err
	}
	return &Server{
		Options: o, telemetry: t, reporter: reporter, Storage: storage, bus: bus, Apps: apps, identity: identity{platform, owned}, router: hosts, Dependencies: complete, Exporter: exporter,
		Execution: execution, backgroundConfigs: newBackgroundConfigs(apps, o.DefaultApp, network.configMemory, base.Billing, o.Log), network: network, grpcListener: grpcListener, consoleListener: pages, closers: c,
	}, nil
}

// checkReady returns why the process must not get requests: it is stopping, or lacks a master key.
func (s *Server) checkReady(ctx context.Context) error {
	if err := s.network.drainer.checkReady(ctx); err != nil {
		return err
	}
	return s.Storage.keyWatch.checkReady()
}

// Close releases everything that New opened, in reverse order, and joins the errors. Of a process that has served it
// writes the last line of the log.
func (s *Server) Close() error {
	err := s.closers.close()
	if since := s.network.drainer.stoppingSince.Load(); since != nil {
		s.Log.Info("stopped", "duration", time.Since(*since).Seconds(), "returned_runs", s.Execution.RunPool.Returned())
	}
	return err
}

// Metrics returns what counts the events of this process; nil if nothing reads the metrics.
func (s *Server) Metrics() *metrics.Recorder { return s.telemetry.metrics }

// ListenAndServe opens the listener of --host and --port and serves until ctx ends. announce is called with a text for
// the operator when requests are answered.
func (s *Server) ListenAndServe(ctx context.Context, announce func(text string)) error {
	l, err := openListener(s.Settings)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l, func() {
		announce(s.describeServing(l.Addr()))
		s.notifyManager(systemd.Ready)
	})
}

// notifyManager reports a state of the process to the service manager. A failure does not stop a process that serves.
func (s *Server) notifyManager(state string) {
	if err := systemd.Notify(state); err != nil {
		s.Log.Warn("the service manager was not notified", "state", state, "error", err)
	}
}

// Serve runs all background loops and serves HTTP on l until ctx ends, then drains. It calls serving when requests are
// answered. It also stops when one of the loops fails: then the error of that loop is returned.
func (s *Server) Serve(ctx context.Context, l net.Listener, serving func()) error {
	// The bounds apply before TLS and HTTP.
	l = s.network.connections.LimitListener(l)
	c, err := s.newCards(l.Addr())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	frontend, err := s.newFrontend(l.Addr(), c)
	if err == nil {
		err = s.registerGauges(frontend)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	// The loops outlive ctx: leases must be renewed and signals sent while the process drains. stop ends them after
	// the drain.
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(back)
	for _, run := range append(s.loops(), endWith(ctx, s.newScheduler().Run), endWith(ctx, s.newIndexerLoop())) {
		g.Go(func() error { return ignoreCancelled(run(gctx)) })
	}
	server := frontend.NewHTTPServer()
	server.Handler = s.network.requests.LimitHTTP2Requests(s.network.drainer.trackRequests(server.Handler))
	s.network.setTLS(server)
	g.Go(func() error { return s.network.serveHTTP(server, l) })
	if s.consoleListener != nil {
		// The pages call the API of their own address, so that both listeners serve everything else.
		g.Go(func() error {
			return s.network.serveHTTP(server, s.network.connections.LimitListener(s.consoleListener))
		})
	}
	grpcServer := s.newGRPCServer(frontend, c.Builder)
	if grpcServer != nil {
		g.Go(func() error { return grpcServer.Serve(s.network.connections.LimitListener(s.grpcListener)) })
		context.AfterFunc(gctx, grpcServer.Stop) // for a failed loop; a drain has closed it before
	}
	// The loops and the listeners are running: stop them and wait for them before returning.
	if err := s.serveMetrics(gctx, g); err != nil {
		stop()
		return errors.Join(err, server.Close(), g.Wait())
	}
	serving()
	select {
	case <-ctx.Done():
	// A loop failed: drain sees gctx ended and does not wait for load balancers.
	case <-gctx.Done():
	}
	s.drain(context.WithoutCancel(ctx), gctx, listeners{frontend, server, grpcServer})
	stop()
	return g.Wait()
}

// loops returns the background loops. Every loop returns when its context ends. Loops that only one process of the fleet
// may execute (retention, sampling of storage, audit inspection, schedules) elect it by a lease or a claim in the
// database.
func (s *Server) loops() []func(context.Context) error {
	d, x := s.Dependencies, s.Execution
	all := []func(context.Context) error{
		s.bus.Run, s.Apps.Run, s.identity.issuer.Run, s.identity.registry.Run, s.identity.apiKeys.Run, s.identity.failures.Run, x.Runtimes.Run, x.RunPool.Run, x.inMemoryPool.Run, x.runDispatchers,
		s.Storage.Quota.Run, d.InMemory.RunCleanup, d.Billing.Run, d.Billing.Invoices.Run, s.Exporter.Run, newStorageSampler(s.reporter.ProcessID(), s.Storage.DB, s.Apps, d.Billing, s.Log).run,
		s.NewSweeper(s.Log).Run, audit.NewInspector(s.Apps.Trail, leader.New(s.Storage.DB, "audit", s.reporter.ProcessID())).Run, idempotency.New(s.Storage.DB, s.Log).Run, s.network.gcTuner.Run, s.reporter.Run,
	}
	all = append(all, s.Storage.keyWatch.run, func(ctx context.Context) error {
		return watchFormerKeys(ctx, s.Storage.DB, s.Storage.keyring, s.Apps.Trail, s.Log)
	})
	if s.DefaultApp.path != "" {
		onReload := func(err error) {
			if m := s.telemetry.metrics; m != nil {
				m.RecordReload(err)
			}
			if err == nil {
				s.DefaultApp.warnExposure(s.Settings, s.Log)
			}
		}
		all = append(all, func(ctx context.Context) error {
			return s.DefaultApp.watchFiles(ctx, s.Settings.Watch, s.Apps, d, onReload, s.Log)
		})
	}
	return all
}

// endWith returns a loop that also ends with serving: a stopping process leaves its work to the other processes, or to its
// next start. It is for loops whose work would otherwise keep the process from stopping.
func endWith(serving context.Context, loop func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(serving, stop)()
		return loop(ctx)
	}
}

// describeServing logs and returns where the server is reached and in which file its admin secret is. Tools wait for
// the line "serves at" (see stoatest.Process). It warns if callers from other
// machines need no credential for the default app.
func (s *Server) describeServing(addr net.Addr) string {
	s.Log.Info("serving", "role", s.Settings.Role, "address", addr.String(), "grpc", s.grpcAddress(), "database", string(s.Storage.DB.Engine()), "version", s.Version)
	s.DefaultApp.warnExposure(s.Settings, s.Log)
	text := fmt.Sprintf("Stoa %s serves at %s", s.Version, s.network.localURL(addr))
	if s.Settings.servesConsole() {
		at := addr
		if s.consoleListener != nil {
			at = s.consoleListener.Addr()
		}
		text += "\nThe console is at " + s.network.localURL(at) + web.Path + "."
	}
	if at := s.grpcAddress(); at != "" {
		text += "\ngRPC is at " + at + "."
	}
	if s.Storage.secrets.path != "" {
		text += "\nThe admin secret is in " + s.Storage.secrets.path + "; stoa app finds it in that folder."
	}
	return text
}

// ignoreCancelled returns nil for an error that only reports the end of the context.
func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// ignoreClosed returns nil for the error with which an HTTP server reports its own shutdown.
func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
