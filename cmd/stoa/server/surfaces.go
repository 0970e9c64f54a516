package server

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

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/ops"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/agentsvc/surface/webhook"
)

// NewFrontend returns the HTTP server with the routes of every protocol. listens is the address of the listener: agent
// cards show it if no public URL is set.
func (h *Server) NewFrontend(listens net.Addr) (*surface.Server, error) {
	// Without an operator's file (PostgreSQL) the default CORS rules apply.
	cors := config.DefaultConfig("scripted", "").Server.CORS
	metrics := config.Metrics{}
	if cfg := h.DefaultApp.Config(); cfg != nil {
		cors, metrics = cfg.Server.CORS, cfg.Observability.Metrics
	}
	// Hooks and pools of the whole process: every protocol shares the same verifier, limits and memory.
	o := surface.Options{
		Verifier: h.identity.verifier, Keys: h.identity.apiKeys, Auth: h.DefaultApp.authConfig(), AdminSecret: h.Storage.secrets.adminSecret, Apps: h.Apps, Router: h.router, Runtimes: h.Execution.Runtimes,
		PublicURL: cmp.Or(h.Settings.Cards.PublicURL, h.network.localURL(listens)), Hosts: h.hostNames(listens), TrustedProxies: h.Settings.Listen.TrustedProxies, CORS: cors, GRPC: h.grpcCardOptions(),
		OnLargeBodies: h.network.gcTuner.newBytesTracker(), BodyRate: int64(h.Settings.Bounds.AppBodyRateMiB) << 20, ResponseMemory: capacity.NewPool(int64(h.Settings.Bounds.AnswerMemoryMiB)<<20, h.network.gcTuner.newBytesTracker()),
		Tracer: h.telemetry.tracer, Log: h.Log,
	}
	// Without metrics the hooks stay nil and cost nothing.
	if m := h.telemetry.metrics; m != nil {
		o.Observe, o.OnRefused = m.RecordRequest, m.RecordRefusal
	}
	signer, err := newCardSigner(h.Settings, h.Storage.keyring, o.PublicURL)
	if err != nil {
		return nil, err
	}
	var cardKeys func() []byte
	if signer != nil {
		o.SignCard = func(card []byte) (surface.CardSignature, error) { return signCard(signer, card) }
		cardKeys = signer.JWKS
	}
	return surface.New(o, h.newRoutes(metrics, cardKeys)...)
}

// hostNames returns the names and addresses under which clients reach the process: the configured host, the
// listener's address, the public gRPC address, and for a listener on all addresses the machine's name. The surface
// compares the Host and Origin headers with them to refuse requests of foreign web pages.
func (h *Server) hostNames(listens net.Addr) []string {
	all := []string{h.Settings.Listen.Host, listens.String(), h.Settings.Cards.PublicGRPC}
	// A listener on all addresses is also reached by the machine's name.
	if at, ok := listens.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			all = append(all, name)
		}
	}
	return slices.DeleteFunc(all, func(host string) bool { return host == "" })
}

// serveMetrics serves the metrics on a listener of their own (--metrics-addr) until ctx ends, if one is configured.
func (h *Server) serveMetrics(ctx context.Context, g *errgroup.Group) error {
	if h.Settings.Listen.MetricsAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.Settings.Listen.MetricsAddr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	// Without a bound for the header a client could keep a connection open for nothing.
	server := &http.Server{Handler: h.NewMetricsHandler(), ReadHeaderTimeout: 10 * time.Second}
	g.Go(func() error { return ignoreClosed(server.Serve(l)) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
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
// metrics is the endpoint of the main listener. cardKeys returns the public keys that verify signed agent cards; nil =
// cards are not signed. A worker serves only the routes that belong to no tenant: health, metrics and keys.
func (h *Server) newRoutes(metrics config.Metrics, cardKeys func() []byte) []surface.Route {
	o := ops.Options{Apps: h.Apps, Issuer: h.identity.issuer, Keys: h.identity.apiKeys, DB: h.Storage.DB, InMemoryDB: h.Dependencies.InMemory.DB, DeadLetters: h.Execution.deadLetters, RestartKeys: h.DefaultApp.keysAwaitingRestart, Billing: h.Dependencies.Billing, MetricsPath: metrics.Endpoint, MetricsToken: h.Storage.secrets.metricsToken}
	if metrics.Enabled {
		o.Metrics = h.telemetry.metrics.Handler()
	}
	deliveries := webhook.Options{DB: h.Storage.DB}
	if m := h.telemetry.metrics; m != nil {
		deliveries.OnDelivery = m.RecordDelivery
	}
	// The table of surfaces: one line for each protocol.
	all := slices.Concat(
		ext.Routes(ext.Options{Version: h.Version, Role: h.Settings.Role, Database: h.Storage.DB.Ping, Ready: h.network.drainer.checkReady, JWKS: h.identity.issuer.JWKS, CardKeys: cardKeys, Auth: h.DefaultApp.authConfig()}),
		v1.Routes(v1.Options{}),
		a2a.Routes(a2a.Options{}),
		openai.Routes(openai.Options{}),
		mcp.Routes(mcp.Options{}),
		ops.Routes(o),
		webhook.Routes(deliveries),
	)
	if h.Settings.Role == roleWorker {
		all = slices.DeleteFunc(all, func(r surface.Route) bool { return r.Kind != surface.Open })
	}
	return openapi.WithDocument(h.Version, all)
}

// NewMetricsHandler returns the metrics for the listener of --metrics-addr, behind their bearer token, or without
// authentication if no token is set. Comparing hashes takes the same time for every wrong token, whatever its length.
// The main listener has a route of its own (package ops).
func (h *Server) NewMetricsHandler() http.Handler {
	next := h.telemetry.metrics.Handler()
	want := sha256.Sum256([]byte("Bearer " + h.Storage.secrets.metricsToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if h.Storage.secrets.metricsToken != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "the metrics need their token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
