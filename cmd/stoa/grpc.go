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
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/ext"
)

// openGRPC opens the gRPC listener. A worker has none. The listener is opened before the HTTP server is built because
// agent cards contain its address.
func (h *server) openGRPC(context.Context) (err error) {
	if h.settings.role == roleWorker {
		return nil
	}
	if h.grpcListener, err = listenTCP(h.settings.host, h.settings.grpcPort); err != nil {
		return fmt.Errorf("listen for gRPC: %w (another --grpc-port is the cure if this one is taken)", err)
	}
	h.addCloser(func() error { _ = h.grpcListener.Close(); return nil }) // an error only means that the gRPC server has closed it
	return nil
}

// grpcAddress returns the host and port for gRPC that agent cards show: --public-grpc, else the host of the public
// URL with the listener's port, else the address of this machine. It is "" without gRPC.
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

// grpcCardOptions returns how cards describe gRPC: its address, and whether server.transport prefers it over HTTP.
func (h *server) grpcCardOptions() agentcard.GRPC {
	g := agentcard.GRPC{Address: h.grpcAddress()}
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		g.Preferred = cfg.Server.Transport == "grpc"
	}
	return g
}

// serveGRPC serves gRPC on a goroutine of g until ctx ends or the process drains. The calls pass the same
// authentication, limits and error mapping as HTTP, because they go through frontend.
func (h *server) serveGRPC(ctx context.Context, g *errgroup.Group, frontend *surface.Server) {
	if h.grpcListener == nil {
		return
	}
	h.grpcServer = a2agrpc.New(frontend, a2agrpc.Options{
		TLS: h.tlsConfig, Cards: h.cards, OnCall: h.drainer.noteRequest, AcquireStream: h.streams.acquireStream, Ready: ext.NewReadyCheck(ext.Options{Database: h.db.Ping, Ready: h.drainer.checkReady}),
	})
	g.Go(func() error { return h.grpcServer.Serve(h.connections.limitListener(h.grpcListener)) })
	context.AfterFunc(ctx, h.grpcServer.Stop) // for a failed loop; a drain has closed it before
}
