package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/app"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/ops"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/agentsvc/surface/webhook"
	"stoa/tenancy"
)

// newTenancyOptions completes the administration of apps with what the config room knows of documents.
func newTenancyOptions(shared app.Dependencies, stale time.Duration) tenancy.Options {
	return tenancy.Options{
		CheckConfig: newConfigChecker(shared), Guard: shared.FolderGuard, DecodeConfig: config.Decode, MaskConfig: config.MaskSecrets, RestoreMasked: config.RestoreSecrets, FlattenConfig: config.LeafValues, Log: shared.Log, CheckPlan: newPlanCheck(shared.Billing),
		EraseApp: func(ctx context.Context, a tenancy.App) error {
			return eraseApp(ctx, shared, stale, a)
		},
		RewrapSealed: func(ctx context.Context, keys *tenancy.Keyring) error {
			return store.RewrapSealedKeys(ctx, shared.DB, keys)
		},
	}
}

// newSurfaceServer is the door with every dialect behind it. Where no public URL is set, cards show the address it listens on.
func (h *server) newSurfaceServer(listens net.Addr) (*surface.Server, error) {
	cors := config.DefaultConfig("scripted", "").Server.CORS
	metrics := config.Metrics{}
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		cors, metrics = cfg.Server.CORS, cfg.Observability.Metrics
	}
	o := surface.Options{
		Verifier: h.verifier, Keys: h.apiKeys, Auth: h.authConfig(), AdminSecret: h.secrets.adminSecret, Apps: h.apps, Router: h.router, Runtimes: h.runtimes,
		PublicURL: cmp.Or(h.settings.publicURL, h.localURL(listens)), Hosts: h.hostNames(listens), TrustedProxies: h.settings.trustedProxies, CORS: cors, GRPC: h.grpcCardOptions(),
		OnLargeBodies: h.gcTuner.newBytesTracker(), BodyRate: int64(h.settings.appBodyRateMiB) << 20, ResponseMemory: capacity.NewPool(int64(h.settings.answerMemoryMiB)<<20, h.gcTuner.newBytesTracker()),
		Tracer: h.tracer, Log: h.log,
	}
	if h.metrics != nil {
		o.Observe, o.OnRefused = h.metrics.recordRequest, h.metrics.recordRefusal
	}
	if err := h.configureCardSigning(&o); err != nil {
		return nil, err
	}
	server, err := surface.New(o, h.newRoutes(metrics)...)
	if err != nil {
		return nil, err
	}
	return server, h.registerGauges(server)
}

// hostNames are the names and addresses under which the process is reached: those it listens at, over gRPC as well, and where it listens
// at every address, the name of the machine.
func (h *server) hostNames(listens net.Addr) []string {
	all := []string{h.settings.host, listens.String(), h.settings.publicGRPC}
	if at, ok := listens.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			all = append(all, name)
		}
	}
	return slices.DeleteFunc(all, func(host string) bool { return host == "" })
}

// serveMetrics serves the metrics on a listener of their own, if they are to have one.
func (h *server) serveMetrics(ctx context.Context, g *errgroup.Group) error {
	if h.settings.metricsAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.settings.metricsAddr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	server := &http.Server{Handler: h.newMetricsHandler(), ReadHeaderTimeout: 10 * time.Second}
	g.Go(func() error { return ignoreClosed(server.Serve(l)) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}

// announceServing tells a human where the server is and where its secret lies.
func (h *server) announceServing(c *console, addr net.Addr) {
	h.log.Info("serving", "role", h.settings.role, "address", addr.String(), "grpc", h.grpcAddress(), "database", string(h.db.Engine()), "version", version)
	if h.defaultApp.cfg.Load() != nil && !h.authConfig().Enabled && !h.settings.isLoopback() && h.settings.role != roleWorker {
		h.log.Warn("the app default is open: whoever reaches this address may do everything in it; server.auth in its configuration or --host 127.0.0.1 keeps others out")
	}
	written := fmt.Sprintf("Stoa %s serves at %s", version, h.localURL(addr))
	if at := h.grpcAddress(); at != "" {
		written += "\ngRPC is at " + at + "."
	}
	if h.secrets.path != "" {
		written += "\nThe admin secret lies in " + h.secrets.path + "; stoa app finds it there."
	}
	c.printStatus("%s", written)
}

// reachableAddress is the host and port at which this machine reaches a listener.
func reachableAddress(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// newRoutes is the table of surfaces. A worker answers only what belongs to no app: how it is, and what it counts.
func (h *server) newRoutes(metrics config.Metrics) []surface.Route {
	o := ops.Options{Apps: h.apps, Issuer: h.issuer, Keys: h.apiKeys, DB: h.db, InMemoryDB: h.deps.InMemory.DB, DeadLetters: h.deadLetters, RestartKeys: h.defaultApp.keysAwaitingRestart, Billing: h.deps.Billing, MetricsPath: metrics.Endpoint, MetricsToken: h.secrets.metricsToken}
	if metrics.Enabled {
		o.Metrics = h.metrics.newHandler()
	}
	all := slices.Concat(
		ext.Routes(ext.Options{Version: version, Role: h.settings.role, Database: h.db.Ping, Ready: h.drainer.checkReady, JWKS: h.issuer.JWKS, CardKeys: h.cardJWKS, Auth: h.authConfig()}),
		v1.Routes(v1.Options{}),
		a2a.Routes(a2a.Options{}),
		openai.Routes(openai.Options{}),
		mcp.Routes(mcp.Options{}),
		ops.Routes(o),
		webhook.Routes(h.webhookOptions()),
	)
	if h.settings.role == roleWorker {
		all = slices.DeleteFunc(all, func(r surface.Route) bool { return r.Kind != surface.Open })
	}
	return openapi.WithDocument(version, all)
}

// newMetricsHandler serves the metrics to whoever knows their token, or to everyone if there is none.
func (h *server) newMetricsHandler() http.Handler {
	next := h.metrics.newHandler()
	want := sha256.Sum256([]byte("Bearer " + h.secrets.metricsToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if h.secrets.metricsToken != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "the metrics need their token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
