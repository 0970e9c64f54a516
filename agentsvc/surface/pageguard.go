package surface

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc/config"
)

// pageGuard decides which requests an app serves that asks its callers for no credential. Whoever reaches such an app may do
// everything in it, and a web page reaches what its reader's browser reaches: on this machine, in this network. A browser sends
// simple requests (a form, a Blob, a GET, the handshake of a WebSocket) of every page to every server without asking first, so
// that CORS does not hold them back; it says in Origin and Sec-Fetch-Site where they come from. A page whose name is made to
// resolve to this server (DNS rebinding) is of the server's own origin to the browser; what gives it away is the Host header.
//
// Programs that are no browsers send neither Origin nor Sec-Fetch-Site. A caller with a good credential is not checked: browsers
// add no credential of this server by themselves.
type pageGuard struct {
	allowAll     bool            // the operator wrote out that pages of every origin may call
	isConfigured bool            // the operator wrote out whose pages may call; [cors.isAllowedOrigin] sees to that
	publicOrigin string          // origin of the public URL
	hosts        map[string]bool // names and addresses under which the server is reached, in lower case, without port
	anyAddress   bool            // it listens at every address of the machine
}

// newPageGuard returns the guard of a server whose public URL is base and which is reached under hosts: names and addresses,
// with or without a port. One that is unspecified, such as 0.0.0.0, stands for every address.
func newPageGuard(o config.CORS, base *url.URL, hosts []string) *pageGuard {
	g := &pageGuard{
		allowAll: slices.Contains(o.AllowedOrigins, "*"), isConfigured: o.AllowedOrigins != nil,
		publicOrigin: formatOrigin(base), hosts: map[string]bool{normalizeHost(base.Host): true},
	}
	for _, h := range hosts {
		h = normalizeHost(h)
		addr, err := netip.ParseAddr(h)
		g.anyAddress = g.anyAddress || err == nil && addr.IsUnspecified()
		g.hosts[h] = true
	}
	for _, origin := range o.AllowedOrigins {
		if u, err := url.Parse(origin); err == nil && u.Host != "" {
			g.hosts[normalizeHost(u.Host)] = true
		}
	}
	return g
}

// The refusals of [pageGuard.checkRequest] name what the operator changes to let such requests in.
var (
	errForeignPage = &responseError{
		code: PermissionDenied, status: http.StatusForbidden,
		text: "this app asks for no credential, and so takes no requests from web pages of other origins: server.cors.allowed_origins in the configuration lists the origins that may",
	}
	errForeignHost = &responseError{
		code: PermissionDenied, status: http.StatusForbidden,
		text: "this app asks for no credential, and so takes no requests under a host name that is not known to be this server's: --public-url says under which name it is reached",
	}
)

// checkRequest returns why a request that shows no credential may not act or read in an open app, nil if it may. named reports whether
// the host is one that the operator configured for apps.
func (g *pageGuard) checkRequest(k Credentials, named bool) error {
	if g.allowAll {
		return nil
	}
	host := normalizeHost(k.Host)
	if !named && !g.isOwnHost(host) {
		return errForeignHost
	}
	if g.isConfigured || k.Header == nil {
		return nil
	}
	origin, site := k.Header("Origin"), k.Header("Sec-Fetch-Site")
	switch {
	case site == "same-origin":
		return nil
	case origin == "" && (site == "" || site == "none"):
		return nil
	case origin != "" && g.isLocalOrigin(origin, k.Host):
		return nil
	}
	return errForeignPage
}

// isOwnHost reports whether host, as [normalizeHost] returns it, is this server. A request without a host comes from no browser. Where the
// server listens at every address of its machine, every IP address is taken: behind a port that is forwarded, as a container's is,
// it does not know under which it is reached, and only a name can be made to resolve to another server.
func (g *pageGuard) isOwnHost(host string) bool {
	if host == "" || g.hosts[host] || isLoopback(host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return g.anyAddress && err == nil
}

// isLocalOrigin reports whether pages of origin are the server's own, addressed as host, or of this machine.
func (g *pageGuard) isLocalOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, host) || formatOrigin(u) == g.publicOrigin || isLoopback(normalizeHost(u.Host))
}

// isLoopback reports whether host, as [normalizeHost] returns it, leads to the machine that it is looked up on (RFC 6761, 6.3).
func isLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// normalizeHost returns the name or address of a host that may have a port, in lower case and as it is compared.
func normalizeHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return host
}

// formatOrigin returns how a browser names the origin of pages at u: without the port that is the scheme's own.
func formatOrigin(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && fmt.Sprint(u.Scheme, port) != "http80" && fmt.Sprint(u.Scheme, port) != "https443" {
		host += ":" + port
	}
	return u.Scheme + "://" + host
}
