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

// newTenancyOptions returns the callbacks with which the tenancy service uses the configuration, billing and storage
// packages. Package tenancy must not import them (see plan_test.go), so that they are given to it as functions. stale
// is the age of a heartbeat at which a worker counts as dead.
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

// newSurfaceServer returns the HTTP server with the routes of every protocol, and registers the gauges. listens is
// the address of the listener: agent cards show it if no public URL is set.
func (h *server) newSurfaceServer(listens net.Addr) (*surface.Server, error) {
	// Without an operator's file (PostgreSQL) the default CORS rules apply.
	cors := config.DefaultConfig("scripted", "").Server.CORS
	metrics := config.Metrics{}
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		cors, metrics = cfg.Server.CORS, cfg.Observability.Metrics
	}
	// Hooks and pools of the whole process: every protocol shares the same verifier, limits and memory.
	o := surface.Options{
		Verifier: h.verifier, Keys: h.apiKeys, Auth: h.authConfig(), AdminSecret: h.secrets.adminSecret, Apps: h.apps, Router: h.router, Runtimes: h.runtimes,
		PublicURL: cmp.Or(h.settings.publicURL, h.localURL(listens)), Hosts: h.hostNames(listens), TrustedProxies: h.settings.trustedProxies, CORS: cors, GRPC: h.grpcCardOptions(),
		OnLargeBodies: h.gcTuner.newBytesTracker(), BodyRate: int64(h.settings.appBodyRateMiB) << 20, ResponseMemory: capacity.NewPool(int64(h.settings.answerMemoryMiB)<<20, h.gcTuner.newBytesTracker()),
		Tracer: h.tracer, Log: h.log,
	}
	// Without metrics the hooks stay nil and cost nothing.
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

// hostNames returns the names and addresses under which clients reach the process: the configured host, the
// listener's address, the public gRPC address, and for a listener on all addresses the machine's name. The surface
// compares the Host and Origin headers with them to refuse requests of foreign web pages.
func (h *server) hostNames(listens net.Addr) []string {
	all := []string{h.settings.host, listens.String(), h.settings.publicGRPC}
	// A listener on all addresses is also reached by the machine's name.
	if at, ok := listens.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			all = append(all, name)
		}
	}
	return slices.DeleteFunc(all, func(host string) bool { return host == "" })
}

// serveMetrics serves the metrics on a listener of their own (--metrics-addr) until ctx ends, if one is configured.
func (h *server) serveMetrics(ctx context.Context, g *errgroup.Group) error {
	if h.settings.metricsAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.settings.metricsAddr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	// Without a bound for the header a client could keep a connection open for nothing.
	server := &http.Server{Handler: h.newMetricsHandler(), ReadHeaderTimeout: 10 * time.Second}
	g.Go(func() error { return ignoreClosed(server.Serve(l)) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}

// announceServing logs and prints where the server is reached and in which file its admin secret is. Tools wait for
// the line "serves at" (see stoatest.Process). It warns if the default app needs no credentials and the address is
// not loopback.
func (h *server) announceServing(c *console, addr net.Addr) {
	h.log.Info("serving", "role", h.settings.role, "address", addr.String(), "grpc", h.grpcAddress(), "database", string(h.db.Engine()), "version", version)
	if h.defaultApp.cfg.Load() != nil && !h.authConfig().Enabled && !h.settings.isLoopback() && h.settings.role != roleWorker {
		h.log.Warn("the app default is open: everyone who reaches this address may do everything in it; server.auth in its configuration or --host 127.0.0.1 keeps others out")
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

// reachableAddress returns the host and port at which this machine reaches a listener; localhost for one on all
// addresses.
func reachableAddress(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// newRoutes returns the routes of all protocols. To add a protocol, write a package with a Routes function that
// returns [surface.Route] values (their handlers decode, call and encode), add it here, to the layers of plan_test.go
// and to the descriptions of package openapi. Authentication, limits, error mapping and tracing follow from the
// fields of Route. TestIsolation and TestMatrix fail until they have a row for each new route.
//
// A worker serves only the routes that belong to no tenant: health, metrics and keys.
func (h *server) newRoutes(metrics config.Metrics) []surface.Route {
	o := ops.Options{Apps: h.apps, Issuer: h.issuer, Keys: h.apiKeys, DB: h.db, InMemoryDB: h.deps.InMemory.DB, DeadLetters: h.deadLetters, RestartKeys: h.defaultApp.keysAwaitingRestart, Billing: h.deps.Billing, MetricsPath: metrics.Endpoint, MetricsToken: h.secrets.metricsToken}
	if metrics.Enabled {
		o.Metrics = h.metrics.newHandler()
	}
	// The table of surfaces: one line for each protocol.
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

// newMetricsHandler returns the metrics for the listener of --metrics-addr, behind their bearer token, or without
// authentication if no token is set. Comparing hashes takes the same time for every wrong token, whatever its length.
// The main listener has a route of its own (package ops).
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
