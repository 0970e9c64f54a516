package crossorigin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/apierror"
)

// PageGuard protects apps that need no credential against web pages. Any client that reaches such an app may do
// everything in it, and a page in a user's browser reaches what the browser reaches: this machine and its private
// network. Browsers send simple requests (forms, Blobs, GET, WebSocket handshakes) to any server without a CORS
// preflight, so CORS does not stop them; but they name the page's origin in Origin and Sec-Fetch-Site. A page whose
// host name was made to resolve to this server (DNS rebinding) has the server's own origin for the browser; only the
// Host header reveals it. See docs/security.md.
//
// Other programs send neither header and are not affected. A caller with a good credential is not checked: browsers do
// not add a credential for this server by themselves. All fields are read-only.
type PageGuard struct {
	// allowAll is set if server.cors.allowed_origins contains "*": the operator allows pages of every origin.
	allowAll bool
	// isConfigured is set if the operator listed origins. [cors.isAllowedOrigin] then checks them for requests that
	// write, and browsers keep responses from other pages.
	isConfigured bool
	// publicOrigin is the origin of the public URL.
	publicOrigin string
	// hosts are the names and addresses of this server, as normalizeHost returns them.
	hosts map[string]bool
	// anyAddress says that the server listens at every address of its machine.
	anyAddress bool
}

// NewPageGuard returns the guard of a server with the public URL base that is also reached under hosts: names and
// addresses, with or without a port. An unspecified address, such as 0.0.0.0, stands for every address. The hosts of
// configured origins count as the server's own.
func NewPageGuard(o config.CORS, base *url.URL, hosts []string) *PageGuard {
	g := &PageGuard{
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

// The errors of [PageGuard.checkRequest] name the setting with which the operator allows such requests.
var (
	errForeignPage = agentsvc.NewError(apierror.CodeForeignPage,
		"this app asks for no credential, and so takes no requests from web pages of other origins: server.cors.allowed_origins in the configuration lists the origins that may")
	errUnknownPage = agentsvc.NewError(apierror.CodeForeignPage,
		"this webhook asks for no secret, and over plain HTTP a browser does not say which page makes a GET: give the trigger a secret, or reach the server by https under its --public-url")
	errForeignHost = agentsvc.NewError(apierror.CodeForeignPage,
		"this app asks for no credential, and so takes no requests under a host name that is not known to be this server's: --public-url says under which name it is reached")
)

// CheckRequest returns the error for a request without a credential that acts or reads in an app which needs none, nil
// if it may. requestHost and header are its Host header and its other headers, nil if its protocol has none. named says
// that the host is one that the operator configured for apps, so it cannot be a rebound name.
func (g *PageGuard) CheckRequest(requestHost string, header func(name string) string, named bool) error {
	if g.allowAll {
		return nil
	}
	host := normalizeHost(requestHost)
	if !named && !g.isOwnHost(host) {
		return errForeignHost
	}
	if g.isConfigured || header == nil {
		return nil
	}
	origin, site := header("Origin"), header("Sec-Fetch-Site")
	switch {
	case site == "same-origin":
		return nil
	case origin == "" && (site == "" || site == "none"):
		return nil
	case origin != "" && g.isLocalOrigin(origin, requestHost):
		return nil
	}
	return errForeignPage
}

// CheckAction is CheckRequest for a request that acts whatever its method is. The browser names no origin for a GET that
// a page makes without a script, as for an image, so no list of origins can allow it. Over plain HTTP it does not even
// say that a page makes it, unless the server is on the browser's own machine (Fetch Metadata, "Sec-Fetch-Site", has
// trustworthy addresses only), so such a GET is refused too.
func (g *PageGuard) CheckAction(method, requestHost string, header func(name string) string, named bool) error {
	if err := g.CheckRequest(requestHost, header, named); err != nil || g.allowAll || header == nil {
		return err
	}
	if header("Origin") != "" {
		return nil
	}
	switch site := header("Sec-Fetch-Site"); {
	case site == "cross-site" || site == "same-site":
		return errForeignPage
	case site == "" && (method == http.MethodGet || method == http.MethodHead) && !g.hasFetchMetadata(normalizeHost(requestHost), named):
		return errUnknownPage
	}
	return nil
}

// hasFetchMetadata reports whether browsers send Sec-Fetch-Site to host, as normalizeHost returns it: to addresses of
// their own machine, and over https, which is known of the public URL alone and of the hosts of apps next to it. A request
// without a host does not come from a browser.
func (g *PageGuard) hasFetchMetadata(host string, named bool) bool {
	if host == "" || isLoopback(host) {
		return true
	}
	public, isHTTPS := strings.CutPrefix(g.publicOrigin, "https://")
	return isHTTPS && (named || host == normalizeHost(public))
}

// isOwnHost reports whether host, as normalizeHost returns it, is this server's. A request without a host does not come
// from a browser. If the server listens at every address, any IP address is accepted: behind a forwarded port, such as
// a container's, it does not know its address, and only a name can be rebound.
func (g *PageGuard) isOwnHost(host string) bool {
	if host == "" || g.hosts[host] || isLoopback(host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return g.anyAddress && err == nil
}

// isLocalOrigin reports whether origin is the server's own, given the Host header of the request, that of the public
// URL, or one of the machine that the browser runs on.
func (g *PageGuard) isLocalOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, host) || formatOrigin(u) == g.publicOrigin || isLoopback(normalizeHost(u.Host))
}

// isLoopback reports whether host, as normalizeHost returns it, always means the local machine: a loopback address,
// localhost or a name below it (RFC 6761, 6.3).
func isLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// normalizeHost returns a host in the form in which hosts are compared: lower case, without port, brackets, zone and
// final dot, an IPv4 address mapped to IPv6 as IPv4.
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

// formatOrigin returns the origin of u as browsers write it: without the default port of its scheme.
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
