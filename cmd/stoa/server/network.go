package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

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
	streams      *listener.Limiter // counts the open requests over HTTP/2 and gRPC
	tlsConfig    *tls.Config       // nil = plain HTTP and gRPC
}

// newNetwork reads the certificate of server.tls, if one is configured. A process that is configured for TLS and cannot
// read its certificate does not start, rather than serving without encryption.
func newNetwork(o Options) (n network, err error) {
	s, tuner := o.Settings.Listen, newGCTuner()
	n = network{
		drainer: newDrainer(), gcTuner: tuner, configMemory: newConfigMemory(tuner),
		connections: listener.NewLimiter(s.MaxConnections, s.MaxAddressConnections, s.TrustedProxies), streams: listener.NewStreamLimiter(s.MaxConnections, s.TrustedProxies),
	}
	if cfg := o.DefaultApp.Config(); cfg != nil {
		n.tlsConfig, err = tlscert.NewConfig(cfg.Server.TLS, o.Log)
	}
	return n, err
}

// openListener opens the listener of --host and --port.
func openListener(s Settings) (net.Listener, error) {
	l, err := listener.ListenTCP(s.Listen.Host, s.Listen.Port)
	if err != nil {
		return nil, fmt.Errorf("listen: %w (if this port is in use, choose another with --port)", err)
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
		return nil, fmt.Errorf("listen for gRPC: %w (if this port is in use, choose another with --grpc-port)", err)
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
		return nil, fmt.Errorf("listen for the console: %w (if this port is in use, choose another with --console-addr)", err)
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
