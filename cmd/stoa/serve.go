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
	mine, err := loadOwn(cmd.Config)
	if err != nil {
		return err
	}
	s, err := resolve(cmd.flags, mine.cfg.Load())
	if err != nil {
		return &exit{code: exitUsage, cause: err}
	}
	log, closeLog, err := newLogger(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	slog.SetDefault(log)
	h, err := openHouse(ctx, s, mine, log)
	if err != nil {
		return err
	}
	return errors.Join(h.listen(ctx, c), h.close())
}

// house is the whole of a serving process, from the ground up.
type house struct {
	settings settings
	own      *own
	log      *slog.Logger
	secrets  secrets
	keys     *tenancy.Keyring
	db       *db.DB
	redis    *redis.Client
	bus      *signal.Bus
	apps     *tenancy.Service
	issuer   *authz.Issuer
	verifier *authz.Verifier
	registry *authz.Registry
	apiKeys  *authz.APIKeys
	pool     *queue.Pool
	passing  *queue.Pool  // of the tasks in memory
	quota    *store.Quota // of what apps store in the database
	dead     *task.DeadLetters
	shared   app.House
	live     *tenancy.Live[*app.App]
	router   *tenancy.Router
	meters   *meters      // nil = nothing is counted
	tracer   trace.Tracer // nil = nothing is recorded
	leave    *leave
	dialled  net.Listener    // of gRPC, nil = none
	calls    *a2agrpc.Server // over gRPC
	garbage  *gcTuner
	clients  *connections
	tls      *tls.Config // nil = nothing is encrypted here
	exports  *billing.Exporter
	couriers []*notify.Courier
	cardKeys func() []byte // what cards are signed with, nil = they are not
	closers  []func() error
}

// The roles of a process: it serves requests and works, or does only one of both.
const (
	roleAll    = "all"
	roleWeb    = "web"
	roleWorker = "worker"
)

// openHouse brings everything up but the listeners. What it opened before an error it closes again.
func openHouse(ctx context.Context, s settings, mine *own, log *slog.Logger) (h *house, err error) {
	h = &house{settings: s, own: mine, log: log, leave: newLeave(), garbage: newGCTuner()}
	h.clients = newConnections(s.maxConnections, s.maxAddressConnections, s.proxies)
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
			h = nil
		}
	}()
	for _, open := range []func(context.Context) error{h.openTLS, h.openTracing, h.openDatabase, h.openTenancy, h.openIdentity, h.openQueue, h.openNotify, h.openLive, h.openGRPC} {
		if err := open(ctx); err != nil {
			return h, err
		}
	}
	return h, nil
}

func (h *house) closing(f func() error) { h.closers = append(h.closers, f) }

// close undoes what was opened, the last first.
func (h *house) close() error {
	var errs []error
	for i := len(h.closers) - 1; i >= 0; i-- {
		errs = append(errs, h.closers[i]())
	}
	return errors.Join(errs...)
}

func (h *house) openDatabase(ctx context.Context) (err error) {
	if h.db, err = db.Open(ctx, h.settings.database, db.Options{Grouped: h.grouped, Log: h.log}); err != nil {
		return err
	}
	h.closing(h.db.Close)
	if h.settings.role != roleAll && h.db.Engine() == db.SQLite {
		return fmt.Errorf("--role %s needs PostgreSQL: the one process on a SQLite file does everything", h.settings.role)
	}
	if h.secrets, err = loadSecrets(h.db.Engine(), h.settings.database); err != nil {
		return err
	}
	if h.keys, err = h.secrets.keyring(); err != nil {
		return err
	}
	if err := h.openMeters(ctx); err != nil {
		return err
	}
	if err := migrate(ctx, h.db, h.settings.migrateDatabase); err != nil {
		return err
	}
	h.boundStored()
	if h.shared.Volatile, err = app.OpenVolatile(ctx, h.db, app.VolatileOptions{Log: h.log}); err != nil {
		return err
	}
	h.closing(h.shared.Volatile.Close)
	return nil
}

func (h *house) openTenancy(ctx context.Context) (err error) {
	var link signal.Link
	switch {
	case h.settings.redis != "":
		o, err := redis.ParseURL(h.settings.redis)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		redis.SetLogger(redisLog{h.log})
		h.redis = redis.NewClient(o)
		if h.tracer != nil {
			h.redis.AddHook(redisSpans{})
		}
		h.closing(h.redis.Close)
		link = signal.Redis(h.redis, "stoa")
	case h.db.Engine() == db.Postgres:
		link = signal.Postgres(h.db.URL())
	}
	h.bus = signal.New(link, h.log)
	if h.own.cfg.Load() == nil && h.db.Engine() == db.SQLite {
		if err := h.own.builtin(h.settings.loopback()); err != nil {
			return err
		}
	}
	helper, err := os.Executable()
	if err != nil {
		return err
	}
	guard, err := h.guard()
	if err != nil {
		return err
	}
	h.shared = app.House{
		DB: h.db, Volatile: h.shared.Volatile, Keys: h.keys, Hub: task.NewHub(h.bus), Databases: &app.Databases{},
		Retry:      queue.Retry{Max: h.settings.maxRetries, Initial: h.settings.initialDelay, Limit: h.settings.maxDelay},
		LongestRun: h.settings.longestRun, Memory: capacity.NewPool(int64(h.settings.answerMemory)<<20, h.garbage.watch()), MaxAnswer: h.settings.maxAnswer << 20,
		Outside: egress.New(egress.Options{}), Inside: egress.New(egress.Options{PrivateNetwork: true}),
		Guard: guard, Sandbox: sandbox.NewHost(helper, sandbox.Options{User: h.settings.sandboxUser, Programs: h.settings.sandboxPrograms, Log: h.log}), Judged: h.judged, Watch: h.watch(), Log: h.log,
	}
	if err := h.openCounts(); err != nil {
		return err
	}
	h.closing(func() error { h.shared.Outside.Close(); h.shared.Inside.Close(); return nil })
	if err := h.openBilling(ctx); err != nil {
		return err
	}
	if err := h.openExports(); err != nil {
		return err
	}
	o := tenancyOptions(h.shared, h.settings.stale)
	o.Reserved, o.Reach = h.reserved, h.reach
	h.apps = tenancy.New(h.db, h.keys, h.bus, o)
	return nil
}

func (h *house) openQueue(ctx context.Context) error {
	h.dead = task.NewDeadLetters(h.db, h.shared.Hub, func() { h.pool.Wake() }, task.DeadOptions{Unhold: h.unhold})
	o := queue.Options{
		Workers: h.settings.workers, MaxInflight: h.settings.maxInflight, AppInflight: h.settings.appInflight, Stale: h.settings.stale, Retry: h.shared.Retry, GiveUp: h.giveUp(h.dead),
		Config: h.own.fingerprint, Idle: h.settings.role == roleWeb, Bus: h.bus, Calls: h.shared.Hub, Log: h.log,
	}
	h.pool = queue.New(store.NewRuns(h.db), h.run, o)
	// No other process reaches the tasks in memory, to work them or to be told of them.
	o.GiveUp = h.giveUp(task.NewDeadLetters(h.shared.Volatile.DB, h.shared.Hub, func() { h.passing.Wake() }, task.DeadOptions{Unhold: h.unhold}))
	o.Idle, o.Bus = false, nil
	h.passing = queue.New(store.NewRuns(h.shared.Volatile.DB), func(ctx context.Context, run store.Run) error {
		run.Volatile = true
		return h.run(ctx, run)
	}, o)
	h.shared.Workers, h.shared.Volatile.Workers = h.pool, h.passing
	return errors.Join(h.pool.Open(ctx, h.db.Engine() == db.SQLite), h.passing.Open(ctx, true))
}

// pools are this process's workers.
func (h *house) pools() []*queue.Pool { return []*queue.Pool{h.pool, h.passing} }

// inflight counts the runs at work in this process.
func (h *house) inflight() (n int) {
	for _, p := range h.pools() {
		n += p.Inflight()
	}
	return n
}

func (h *house) openLive(ctx context.Context) (err error) {
	h.live = tenancy.NewLive(h.apps, h.own.build(h.shared), h.liveOptions())
	h.closing(func() error { h.live.Close(); return nil })
	h.shared.Hub.CheckTenants(h.live.Ended)
	if h.router, err = tenancy.NewRouter(h.apps, h.settings.appHosts); err != nil {
		return err
	}
	h.closing(func() error { h.router.Close(); return nil })
	if cfg := h.own.cfg.Load(); cfg != nil {
		if err := h.own.try(cfg, h.shared); err != nil {
			return err
		}
		if err := h.own.announce(h.apps); err != nil {
			return err
		}
	}
	return h.apps.NoteDefault(ctx)
}

// run hands a run to the app it belongs to, at the revision it began with or where that is no longer kept at the
// current one.
func (h *house) run(ctx context.Context, run store.Run) error {
	began := time.Now()
	a, of, release, err := h.live.At(ctx, run.Tenant, run.Revision)
	if errors.Is(err, tenancy.ErrNotFound) {
		a, of, release, err = h.live.Acquire(ctx, run.Tenant)
	}
	switch {
	case errors.Is(err, tenancy.ErrSuspended), errors.Is(err, tenancy.ErrNotFound):
		h.shared.Hub.End(run.Tenant, err) // whoever was let in just before waits for nothing
		return queue.ErrPostponed
	case err != nil:
		return fmt.Errorf("load app %s at revision %d: %w", run.Tenant, run.Revision, err)
	}
	defer release()
	return h.work(ctx, began, of, a, run)
}

// appChanged ends the runs of an app that no longer answers, and whoever listens to them. What rested while an app was
// suspended goes on when it answers again.
func (h *house) appChanged(a tenancy.App) {
	switch a.Status {
	case tenancy.Active:
		for _, p := range h.pools() {
			p.Resume(a.ID)
		}
		for _, c := range h.couriers {
			c.Resume(context.Background(), a.ID)
		}
		return
	case tenancy.Suspended:
		h.shared.Hub.End(a.ID, tenancy.ErrSuspended)
	default:
		h.shared.Hub.End(a.ID, tenancy.ErrNotFound)
	}
	for _, p := range h.pools() {
		p.StopTenant(a.ID)
	}
	for _, c := range h.couriers {
		c.Stop(a.ID)
	}
	if a.Status == tenancy.Suspended {
		return
	}
	if err := h.shared.Volatile.Forget(context.Background(), a.ID); err != nil {
		h.log.Error("what a deleted app has in memory could not be deleted", "app", a.Name, "error", err)
	}
}

// listen serves at the settings' address until ctx ends.
func (h *house) listen(ctx context.Context, c *console) error {
	l, err := listenTCP(h.settings.host, h.settings.port)
	if err != nil {
		return fmt.Errorf("listen: %w (another --port is the cure if this one is taken)", err)
	}
	return h.serve(ctx, l, func() { h.greet(c, l.Addr()) })
}

// serve works until ctx ends, then drains. It calls serving when requests are answered.
func (h *house) serve(ctx context.Context, l net.Listener, serving func()) error {
	l = h.clients.listen(l)
	front, err := h.front(l.Addr())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(back)
	for _, run := range []func(context.Context) error{
		h.bus.Run, h.apps.Run, h.issuer.Run, h.registry.Run, h.apiKeys.Run, h.live.Run, h.pool.Run, h.passing.Run, h.quota.Run,
		h.shared.Billing.Run, h.keepBooks, h.shared.Volatile.Run, newSweeper(h).run, newInspector(h).run, h.notify, h.keepTime, h.garbage.Run,
	} {
		g.Go(func() error { return ignoreCancelled(run(gctx)) })
	}
	if h.settings.watch && h.own.path != "" {
		g.Go(func() error { return ignoreCancelled(h.own.watch(gctx, h.apps, h.shared, h.log)) })
	}
	server := front.HTTP()
	server.Handler = h.leave.watch(server.Handler)
	g.Go(func() error { return h.serveHTTP(server, l) })
	h.serveGRPC(gctx, g, front)
	if err := h.serveMetrics(gctx, g); err != nil {
		stop()
		return errors.Join(err, server.Close(), g.Wait())
	}
	serving()
	select {
	case <-ctx.Done():
	case <-gctx.Done():
	}
	err = h.drain(context.WithoutCancel(ctx), gctx, front, server)
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
