package main

import (
	"context"
	"net"
	"net/http"

	"stoa/agentsvc/surface"
)

// openTLS reads the certificate that the configuration names, if it names one. A process that was told to encrypt and
// cannot does not start.
func (h *house) openTLS(context.Context) (err error) {
	if cfg := h.own.cfg.Load(); cfg != nil {
		h.tls, err = surface.TLS(cfg.Server.TLS, h.log)
	}
	return err
}

// serveHTTP answers what comes in at l, encrypted where the house encrypts, until server is shut down.
func (h *house) serveHTTP(server *http.Server, l net.Listener) error {
	if h.tls == nil {
		return ignoreClosed(server.Serve(l))
	}
	server.TLSConfig = h.tls.Clone()
	return ignoreClosed(server.ServeTLS(l, "", ""))
}

// site is the address at which this machine reaches a listener of the house, as a URL.
func (h *house) site(addr net.Addr) string {
	if h.tls != nil {
		return "https://" + reachable(addr)
	}
	return "http://" + reachable(addr)
}
