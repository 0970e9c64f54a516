package surface

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"stoa/tenancy/audit"
)

// trustedProxies is [Options].TrustedProxies.
type trustedProxies []netip.Prefix

// clientAddress returns the client's address: r.RemoteAddr, or if that is a trusted proxy, the last address in
// X-Forwarded-For that is not one. Addresses before it could have been made up by the client, so they are not looked
// at. It has a port only if it is r.RemoteAddr.
func (proxies trustedProxies) clientAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !proxies.isTrustedProxy(peer.Addr()) {
		return r.RemoteAddr
	}
	at := peer.Addr()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		// Not an address: what stands before it is not trustworthy either.
		if err != nil {
			break
		}
		at = hop
		if !proxies.isTrustedProxy(hop) {
			break
		}
	}
	return at.Unmap().String()
}

// isTrustedProxy reports whether a is in [Options].TrustedProxies. An IPv4 address mapped to IPv6 counts as IPv4.
func (proxies trustedProxies) isTrustedProxy(a netip.Addr) bool {
	for _, p := range proxies {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

// newOrigin returns the origin of a request for the audit trail. client is a clientAddress, whose port it drops.
func newOrigin(client, requestID string) audit.Origin {
	if host, _, err := net.SplitHostPort(client); err == nil {
		client = host
	}
	return audit.Origin{Client: client, Request: requestID}
}
