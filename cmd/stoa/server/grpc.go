package server

import (
	"cmp"
	"net"
	"net/url"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/ext"
)

// grpcAddress returns the host and port for gRPC that agent cards show: --public-grpc, else the host of the public
// URL with the listener's port, else the address of this machine. It is "" without gRPC.
func (s *Server) grpcAddress() string {
	if s.grpcListener == nil {
		return ""
	}
	at := reachableAddress(s.grpcListener.Addr())
	if u, err := url.Parse(s.Settings.Cards.PublicURL); err == nil && u.Hostname() != "" {
		_, port, _ := net.SplitHostPort(at)
		at = net.JoinHostPort(u.Hostname(), port)
	}
	return cmp.Or(s.Settings.Cards.PublicGRPC, at)
}

// grpcCardOptions returns how cards describe gRPC: its address, and whether server.transport prefers it over HTTP.
func (s *Server) grpcCardOptions() agentcard.GRPC {
	g := agentcard.GRPC{Address: s.grpcAddress()}
	if cfg := s.DefaultApp.Config(); cfg != nil {
		g.Preferred = cfg.Server.Transport == "grpc"
	}
	return g
}

// GRPCAddress returns the address of the gRPC listener; nil in a worker.
func (s *Server) GRPCAddress() net.Addr {
	if s.grpcListener == nil {
		return nil
	}
	return s.grpcListener.Addr()
}

// newGRPCServer returns the server of the gRPC listener, nil without one. The calls pass the same authentication, limits
// and error mapping as HTTP, because they go through frontend.
func (s *Server) newGRPCServer(frontend *surface.Server, cards agentcard.Builder) *a2agrpc.Server {
	if s.grpcListener == nil {
		return nil
	}
	n := s.network
	return a2agrpc.New(frontend, a2agrpc.Options{
		TLS: n.tlsConfig, Cards: cards, OnCall: n.drainer.noteRequest, AcquireCall: n.requests.AcquireRequest, IsProxy: n.requests.IsProxy, Ready: ext.NewReadyCheck(ext.Options{Database: s.Storage.DB.Ping, Ready: s.checkReady}),
	})
}
