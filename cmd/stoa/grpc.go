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
func (h *server) openGRPC(context.Context) (err error) {
	if h.settings.role == roleWorker {
		return nil
	}
	if h.grpcListener, err = listenTCP(h.settings.host, h.settings.grpcPort); err != nil {
		return fmt.Errorf("listen for gRPC: %w (another --grpc-port is the cure if this one is taken)", err)
	}
	h.addCloser(func() error { _ = h.grpcListener.Close(); return nil }) // unless its server has
	return nil
}

// grpcAddress is where clients reach the house over gRPC, for cards.
func (h *server) grpcAddress() string {
	if h.grpcListener == nil {
		return ""
	}
	at := reachableAddress(h.grpcListener.Addr())
	if u, err := url.Parse(h.settings.publicURL); err == nil && u.Hostname() != "" {
		_, port, _ := net.SplitHostPort(at)
		at = net.JoinHostPort(u.Hostname(), port)
	}
	return cmp.Or(h.settings.publicGRPC, at)
}

// grpcCardOptions is how the agents are called over gRPC, as cards tell it.
func (h *server) grpcCardOptions() surface.GRPC {
	g := surface.GRPC{Address: h.grpcAddress()}
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		g.Preferred = cfg.Server.Transport == "grpc"
	}
	return g
}

// serveGRPC answers calls over gRPC until the house falls or is drained.
func (h *server) serveGRPC(ctx context.Context, g *errgroup.Group, frontend *surface.Server) {
	if h.grpcListener == nil {
		return
	}
	h.grpcServer = a2agrpc.New(frontend, a2agrpc.Options{
		TLS: h.tlsConfig, OnCall: h.drainer.noteRequest, Ready: ext.NewReadyCheck(ext.Options{Database: h.db.Ping, Ready: h.drainer.checkReady}),
	})
	g.Go(func() error { return h.grpcServer.Serve(h.connections.limitListener(h.grpcListener)) })
	context.AfterFunc(ctx, h.grpcServer.Stop)
}
