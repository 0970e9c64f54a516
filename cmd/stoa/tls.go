package main

import (
	"context"
	"net"
	"net/http"

	"stoa/agentsvc/surface/tlscert"
)

// openTLS reads the certificate of server.tls, if one is configured. A process that is configured for TLS and cannot
// read its certificate does not start, rather than serving without encryption.
func (h *server) openTLS(context.Context) (err error) {
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		h.tlsConfig, err = tlscert.NewConfig(cfg.Server.TLS, h.log)
	}
	return err
}

// serveHTTP serves l until server is shut down, over TLS if it is configured. The certificate comes from TLSConfig,
// so that ServeTLS is given no files.
func (h *server) serveHTTP(server *http.Server, l net.Listener) error {
	if h.tlsConfig == nil {
		return ignoreClosed(server.Serve(l))
	}
	server.TLSConfig = h.tlsConfig.Clone()
	return ignoreClosed(server.ServeTLS(l, "", ""))
}

// localURL returns the URL at which this machine reaches a listener of the server.
func (h *server) localURL(addr net.Addr) string {
	if h.tlsConfig != nil {
		return "https://" + reachableAddress(addr)
	}
	return "http://" + reachableAddress(addr)
}
