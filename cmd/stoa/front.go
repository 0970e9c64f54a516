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

// tenancyOptions completes the administration of apps with what the config room knows of documents.
func tenancyOptions(shared app.House, stale time.Duration) tenancy.Options {
	return tenancy.Options{
		Check: check(shared), Guard: shared.Guard, Decode: config.Decode, Mask: config.Mask, Restore: config.Restore, Leaves: config.Leaves, Log: shared.Log, Plan: knownPlan(shared.Billing),
		Erase: func(ctx context.Context, a tenancy.App) error {
			return erase(ctx, shared, stale, a)
		},
		Renew: func(ctx context.Context, keys *tenancy.Keyring) error {
			return store.RenewSealed(ctx, shared.DB, keys)
		},
	}
}

// front is the door with every dialect behind it. Where no public URL is set, cards show the address it listens on.
func (h *house) front(listens net.Addr) (*surface.Server, error) {
	cors := config.Default("scripted", "").Server.CORS
	metrics := config.Metrics{}
	if cfg := h.own.cfg.Load(); cfg != nil {
		cors, metrics = cfg.Server.CORS, cfg.Observability.Metrics
	}
	o := surface.Options{
		Verifier: h.verifier, Keys: h.apiKeys, Auth: h.auth(), AdminSecret: h.secrets.admin, Apps: h.apps, Router: h.router, Live: h.live,
		PublicURL: cmp.Or(h.settings.publicURL, h.site(listens)), Hosts: h.hosts(listens), TrustedProxies: h.settings.proxies, CORS: cors, GRPC: h.callable(),
		Large: h.garbage.watch(), BodyRate: int64(h.settings.appBodyRate) << 20, Answers: capacity.NewPool(int64(h.settings.answerMemory)<<20, h.garbage.watch()),
		Tracer: h.tracer, Log: h.log,
	}
	if h.meters != nil {
		o.Observe, o.Refused = h.meters.observe, h.meters.refuse
	}
	if err := h.signCards(&o); err != nil {
		return nil, err
	}
	server, err := surface.New(o, h.routes(metrics)...)
	if err != nil {
		return nil, err
	}
	return server, h.gauges(server)
}

// hosts are the names and addresses under which the process is reached: those it listens at, over gRPC as well, and where it listens
// at every address, the name of the machine.
func (h *house) hosts(listens net.Addr) []string {
	all := []string{h.settings.host, listens.String(), h.settings.publicGRPC}
	if at, ok := listens.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			all = append(all, name)
		}
	}
	return slices.DeleteFunc(all, func(host string) bool { return host == "" })
}

// serveMetrics serves the metrics on a listener of their own, if they are to have one.
func (h *house) serveMetrics(ctx context.Context, g *errgroup.Group) error {
	if h.settings.metricsAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.settings.metricsAddr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	server := &http.Server{Handler: h.guardedMetrics(), ReadHeaderTimeout: 10 * time.Second}
	g.Go(func() error { return ignoreClosed(server.Serve(l)) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}

// greet tells a human where the server is and where its secret lies.
func (h *house) greet(c *console, addr net.Addr) {
	h.log.Info("serving", "role", h.settings.role, "address", addr.String(), "grpc", h.grpcAddress(), "database", string(h.db.Engine()), "version", version)
	if h.own.cfg.Load() != nil && !h.auth().Enabled && !h.settings.loopback() && h.settings.role != roleWorker {
		h.log.Warn("the app default is open: whoever reaches this address may do everything in it; server.auth in its configuration or --host 127.0.0.1 keeps others out")
	}
	said := fmt.Sprintf("Stoa %s serves at %s", version, h.site(addr))
	if at := h.grpcAddress(); at != "" {
		said += "\ngRPC is at " + at + "."
	}
	if h.secrets.file != "" {
		said += "\nThe admin secret lies in " + h.secrets.file + "; stoa app finds it there."
	}
	c.say("%s", said)
}

// reachable is the host and port at which this machine reaches a listener.
func reachable(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// routes is the table of surfaces. A worker answers only what belongs to no app: how it is, and what it counts.
func (h *house) routes(metrics config.Metrics) []surface.Route {
	o := ops.Options{Apps: h.apps, Issuer: h.issuer, Keys: h.apiKeys, DB: h.db, Memory: h.shared.Volatile.DB, Dead: h.dead, Awaits: h.own.awaits, Billing: h.shared.Billing, MetricsPath: metrics.Endpoint, MetricsToken: h.secrets.metrics}
	if metrics.Enabled {
		o.Metrics = h.meters.handler()
	}
	all := slices.Concat(
		ext.Routes(ext.Options{Version: version, Role: h.settings.role, Database: h.db.Ping, Ready: h.leave.ready, JWKS: h.issuer.JWKS, CardKeys: h.cardKeys, Auth: h.auth()}),
		v1.Routes(v1.Options{}),
		a2a.Routes(a2a.Options{}),
		openai.Routes(openai.Options{}),
		mcp.Routes(mcp.Options{}),
		ops.Routes(o),
		webhook.Routes(h.webhooks()),
	)
	if h.settings.role == roleWorker {
		all = slices.DeleteFunc(all, func(r surface.Route) bool { return r.Kind != surface.Open })
	}
	return openapi.With(version, all)
}

// guardedMetrics serves the metrics to whoever knows their token, or to everyone if there is none.
func (h *house) guardedMetrics() http.Handler {
	next := h.meters.handler()
	want := sha256.Sum256([]byte("Bearer " + h.secrets.metrics))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if h.secrets.metrics != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "the metrics need their token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
