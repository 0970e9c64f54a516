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

type serveCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"The configuration of the default app and of this process."`
	flags
}

// Run serves until ctx ends, then finishes or hands back what is under way.
func (cmd *serveCmd) Run(ctx context.Context, c *console) error {
	tuneGC()
	mine, err := loadDefaultApp(cmd.Config)
	if err != nil {
		return err
	}
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

// server is the whole of a serving process, from the ground up.
type server struct {
	settings       settings
	defaultApp     *defaultApp
	log            *slog.Logger
	secrets        processSecrets
	keyring        *tenancy.Keyring
	db             *db.DB
	redis          *redis.Client
	bus            *signal.Bus
	apps           *tenancy.Service
	issuer         *authz.Issuer
	verifier       *authz.Verifier
	issuerRegistry *authz.IssuerRegistry
	apiKeys        *authz.APIKeys
	runPool        *queue.Pool
	inMemoryPool   *queue.Pool  // of the tasks in memory
	storageQuota   *store.Quota // of what apps store in the database
	deadLetters    *task.DeadLetters
	deps           app.Dependencies
	runtimes       *tenancy.RuntimeCache[*app.App]
	router         *tenancy.Router
	metrics        *metricsRecorder // nil = nothing is counted
	tracer         trace.Tracer     // nil = nothing is recorded
	drainer        *drainer
	grpcListener   net.Listener    // of gRPC, nil = none
	grpcServer     *a2agrpc.Server // over gRPC
	gcTuner        *gcTuner
	connections    *connectionLimiter
	tlsConfig      *tls.Config // nil = nothing is encrypted here
	exporter       *billing.Exporter
	dispatchers    []*notify.Dispatcher
	cardJWKS       func() []byte // what cards are signed with, nil = they are not
	closers        []func() error
}

// The roles of a process: it serves requests and works, or does only one of both.
const (
	roleAll    = "all"
	roleWeb    = "web"
	roleWorker = "worker"
)

// openServer brings everything up but the listeners. What it opened before an error it closes again.
func openServer(ctx context.Context, s settings, mine *defaultApp, log *slog.Logger) (h *server, err error) {
	h = &server{settings: s, defaultApp: mine, log: log, drainer: newDrainer(), gcTuner: newGCTuner()}
	h.connections = newConnectionLimiter(s.maxConnections, s.maxAddressConnections, s.trustedProxies)
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

func (h *server) addCloser(f func() error) { h.closers = append(h.closers, f) }

// close undoes what was opened, the last first.
func (h *server) close() error {
	var errs []error
	for i := len(h.closers) - 1; i >= 0; i-- {
		errs = append(errs, h.closers[i]())
	}
	return errors.Join(errs...)
}

func (h *server) openDatabase(ctx context.Context) (err error) {
	if h.db, err = db.Open(ctx, h.settings.databaseURL, db.Options{OnCommit: h.recordCommitGroup, Log: h.log}); err != nil {
		return err
	}
	h.addCloser(h.db.Close)
	if h.settings.role != roleAll && h.db.Engine() == db.SQLite {
		return fmt.Errorf("--role %s needs PostgreSQL: the one process on a SQLite file does everything", h.settings.role)
	}
	if h.secrets, err = loadSecrets(h.db.Engine(), h.settings.databaseURL); err != nil {
		return err
	}
	if h.keyring, err = h.secrets.openKeyring(); err != nil {
		return err
	}
	if err := h.openMetrics(ctx); err != nil {
		return err
	}
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

func (h *server) openTenancy(ctx context.Context) (err error) {
	var link signal.Link
	switch {
	case h.settings.redisURL != "":
		o, err := redis.ParseURL(h.settings.redisURL)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
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
	if h.defaultApp.cfg.Load() == nil && h.db.Engine() == db.SQLite {
		if err := h.defaultApp.useBuiltinConfig(h.settings.isLoopback()); err != nil {
			return err
		}
	}
	helper, err := os.Executable()
	if err != nil {
		return err
	}
	guard, err := h.newFolderGuard()
	if err != nil {
		return err
	}
	h.deps = app.Dependencies{
		DB: h.db, InMemory: h.deps.InMemory, Keys: h.keyring, Hub: task.NewHub(h.bus), ExternalDatabases: &app.ExternalDatabases{},
		Retry:      queue.Retry{MaxRetries: h.settings.maxRetries, InitialDelay: h.settings.retryInitialDelay, MaxDelay: h.settings.retryMaxDelay},
		MaxRunTime: h.settings.maxRunTime, Memory: capacity.NewPool(int64(h.settings.answerMemoryMiB)<<20, h.gcTuner.newBytesTracker()), MaxAnswerBytes: h.settings.maxAnswerMiB << 20,
		PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true}),
		FolderGuard: guard, Sandbox: sandbox.NewHost(helper, sandbox.Options{User: h.settings.sandboxUser, ProgramFolders: h.settings.sandboxPrograms, Log: h.log}), OnFinding: h.recordFinding, Instrumentation: h.newInstrumentation(), Log: h.log,
	}
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
	o := newTenancyOptions(h.deps, h.settings.staleThreshold)
	o.IsReservedIssuer, o.CheckHost = h.isReservedIssuer, h.checkIssuerHost
	h.apps = tenancy.New(h.db, h.keyring, h.bus, o)
	return nil
}

func (h *server) openQueue(ctx context.Context) error {
	h.deadLetters = task.NewDeadLetters(h.db, h.deps.Hub, func() { h.runPool.WakeClaimers() }, task.DeadOptions{ReleaseReservation: h.releaseReservation})
	o := queue.Options{
		Workers: h.settings.queueWorkers, MaxInflight: h.settings.maxInflight, AppInflight: h.settings.appInflight, StaleAfter: h.settings.staleThreshold, Retry: h.deps.Retry, GiveUp: h.newDeadLetterFunc(h.deadLetters),
		ConfigHash: h.defaultApp.fileFingerprint, AcceptOnly: h.settings.role == roleWeb, Bus: h.bus, Calls: h.deps.Hub, Log: h.log,
	}
	h.runPool = queue.New(store.NewRunQueue(h.db), h.executeRun, o)
	// No other process reaches the tasks in memory, to work them or to be told of them.
	o.GiveUp = h.newDeadLetterFunc(task.NewDeadLetters(h.deps.InMemory.DB, h.deps.Hub, func() { h.inMemoryPool.WakeClaimers() }, task.DeadOptions{ReleaseReservation: h.releaseReservation}))
	o.AcceptOnly, o.Bus = false, nil
	h.inMemoryPool = queue.New(store.NewRunQueue(h.deps.InMemory.DB), func(ctx context.Context, run store.Run) error {
		run.InMemory = true
		return h.executeRun(ctx, run)
	}, o)
	h.deps.Workers, h.deps.InMemory.Workers = h.runPool, h.inMemoryPool
	return errors.Join(h.runPool.Open(ctx, h.db.Engine() == db.SQLite), h.inMemoryPool.Open(ctx, true))
}

// workerPools are this process's workers.
func (h *server) workerPools() []*queue.Pool { return []*queue.Pool{h.runPool, h.inMemoryPool} }

// countInflight counts the runs at work in this process.
func (h *server) countInflight() (n int) {
	for _, p := range h.workerPools() {
		n += p.Inflight()
	}
	return n
}

func (h *server) openRuntimes(ctx context.Context) (err error) {
	h.runtimes = tenancy.NewRuntimeCache(h.apps, h.defaultApp.newAppBuilder(h.deps), h.newRuntimeOptions())
	h.addCloser(func() error { h.runtimes.Close(); return nil })
	h.deps.Hub.SetTenantCheck(h.runtimes.CheckActive)
	if h.router, err = tenancy.NewRouter(h.apps, h.settings.appHosts); err != nil {
		return err
	}
	h.addCloser(func() error { h.router.Close(); return nil })
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

// executeRun hands a run to the app it belongs to, at the revision it began with or where that is no longer kept at the
// current one.
func (h *server) executeRun(ctx context.Context, run store.Run) error {
	began := time.Now()
	a, of, release, err := h.runtimes.AcquireRevision(ctx, run.Tenant, run.Revision)
	if errors.Is(err, tenancy.ErrNotFound) {
		a, of, release, err = h.runtimes.Acquire(ctx, run.Tenant)
	}
	switch {
	case errors.Is(err, tenancy.ErrSuspended), errors.Is(err, tenancy.ErrNotFound):
		h.deps.Hub.EndTenant(run.Tenant, err) // whoever was let in just before waits for nothing
		return queue.ErrPostponed
	case err != nil:
		return fmt.Errorf("load app %s at revision %d: %w", run.Tenant, run.Revision, err)
	}
	defer release()
	return h.executeWithSpan(ctx, began, of, a, run)
}

// handleAppChange ends the runs of an app that no longer answers, and whoever listens to them. What rested while an app was
// suspended goes on when it answers again.
func (h *server) handleAppChange(a tenancy.App) {
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
		h.log.Error("what a deleted app has in memory could not be deleted", "app", a.Name, "error", err)
	}
}

// listenAndServe serves at the settings' address until ctx ends.
func (h *server) listenAndServe(ctx context.Context, c *console) error {
	l, err := listenTCP(h.settings.host, h.settings.port)
	if err != nil {
		return fmt.Errorf("listen: %w (another --port is the cure if this one is taken)", err)
	}
	return h.serveListener(ctx, l, func() { h.announceServing(c, l.Addr()) })
}

// serveListener works until ctx ends, then drains. It calls serving when requests are answered.
func (h *server) serveListener(ctx context.Context, l net.Listener, serving func()) error {
	l = h.connections.limitListener(l)
	frontend, err := h.newSurfaceServer(l.Addr())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(back)
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
	server.Handler = h.drainer.trackRequests(server.Handler)
	g.Go(func() error { return h.serveHTTP(server, l) })
	h.serveGRPC(gctx, g, frontend)
	if err := h.serveMetrics(gctx, g); err != nil {
		stop()
		return errors.Join(err, server.Close(), g.Wait())
	}
	serving()
	select {
	case <-ctx.Done():
	case <-gctx.Done():
	}
	err = h.drain(context.WithoutCancel(ctx), gctx, frontend, server)
	stop()
	return errors.Join(err, g.Wait())
}

func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
