package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/app"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// serveCmd is `stoa serve`.
type serveCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"The configuration of the default app and of this process."`
	flags
}

// Run serves until ctx ends, then drains. It returns an [exitError] with the code 2 for invalid settings.
func (cmd *serveCmd) Run(ctx context.Context, c *console) error {
	// Before openServer, because newGCTuner reads the value to restore.
	tuneGC()
	mine, err := loadDefaultApp(cmd.Config)
	if err != nil {
		return err
	}
	// The file is read first: it has defaults for some settings, and it names the log file.
	s, err := resolveSettings(cmd.flags, mine.cfg.Load())
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	log, closeLog, err := newLogger(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	slog.SetDefault(log)
	h, err := openServer(ctx, s, mine, log)
	if err != nil {
		return err
	}
	return errors.Join(h.listenAndServe(ctx, c), h.close())
}

// server is the composition of one serving process. openServer sets every field except cardJWKS and grpcServer, which
// newSurfaceServer and serveGRPC set before requests are answered. From then on all fields are read-only: what
// changes at run time (the default app's configuration, counters, caches) is behind the types of the fields, each of
// which is safe for concurrent use.
type server struct {
	// settings are the flags, the environment and the file, already merged. They never change.
	settings settings
	// defaultApp is the app of the operator's file. Its configuration can be replaced while the server runs.
	defaultApp *defaultApp
	log        *slog.Logger
	// secrets are the admin secret, the master keys and the metrics token.
	secrets processSecrets
	// keyring has the master keys. They wrap the data keys of apps, with which everything secret is encrypted.
	keyring *tenancy.Keyring
	// db is the durable database: a SQLite file of this process alone, or PostgreSQL shared by a fleet.
	db *db.DB
	// redis is the client of the bus; nil = Redis is not configured. Rate limits have a client of their own
	// (openRateCounts).
	redis *redis.Client
	// bus wakes other processes after a commit. A lost signal costs time and never data, because every reader also
	// polls.
	bus *signal.Bus
	// apps is the service of apps, revisions, secrets and grants. It must not be used before openTenancy.
	apps *tenancy.Service
	// issuer signs the server's own access tokens, verifier accepts those of all trusted issuers. The issuer of a
	// token decides its app, directly or by a claim.
	issuer   *authz.Issuer
	verifier *authz.Verifier
	// issuerRegistry keeps the apps' own issuers in verifier as the database has them.
	issuerRegistry *authz.IssuerRegistry
	// apiKeys verifies API keys, each of which belongs to one app.
	apiKeys *authz.APIKeys
	// runPool executes the runs of the durable database, inMemoryPool those of the in-memory database.
	runPool      *queue.Pool
	inMemoryPool *queue.Pool
	// storageQuota bounds what an app stores in the durable database.
	storageQuota *store.Quota
	// deadLetters are the runs of the durable database that failed for good.
	deadLetters *task.DeadLetters
	// deps is what the runtimes of all apps share. The open methods fill it step by step; newAppBuilder copies it, so
	// that a field set after openRuntimes would have no effect.
	deps app.Dependencies
	// runtimes caches the built apps by app and revision. A request or run acquires one and releases it when it is
	// done.
	runtimes *tenancy.RuntimeCache[*app.App]
	router   *tenancy.Router // maps host names to apps
	// metrics and tracer are nil if nothing reads metrics or records traces.
	metrics *metricsRecorder
	tracer  trace.Tracer
	// drainer keeps the readiness of the process and waits for load balancers in a shutdown.
	drainer *drainer
	// grpcListener is nil in a worker, grpcServer before serveGRPC and in a worker.
	grpcListener net.Listener
	grpcServer   *a2agrpc.Server
	// gcTuner collects garbage more often while large bodies or answers are in memory.
	gcTuner     *gcTuner
	connections *connectionLimiter // counts the connections of all public listeners
	streams     *connectionLimiter // counts the open requests over HTTP/2 and gRPC
	tlsConfig   *tls.Config        // nil = plain HTTP and gRPC
	// exporter sends usage to files, webhooks and Stripe.
	exporter *billing.Exporter
	// dispatchers send notifications, one for each database that this process serves.
	dispatchers []*notify.Dispatcher
	// cardJWKS returns the public keys that verify signed agent cards; nil = cards are not signed.
	cardJWKS func() []byte
	closers  []func() error // called by close in reverse order
}

// Roles of a process (--role). A web process accepts turns and leaves their runs to workers; a worker executes runs
// and serves health, metrics and other routes that belong to no tenant.
const (
	roleAll    = "all"
	roleWeb    = "web"
	roleWorker = "worker"
)

// openServer constructs everything but the HTTP listener. If a step fails, it closes what the earlier steps opened
// and returns a nil server. The order of the steps is the order of dependency: the tracer is given to Redis and to
// the runtimes, the pools of the queue need the dependencies of openTenancy, and a runtime copies those dependencies
// with the pools and the notifications in them.
func openServer(ctx context.Context, s settings, mine *defaultApp, log *slog.Logger) (h *server, err error) {
	h = &server{settings: s, defaultApp: mine, log: log, drainer: newDrainer(), gcTuner: newGCTuner()}
	h.connections = newConnectionLimiter(s.maxConnections, s.maxAddressConnections, s.trustedProxies)
	h.streams = newStreamLimiter(s.maxConnections, s.trustedProxies)
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
			h = nil
		}
	}()
	for _, open := range []func(context.Context) error{h.openTLS, h.openTracing, h.openDatabase, h.openTenancy, h.openIdentity, h.openQueue, h.openNotifications, h.openRuntimes, h.openGRPC} {
		if err := open(ctx); err != nil {
			return h, err
		}
	}
	return h, nil
}

// addCloser registers f to be called by close. A step registers its closer as soon as its resource exists.
func (h *server) addCloser(f func() error) { h.closers = append(h.closers, f) }

// close releases everything that was opened, in reverse order, and joins the errors.
func (h *server) close() error {
	var errs []error
	for i := len(h.closers) - 1; i >= 0; i-- {
		errs = append(errs, h.closers[i]())
	}
	return errors.Join(errs...)
}

// openDatabase opens the durable database, reads the secrets, migrates the schema and opens the in-memory database.
// The role is checked here because only the engine decides whether it is possible: a SQLite file belongs to one
// process. The metrics follow the secrets, because the metrics token decides whether app names are labels.
func (h *server) openDatabase(ctx context.Context) (err error) {
	// The metrics do not exist yet: recordCommitGroup looks them up at each commit.
	if h.db, err = db.Open(ctx, h.settings.databaseURL, db.Options{OnCommit: h.recordCommitGroup, Log: h.log}); err != nil {
		return err
	}
	h.addCloser(h.db.Close)
	if h.settings.role != roleAll && h.db.Engine() == db.SQLite {
		return fmt.Errorf("--role %s needs PostgreSQL: the one process on a SQLite file does everything", h.settings.role)
	}
	// On SQLite this creates the secrets file next to the database if secrets are missing.
	if h.secrets, err = loadSecrets(h.db.Engine(), h.settings.databaseURL); err != nil {
		return err
	}
	if h.keyring, err = h.secrets.openKeyring(); err != nil {
		return err
	}
	if err := h.openMetrics(ctx); err != nil {
		return err
	}
	// Every process migrates at its start. Concurrent starts are serialised by the migration's lock.
	if err := migrateSchema(ctx, h.db, h.settings.migrateDatabaseURL); err != nil {
		return err
	}
	h.openStorageQuota()
	if h.deps.InMemory, err = app.OpenInMemoryDB(ctx, h.db, app.InMemoryDBOptions{Log: h.log}); err != nil {
		return err
	}
	h.addCloser(h.deps.InMemory.Close)
	return nil
}

// openTenancy opens the signal bus, the dependencies that all apps share, billing, exports and the tenancy service.
// The bus is carried by Redis if it is configured, else by PostgreSQL's LISTEN and NOTIFY; on SQLite there is no
// other process to signal.
func (h *server) openTenancy(ctx context.Context) (err error) {
	var link signal.Link
	switch {
	case h.settings.redisURL != "":
		o, err := redis.ParseURL(h.settings.redisURL)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		// The logger of go-redis is global to the process.
		redis.SetLogger(redisLogger{h.log})
		h.redis = redis.NewClient(o)
		if h.tracer != nil {
			h.redis.AddHook(redisTracer{})
		}
		h.addCloser(h.redis.Close)
		link = signal.NewRedisLink(h.redis, "stoa")
	case h.db.Engine() == db.Postgres:
		link = signal.NewPostgresLink(h.db.URL())
	}
	h.bus = signal.New(link, h.log)
	// Without a file, only a server on SQLite has a default app: a fleet serves the apps of its database.
	if h.defaultApp.cfg.Load() == nil && h.db.Engine() == db.SQLite {
		if err := h.defaultApp.useBuiltinConfig(h.settings.isLoopback()); err != nil {
			return err
		}
	}
	// The sandbox starts this executable again as its helper (see main).
	helper, err := os.Executable()
	if err != nil {
		return err
	}
	guard, err := h.newFolderGuard()
	if err != nil {
		return err
	}
	// Two clients for outgoing calls exist: the grant private_network selects PrivateEgress for an app. Memory bounds
	// the answers and conversations of all runs together, and reports its use to gcTuner.
	h.deps = app.Dependencies{
		DB: h.db, InMemory: h.deps.InMemory, Keys: h.keyring, Hub: task.NewHub(h.bus), ExternalDatabases: &app.ExternalDatabases{},
		Retry:      queue.Retry{MaxRetries: h.settings.maxRetries, InitialDelay: h.settings.retryInitialDelay, MaxDelay: h.settings.retryMaxDelay},
		MaxRunTime: h.settings.maxRunTime, Memory: capacity.NewPool(int64(h.settings.answerMemoryMiB)<<20, h.gcTuner.newBytesTracker()), MaxAnswerBytes: h.settings.maxAnswerMiB << 20,
		PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true}),
		FolderGuard: guard, Sandbox: sandbox.NewHost(helper, sandbox.Options{User: h.settings.sandboxUser, ProgramFolders: h.settings.sandboxPrograms, Log: h.log}), OnFinding: h.recordFinding, Instrumentation: h.newInstrumentation(), Log: h.log,
	}
	// The rest of deps needs parts of it: rate counts and billing are added once the bus and the clients exist.
	if err := h.openRateCounts(); err != nil {
		return err
	}
	h.addCloser(func() error { h.deps.PublicEgress.Close(); h.deps.PrivateEgress.Close(); return nil })
	if err := h.openBilling(ctx); err != nil {
		return err
	}
	if err := h.openExports(); err != nil {
		return err
	}
	// Identity is opened later and needs apps: the two methods are called at requests only, when h.verifier exists.
	o := newTenancyOptions(h.deps, h.settings.staleThreshold)
	o.IsReservedIssuer, o.CheckHost = h.isReservedIssuer, h.checkIssuerHost
	h.apps = tenancy.New(h.db, h.keyring, h.bus, o)
	return nil
}

// openQueue opens the two worker pools and takes their first leases. A run is executed under a lease with an epoch; a
// worker whose lease was lost cannot change its tasks any more, because every such write is conditional on the epoch.
// A web process opens runPool in accept-only mode. On SQLite no other process can hold a lease, so that the runs a
// crashed predecessor left behind are rescued at once.
func (h *server) openQueue(ctx context.Context) error {
	h.deadLetters = task.NewDeadLetters(h.db, h.deps.Hub, func() { h.runPool.WakeClaimers() }, task.DeadOptions{ReleaseReservation: h.releaseReservation})
	o := queue.Options{
		Workers: h.settings.queueWorkers, MaxInflight: h.settings.maxInflight, AppInflight: h.settings.appInflight, StaleAfter: h.settings.staleThreshold, Retry: h.deps.Retry, GiveUp: h.newDeadLetterFunc(h.deadLetters),
		ConfigHash: h.defaultApp.fileFingerprint, AcceptOnly: h.settings.role == roleWeb, Bus: h.bus, Calls: h.deps.Hub, Log: h.log,
	}
	// An attempt is executed by executeRun; the pool has taken the lease and renews it.
	h.runPool = queue.New(store.NewRunQueue(h.db), h.executeRun, o)
	// The tasks in memory exist in this process only: no other process can execute them or be signalled about them.
	o.GiveUp = h.newDeadLetterFunc(task.NewDeadLetters(h.deps.InMemory.DB, h.deps.Hub, func() { h.inMemoryPool.WakeClaimers() }, task.DeadOptions{ReleaseReservation: h.releaseReservation}))
	o.AcceptOnly, o.Bus = false, nil
	h.inMemoryPool = queue.New(store.NewRunQueue(h.deps.InMemory.DB), func(ctx context.Context, run store.Run) error {
		run.InMemory = true
		return h.executeRun(ctx, run)
	}, o)
	h.deps.Workers, h.deps.InMemory.Workers = h.runPool, h.inMemoryPool
	// Pools are opened before the first run is accepted: a run is born under the lease of its process.
	return errors.Join(h.runPool.Open(ctx, h.db.Engine() == db.SQLite), h.inMemoryPool.Open(ctx, true))
}

// workerPools returns the pools of this process: of the durable and of the in-memory database.
func (h *server) workerPools() []*queue.Pool { return []*queue.Pool{h.runPool, h.inMemoryPool} }

// countInflight returns the number of runs that this process executes at present.
func (h *server) countInflight() (n int) {
	for _, p := range h.workerPools() {
		n += p.Inflight()
	}
	return n
}

// openRuntimes opens the cache of built apps and the router, and checks that the default app can be built: a process
// whose own configuration does not build must not start. It comes after openQueue and openNotifications because the
// app builder takes a copy of h.deps.
func (h *server) openRuntimes(ctx context.Context) (err error) {
	h.runtimes = tenancy.NewRuntimeCache(h.apps, h.defaultApp.newAppBuilder(h.deps), h.newRuntimeOptions())
	h.addCloser(func() error { h.runtimes.Close(); return nil })
	// A subscription that begins after an app was suspended or deleted ends at once instead of waiting for events
	// that never come.
	h.deps.Hub.SetTenantCheck(h.runtimes.CheckActive)
	if h.router, err = tenancy.NewRouter(h.apps, h.settings.appHosts); err != nil {
		return err
	}
	h.addCloser(func() error { h.router.Close(); return nil })
	// checkBuild reports configuration errors at the start, with positions, and not at the first request.
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		if err := h.defaultApp.checkBuild(cfg, h.deps); err != nil {
			return err
		}
		if err := h.defaultApp.publishConfig(h.apps); err != nil {
			return err
		}
	}
	return h.apps.AuditDefaultConfig(ctx)
}

// executeRun executes a run with the app it belongs to. It uses the revision under which the turn was accepted, so
// that an update of the configuration does not change a task in progress; if that revision is no longer kept, it uses
// the current one. It returns [queue.ErrPostponed] for an app that is suspended or deleted: the run keeps its
// attempts and waits until the app is active again.
func (h *server) executeRun(ctx context.Context, run store.Run) error {
	began := time.Now()
	a, of, release, err := h.runtimes.AcquireRevision(ctx, run.Tenant, run.Revision)
	if errors.Is(err, tenancy.ErrNotFound) {
		a, of, release, err = h.runtimes.Acquire(ctx, run.Tenant)
	}
	switch {
	case errors.Is(err, tenancy.ErrSuspended), errors.Is(err, tenancy.ErrNotFound):
		h.deps.Hub.EndTenant(run.Tenant, err) // a caller that was admitted just before the change would wait for ever
		return queue.ErrPostponed
	case err != nil:
		return fmt.Errorf("load app %s at revision %d: %w", run.Tenant, run.Revision, err)
	}
	defer release()
	return h.executeWithSpan(ctx, began, of, a, run)
}

// handleAppChange applies a change of an app's status in this process. tenancy.RuntimeCache calls it in every process
// that has the app loaded, possibly more than once for one change. A suspended or deleted app has its subscriptions
// ended, its runs stopped and its notifications paused; an active one has the runs and notifications resumed that
// were postponed. A deleted app also loses its rows in the in-memory database, which no transaction of another
// process can delete.
func (h *server) handleAppChange(a tenancy.App) {
	// The record in the runtime cache is already the new one: a suspended or deleted app cannot be acquired from here
	// on.
	switch a.Status {
	case tenancy.Active:
		for _, p := range h.workerPools() {
			p.ResumeTenant(a.ID)
		}
		for _, c := range h.dispatchers {
			c.ExpediteTenant(context.Background(), a.ID)
		}
		return
	case tenancy.Suspended:
		h.deps.Hub.EndTenant(a.ID, tenancy.ErrSuspended)
	default:
		h.deps.Hub.EndTenant(a.ID, tenancy.ErrNotFound)
	}
	for _, p := range h.workerPools() {
		p.StopTenant(a.ID)
	}
	for _, c := range h.dispatchers {
		c.StopTenant(a.ID)
	}
	if a.Status == tenancy.Suspended {
		return
	}
	if err := h.deps.InMemory.DeleteApp(context.Background(), a.ID); err != nil {
		h.log.Error("the data of a deleted app in memory could not be deleted", "app", a.Name, "error", err)
	}
}

// listenAndServe opens the listener of --host and --port and serves until ctx ends.
func (h *server) listenAndServe(ctx context.Context, c *console) error {
	l, err := listenTCP(h.settings.host, h.settings.port)
	if err != nil {
		return fmt.Errorf("listen: %w (another --port is the cure if this one is taken)", err)
	}
	return h.serveListener(ctx, l, func() { h.announceServing(c, l.Addr()) })
}

// serveListener runs all background loops and serves HTTP on l until ctx ends, then drains. It calls serving when
// requests are answered. It also stops when one of the loops fails: then the error of that loop is returned.
func (h *server) serveListener(ctx context.Context, l net.Listener, serving func()) error {
	// The bounds apply before TLS and HTTP.
	l = h.connections.limitListener(l)
	frontend, err := h.newSurfaceServer(l.Addr())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	// The loops outlive ctx: leases must be renewed and signals sent while the process drains. stop ends them after
	// the drain.
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(back)
	// Every loop returns when its context ends. Loops that only one process of the fleet may execute (sweeper, audit
	// inspector, schedules) elect it by a lease or a claim in the database.
	for _, run := range []func(context.Context) error{
		h.bus.Run, h.apps.Run, h.issuer.Run, h.issuerRegistry.Run, h.apiKeys.Run, h.runtimes.Run, h.runPool.Run, h.inMemoryPool.Run, h.storageQuota.Run,
		h.deps.Billing.Run, h.runBilling, h.deps.InMemory.RunCleanup, newSweeper(h).run, newAuditInspector(h).run, h.runDispatchers, h.runSchedules, h.gcTuner.Run,
	} {
		g.Go(func() error { return ignoreCancelled(run(gctx)) })
	}
	if h.settings.watch && h.defaultApp.path != "" {
		g.Go(func() error { return ignoreCancelled(h.defaultApp.watchFile(gctx, h.apps, h.deps, h.log)) })
	}
	server := frontend.NewHTTPServer()
	server.Handler = h.streams.limitStreams(h.drainer.trackRequests(server.Handler))
	g.Go(func() error { return h.serveHTTP(server, l) })
	h.serveGRPC(gctx, g, frontend)
	// The loops and the listeners are running: stop them and wait for them before returning.
	if err := h.serveMetrics(gctx, g); err != nil {
		stop()
		return errors.Join(err, server.Close(), g.Wait())
	}
	serving()
	select {
	case <-ctx.Done():
	// A loop failed: drain sees gctx ended and does not wait for load balancers.
	case <-gctx.Done():
	}
	err = h.drain(context.WithoutCancel(ctx), gctx, frontend, server)
	stop()
	return errors.Join(err, g.Wait())
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
