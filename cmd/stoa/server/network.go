package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/tlscert"
	"stoa/cmd/stoa/server/listener"
)

// network is what all listeners of a process share.
type network struct {
	// drainer keeps the readiness of the process and waits for load balancers in a shutdown.
	drainer *drainer
	// gcTuner collects garbage more often while large bodies or answers are in memory.
	gcTuner *gcTuner
	// configMemory is that of the apps' configurations while they are read.
	configMemory *configMemory
	connections  *listener.Limiter // counts the connections of all public listeners
	requests     *listener.Limiter // counts the open requests over HTTP/2 and gRPC
	tlsConfig    *tls.Config       // nil = plain HTTP and gRPC
}

// newNetwork reads the certificate of server.tls, if one is configured. A process that is configured for TLS and cannot
// read its certificate does not start, rather than serving without encryption.
func newNetwork(o Options) (n network, err error) {
	s, tuner := o.Settings.Listen, newGCTuner()
	n = network{
		drainer: newDrainer(), gcTuner: tuner, configMemory: newConfigMemory(tuner),
		connections: listener.NewLimiter(s.MaxConnections, s.MaxAddressConnections, s.TrustedProxies), requests: listener.NewRequestLimiter(s.MaxConnections, s.TrustedProxies),
	}
	if cfg := o.DefaultApp.Config(); cfg != nil {
		n.tlsConfig, err = tlscert.NewConfig(cfg.Server.TLS, o.Log)
	}
	return n, err
}

// Listeners returns where the process listens, that of --host and --port first.
func (s Settings) Listeners() []listener.Address {
	all := []listener.Address{s.Listen.httpAddress()}
	if s.Role != roleWorker {
		all = append(all, s.Listen.grpcAddress())
	}
	if s.Listen.ConsoleAddr != "" && s.servesConsole() {
		all = append(all, s.Listen.consoleAddress())
	}
	if s.Listen.MetricsAddr != "" {
		all = append(all, s.Listen.metricsAddress())
	}
	return all
}

// hostSetting is what chooses the host of the listeners for HTTP and gRPC.
const hostSetting = "--host (STOA_HOST)"

// httpAddress returns where HTTP is served.
func (s ListenSettings) httpAddress() listener.Address {
	return listener.Address{Name: "HTTP", Address: net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), PortSetting: "--port (STOA_PORT)", HostSetting: hostSetting}
}

// grpcAddress returns where gRPC is served.
func (s ListenSettings) grpcAddress() listener.Address {
	return listener.Address{Name: "gRPC", Address: net.JoinHostPort(s.Host, strconv.Itoa(s.GRPCPort)), PortSetting: "--grpc-port (STOA_GRPC_PORT)", HostSetting: hostSetting}
}

// consoleAddress returns where the console is served on a listener of its own.
func (s ListenSettings) consoleAddress() listener.Address {
	const setting = "--console-addr (STOA_CONSOLE_ADDR)"
	return listener.Address{Name: "console", Address: s.ConsoleAddr, PortSetting: setting, HostSetting: setting}
}

// metricsAddress returns where metrics are served on a listener of their own.
func (s ListenSettings) metricsAddress() listener.Address {
	const setting = "--metrics-addr (STOA_METRICS_ADDR)"
	return listener.Address{Name: "metrics", Address: s.MetricsAddr, PortSetting: setting, HostSetting: setting}
}

// openListener opens the listener of --host and --port.
func openListener(s Settings) (net.Listener, error) {
	l, err := listener.ListenTCP(s.Listen.Host, s.Listen.Port)
	if err != nil {
		return nil, fmt.Errorf("listen: %w (%s)", err, s.Listen.httpAddress().Advise(err))
	}
	return l, nil
}

// openGRPCListener opens the gRPC listener. A worker has none.
func openGRPCListener(s Settings, c *closers) (net.Listener, error) {
	if s.Role == roleWorker {
		return nil, nil
	}
	l, err := listener.ListenTCP(s.Listen.Host, s.Listen.GRPCPort)
	if err != nil {
		return nil, fmt.Errorf("listen for gRPC: %w (%s)", err, s.Listen.grpcAddress().Advise(err))
	}
	c.add(func() error { _ = l.Close(); return nil }) // an error only means that the gRPC server has closed it
	return l, nil
}

// openConsoleListener opens the listener of the console (--console-addr), nil if it has none of its own.
func openConsoleListener(s Settings, c *closers) (net.Listener, error) {
	if s.Listen.ConsoleAddr == "" || !s.servesConsole() {
		return nil, nil
	}
	l, err := net.Listen("tcp", s.Listen.ConsoleAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the console: %w (%s)", err, s.Listen.consoleAddress().Advise(err))
	}
	c.add(func() error { _ = l.Close(); return nil }) // an error only means that the HTTP server has closed it
	return l, nil
}

// setTLS gives server the TLS configuration of its listeners, if there is one.
func (n network) setTLS(server *http.Server) {
	if n.tlsConfig != nil {
		server.TLSConfig = n.tlsConfig.Clone()
	}
}

// serveHTTP serves l until server is shut down, over TLS if it is configured. The certificate comes from TLSConfig,
// so that ServeTLS is given no files.
func (n network) serveHTTP(server *http.Server, l net.Listener) error {
	if n.tlsConfig == nil {
		return ignoreClosed(server.Serve(l))
	}
	return ignoreClosed(server.ServeTLS(l, "", ""))
}

// localURL returns the URL at which this machine reaches a listener of the server.
func (n network) localURL(addr net.Addr) string {
	if n.tlsConfig != nil {
		return "https://" + reachableAddress(addr)
	}
	return "http://" + reachableAddress(addr)
}

// certificateExpiry returns the end of validity of the certificate in use, zero without TLS.
func (n network) certificateExpiry() time.Time {
	if n.tlsConfig == nil {
		return time.Time{}
	}
	return tlscert.Expiry(n.tlsConfig)
}

// DescribeExposure returns the setting by which callers from other machines reach public agents of the app default
// without a credential, "" if none does. cfg is the configuration of that app, nil for none. A proxy on this machine makes
// a server at loopback public: the public URL and the trusted proxies are what an operator sets for one.
func (s Settings) DescribeExposure(cfg *config.Config) string {
	if !hasPublicAgent(cfg) || cfg.Server.Auth.Enabled || s.Role == roleWorker {
		return ""
	}
	if !s.isLoopback() {
		return "--host (STOA_HOST) is " + s.Listen.Host
	}
	if u, err := url.Parse(s.Cards.PublicURL); err == nil && u.Host != "" && !isLocalHost(u.Hostname()) {
		return "--public-url (STOA_PUBLIC_URL) is " + u.Redacted()
	}
	if len(s.Listen.TrustedProxies) > 0 {
		return "--trusted-proxies (STOA_TRUSTED_PROXIES) is set"
	}
	return ""
}

// hasPublicAgent reports whether an app has an agent that callers without a credential may call.
func hasPublicAgent(cfg *config.Config) bool {
	if cfg == nil {
		return false
	}
	for _, a := range cfg.Agents {
		if a != nil && a.Visibility != string(agentsvc.Internal) && a.Visibility != string(agentsvc.Private) {
			return true
		}
	}
	return false
}

// warnExposure logs that everyone may call the agents of the app default, if that is so.
func (a *DefaultApp) warnExposure(s Settings, log *slog.Logger) {
	reason := s.DescribeExposure(a.Config())
	if reason == "" {
		return
	}
	cure := "server.auth in its configuration, or its agents in an app of their own (stoa app create)"
	text := "the app default is open"
	if a.Path() == "" {
		text, cure = "without --config this server has the built-in app default, which is open", "a file with server.auth"
	}
	if strings.HasPrefix(reason, "--host ") {
		cure += ", or --host 127.0.0.1"
	}
	log.Warn(fmt.Sprintf("%s: everyone who reaches this address may do everything in it; %s keeps others out", text, cure), "reason", reason)
}
