package surface

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"stoa/tenancy"
)

// clientAddress returns the address that a request comes from. X-Forwarded-For is believed as far as trusted proxies wrote it:
// the client is the last address in it that is none of theirs.
func (s *Server) clientAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !s.isTrustedProxy(peer.Addr()) {
		return r.RemoteAddr
	}
	at := peer.Addr()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		at = hop
		if !s.isTrustedProxy(hop) {
			break
		}
	}
	return at.Unmap().String()
}

func (s *Server) isTrustedProxy(a netip.Addr) bool {
	for _, p := range s.options.TrustedProxies {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

// withOrigin returns r's context, in which what is done for it is told to come from its client.
func (s *Server) withOrigin(r *http.Request, id string) context.Context {
	return tenancy.WithOrigin(r.Context(), func() tenancy.Origin {
		client := s.clientAddress(r)
		if host, _, err := net.SplitHostPort(client); err == nil {
			client = host
		}
		return tenancy.Origin{Client: client, Request: id}
	})
}
