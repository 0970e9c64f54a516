package server

import (
	"cmp"
	"net"
	"net/url"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/ext"
)

// grpcAddress returns the host and port for gRPC that agent cards show: --public-grpc, else the host of the public
// URL with the listener's port, else the address of this machine. It is "" without gRPC.
func (h *Server) grpcAddress() string {
	if h.grpcListener == nil {
		return ""
	}
	at := reachableAddress(h.grpcListener.Addr())
	if u, err := url.Parse(h.Settings.Cards.PublicURL); err == nil && u.Hostname() != "" {
		_, port, _ := net.SplitHostPort(at)
		at = net.JoinHostPort(u.Hostname(), port)
	}
	return cmp.Or(h.Settings.Cards.PublicGRPC, at)
}

// grpcCardOptions returns how cards describe gRPC: its address, and whether server.transport prefers it over HTTP.
func (h *Server) grpcCardOptions() surface.GRPC {
	g := surface.GRPC{Address: h.grpcAddress()}
	if cfg := h.DefaultApp.Config(); cfg != nil {
		g.Preferred = cfg.Server.Transport == "grpc"
	}
	return g
}

// GRPCAddress returns the address of the gRPC listener; nil in a worker.
func (h *Server) GRPCAddress() net.Addr {
	if h.grpcListener == nil {
		return nil
	}
	return h.grpcListener.Addr()
}

// newGRPCServer returns the server of the gRPC listener, nil without one. The calls pass the same authentication, limits
// and error mapping as HTTP, because they go through frontend.
func (h *Server) newGRPCServer(frontend *surface.Server) *a2agrpc.Server {
	if h.grpcListener == nil {
		return nil
	}
	n := h.network
	return a2agrpc.New(frontend, a2agrpc.Options{
		TLS: n.tlsConfig, OnCall: n.drainer.noteRequest, AcquireStream: n.streams.AcquireStream, Ready: ext.NewReadyCheck(ext.Options{Database: h.Storage.DB.Ping, Ready: n.drainer.checkReady}),
	})
}
