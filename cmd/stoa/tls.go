package main

import (
	"context"
	"net"
	"net/http"

	"stoa/agentsvc/surface"
)

// openTLS reads the certificate that the configuration names, if it names one. A process that was told to encrypt and
// cannot does not start.
func (h *server) openTLS(context.Context) (err error) {
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		h.tlsConfig, err = surface.NewTLSConfig(cfg.Server.TLS, h.log)
	}
	return err
}

// serveHTTP answers what comes in at l, encrypted where the house encrypts, until server is shut down.
func (h *server) serveHTTP(server *http.Server, l net.Listener) error {
	if h.tlsConfig == nil {
		return ignoreClosed(server.Serve(l))
	}
	server.TLSConfig = h.tlsConfig.Clone()
	return ignoreClosed(server.ServeTLS(l, "", ""))
}

// localURL is the address at which this machine reaches a listener of the house, as a URL.
func (h *server) localURL(addr net.Addr) string {
	if h.tlsConfig != nil {
		return "https://" + reachableAddress(addr)
	}
	return "http://" + reachableAddress(addr)
}
