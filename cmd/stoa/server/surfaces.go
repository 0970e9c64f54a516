package server

import (
	"context"
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
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/documents"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/tenantapi"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/agentsvc/surface/webhook"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/transfer"
	"stoa/web"
)

// NewFrontend returns the HTTP server with the routes of every protocol. listens is the address of the listener: agent
// cards show it if no public URL is set.
func (s *Server) NewFrontend(listens net.Addr) (*surface.Server, error) {
	c, err := s.newCards(listens)
	if err != nil {
		return nil, err
	}
	return s.newFrontend(listens, c)
}

// newFrontend is NewFrontend with the builder of the cards.
func (s *Server) newFrontend(listens net.Addr, c cards) (*surface.Server, error) {
	// Without an operator's file (PostgreSQL) the default CORS rules apply.
	cors := config.DefaultConfig(nil).Server.CORS
	metrics := config.Metrics{}
	if cfg := s.DefaultApp.Config(); cfg != nil {
		cors, metrics = cfg.Server.CORS, cfg.Observability.Metrics
	}
	// Hooks and pools of the whole process: every protocol shares the same verifier, limits and memory.
	o := surface.Options{
		Authentication: surface.Authentication{
			Verifier: s.identity.verifier, Keys: s.identity.apiKeys, Auth: s.DefaultApp.authConfig(), AdminSecret: s.Storage.secrets.adminSecret,
			AdminAttempts: s.identity.adminAttempts, OnFailedCredential: s.identity.failures.Count,
		},
		Idempotency: idempotency.New(s.Storage.DB, s.Log), Router: s.router, Runtimes: s.Execution.Runtimes,
		PublicURL: s.publicURL(listens), TrustedProxies: s.Settings.Listen.TrustedProxies, Browsers: surface.Browsers{Hosts: s.hostNames(listens), CORS: cors},
		OnLargeBodies: s.network.gcTuner.newBytesTracker(), BodyRate: int64(s.Settings.Bounds.AppBodyRateMiB) << 20, ResponseMemory: capacity.NewPool(int64(s.Settings.Bounds.AnswerMemoryMiB)<<20, s.network.gcTuner.newBytesTracker()),
		Observe: s.telemetry.recordRequest, Tracer: s.telemetry.tracer, Log: s.Log,
	}
	// Without metrics the hook stays nil and costs nothing.
	if m := s.telemetry.metrics; m != nil {
		o.OnRefused = m.RecordRefusal
	}
	if s.Settings.servesConsole() {
		o.FindHomePage = newConsoleOptions(s.DefaultApp.authConfig(), s.consoleListener).FindHomePage
	}
	pages, err := newConsole(s.Settings, s.DefaultApp.authConfig(), s.consoleListener)
	if err != nil {
		return nil, err
	}
	// The pages are no API, so that the OpenAPI document does not have them.
	frontend, err := surface.New(o, append(s.newProtocolRoutes(metrics, c), pages...)...)
	if err != nil {
		return nil, settingError{err} // the public URL or the admin secret
	}
	return frontend, nil
}

// hostNames returns the names and addresses under which clients reach the process: the configured host, the
// listener's address, the public gRPC address, and for a listener on all addresses the machine's name. The surface
// compares the Host and Origin headers with them to refuse requests of foreign web pages.
func (s *Server) hostNames(listens net.Addr) []string {
	all := []string{s.Settings.Listen.Host, listens.String(), s.Settings.Cards.PublicGRPC}
	if s.consoleListener != nil {
		all = append(all, s.consoleListener.Addr().String())
	}
	// A listener on all addresses is also reached by the machine's name.
	if at, ok := listens.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			all = append(all, name)
		}
	}
	return slices.DeleteFunc(all, func(host string) bool { return host == "" })
}

// serveMetrics serves the metrics on a listener of their own (--metrics-addr) until ctx ends, if one is configured.
func (s *Server) serveMetrics(ctx context.Context, g *errgroup.Group) error {
	if s.Settings.Listen.MetricsAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.Settings.Listen.MetricsAddr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w (%s)", err, s.Settings.Listen.metricsAddress().Advise(err))
	}
	// Without a bound for the header a client could keep a connection open for nothing.
	server := &http.Server{Handler: s.NewMetricsHandler(), ReadHeaderTimeout: 10 * time.Second}
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

// newProtocolRoutes returns the routes of all protocols. It has the table in which a new protocol gets its line; package
// surface says what else to add. A2A over gRPC has no line, because it has a listener of its own (grpc.go).
//
// metrics is the endpoint of the main listener. A worker serves only the routes that belong to no tenant: health, metrics
// and keys.
func (s *Server) newProtocolRoutes(metrics config.Metrics, c cards) []surface.Route {
	o := ext.Options{
		Version: s.Version, Role: s.Settings.Role, Database: s.Storage.DB.Ping, Ready: s.checkReady, JWKS: s.identity.issuer.JWKS, CardKeys: c.keys, Auth: s.DefaultApp.authConfig(), Studio: newStudio(s),
		Cards: c.Builder, MetricsPath: metrics.Endpoint, MetricsToken: s.Storage.secrets.metricsToken,
	}
	if metrics.Enabled {
		o.Metrics = s.telemetry.metrics.Handler()
	}
	deliveries := webhook.Options{DB: s.Storage.DB, Log: s.Log}
	if m := s.telemetry.metrics; m != nil {
		deliveries.OnDelivery = m.RecordDelivery
	}
	// The table of protocols: one line for each.
	all := slices.Concat(
		ext.Routes(o),
		v1.Routes(v1.Options{}),
		a2a.Routes(a2a.Options{Cards: c.Builder}),
		openai.Routes(openai.Options{}),
		mcp.Routes(mcp.Options{}),
		tenantapi.Routes(s.Apps, s.Dependencies.Billing.Usage),
		documents.Routes(),
		admin.Routes(admin.Options{Apps: s.Apps, Issuer: s.identity.issuer, Keys: s.identity.apiKeys, DB: s.Storage.DB, InMemoryDB: s.Dependencies.InMemory.DB, DeadLetters: s.Execution.deadLetters, RestartKeys: s.DefaultApp.keysAwaitingRestart, ProcessID: s.reporter.ProcessID(), Transfer: newTransfer(s)}),
		billingapi.Routes(billingapi.Options{Apps: s.Apps, Keys: s.identity.apiKeys, Billing: s.Dependencies.Billing}),
		webhook.Routes(deliveries),
	)
	if s.Settings.Role == roleWorker {
		all = slices.DeleteFunc(all, func(r surface.Route) bool { return r.Kind != surface.Open })
	}
	return openapi.WithDocument(s.Version, all)
}

// newConsole returns the routes of the console, none if it is off. l is its own listener, nil = the main one. A worker has no API that its pages could call.
func newConsole(s Settings, auth config.Auth, l net.Listener) ([]surface.Route, error) {
	if !s.servesConsole() {
		return nil, nil
	}
	return web.Routes(newConsoleOptions(auth, l))
}

// newConsoleOptions returns what the console needs of its server. l is its own listener, nil = the main one.
func newConsoleOptions(auth config.Auth, l net.Listener) web.Options {
	var o web.Options
	if l != nil {
		o.At, _ = l.Addr().(*net.TCPAddr)
	}
	if auth.Enabled && auth.ClientID != "" {
		o.SignInURLs = []string{auth.Issuer, auth.JWKSURL}
	}
	return o
}

// newStudio returns the studio of the process; its File is nil if the studio is off.
func newStudio(s *Server) ext.Studio {
	cfg := s.DefaultApp.Config()
	if cfg == nil || s.DefaultApp.path == "" || !s.Settings.Studio && !cfg.Server.Studio.Enabled {
		return ext.Studio{}
	}
	f := &studioFile{app: s.DefaultApp, path: s.DefaultApp.path, apps: s.Apps, deps: s.Dependencies, log: s.Log}
	if path := cfg.Server.Studio.ConfigPath; path != "" {
		f.path = path
	}
	return ext.Studio{File: f, AllowedRoles: cfg.Server.Studio.AllowedRoles}
}

// NewMetricsHandler returns the metrics for the listener of --metrics-addr, behind their bearer token, or without
// authentication if no token is set.
// The main listener has a route of its own (package ext), with the same check.
func (s *Server) NewMetricsHandler() http.Handler {
	next := s.telemetry.metrics.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ext.HasMetricsToken(r, s.Storage.secrets.metricsToken) {
			if r.Header.Get("Authorization") != "" {
				s.identity.failures.Count(audit.FailedCredential{Credential: surface.MetricsCredential, Reason: surface.ReasonInvalid, Client: ratelimit.ClientNetwork(r.RemoteAddr)})
			}
			http.Error(w, "the metrics require their token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newTransfer returns the service that exports and imports apps.
func newTransfer(s *Server) *transfer.Service {
	bounds := s.Settings.Bounds
	o := transfer.Options{Issuer: s.identity.issuer.TrustedIssuer().Issuer, MaxBytes: bounds.MaxImportMiB << 20, MaxRows: bounds.MaxImportRows}
	if books := s.Dependencies.Billing; books != nil {
		o.InTx = books.AdoptApp
		o.Imported = func(ctx context.Context, app tenancy.App) {
			if err := books.CountAdopted(ctx); err != nil {
				s.Log.WarnContext(ctx, "the usage of an imported app is not in the balances of the platform's budgets yet", "app", app.Name, "error", err)
			}
		}
	}
	return transfer.New(s.Storage.DB, s.Storage.keyring, s.Apps, o)
}
