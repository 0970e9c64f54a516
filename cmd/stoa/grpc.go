package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/ext"
)

// openGRPC opens the port for gRPC, which a worker does not have.
func (h *house) openGRPC(context.Context) (err error) {
	if h.settings.role == roleWorker {
		return nil
	}
	if h.dialled, err = listenTCP(h.settings.host, h.settings.grpcPort); err != nil {
		return fmt.Errorf("listen for gRPC: %w (another --grpc-port is the cure if this one is taken)", err)
	}
	h.closing(func() error { _ = h.dialled.Close(); return nil }) // unless its server has
	return nil
}

// grpcAddress is where clients reach the house over gRPC, for cards.
func (h *house) grpcAddress() string {
	if h.dialled == nil {
		return ""
	}
	at := reachable(h.dialled.Addr())
	if u, err := url.Parse(h.settings.publicURL); err == nil && u.Hostname() != "" {
		_, port, _ := net.SplitHostPort(at)
		at = net.JoinHostPort(u.Hostname(), port)
	}
	return cmp.Or(h.settings.publicGRPC, at)
}

// callable is how the agents are called over gRPC, as cards tell it.
func (h *house) callable() surface.GRPC {
	g := surface.GRPC{Address: h.grpcAddress()}
	if cfg := h.own.cfg.Load(); cfg != nil {
		g.Preferred = cfg.Server.Transport == "grpc"
	}
	return g
}

// serveGRPC answers calls over gRPC until the house falls or is drained.
func (h *house) serveGRPC(ctx context.Context, g *errgroup.Group, front *surface.Server) {
	if h.dialled == nil {
		return
	}
	h.calls = a2agrpc.New(front, a2agrpc.Options{
		TLS: h.tls, Begun: h.leave.called, Ready: ext.Ready(ext.Options{Database: h.db.Ping, Ready: h.leave.ready}),
	})
	g.Go(func() error { return h.calls.Serve(h.clients.listen(h.dialled)) })
	context.AfterFunc(ctx, h.calls.Stop)
}
