package surface

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"stoa/tenancy"
)

// client returns the address that a request comes from. X-Forwarded-For is believed as far as trusted proxies wrote it:
// the client is the last address in it that is none of theirs.
func (s *Server) client(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !s.trusted(peer.Addr()) {
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
		if !s.trusted(hop) {
			break
		}
	}
	return at.Unmap().String()
}

func (s *Server) trusted(a netip.Addr) bool {
	for _, p := range s.options.TrustedProxies {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

// origin returns r's context, in which what is done for it is told to come from its client.
func (s *Server) origin(r *http.Request, id string) context.Context {
	return tenancy.WithOrigin(r.Context(), func() tenancy.Origin {
		client := s.client(r)
		if host, _, err := net.SplitHostPort(client); err == nil {
			client = host
		}
		return tenancy.Origin{Client: client, Request: id}
	})
}
