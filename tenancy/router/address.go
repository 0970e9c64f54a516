package router

import (
	"fmt"
	"net"
	"strings"
)

// Address is the result of [Router.ParseAddress]: the app that a request named by its path or its host, if any.
type Address struct {
	// App is the name of the app, "" if the request named none. It is not validated.
	App string
	// Prefix is "/apps/NAME" if the path named the app, else "".
	Prefix string
	// Host is the request's host in lower case and without port if the host named the app, else "".
	Host string
	// Path is the remaining path, to be matched against a tenant's routes.
	Path string

	// unknown reports that the address cannot exist: path and host name different apps, the name is empty, or the path
	// is reserved for the operator. CheckApp answers it as not found.
	unknown bool
}

// hostPattern is a configured host such as {app}.agents.example.com, split at {app} and in lower case.
type hostPattern struct{ before, after string }

// parseHosts parses configured host patterns. Each must contain {app} exactly once and a dot after it: a bare {app}
// would take any host for an app.
func parseHosts(patterns []string) ([]hostPattern, error) {
	var hosts []hostPattern
	for _, p := range patterns {
		before, after, ok := strings.Cut(strings.ToLower(strings.TrimSpace(p)), "{app}")
		if !ok || strings.ContainsAny(before+after, "{}/: ") || !strings.Contains(after, ".") {
			return nil, fmt.Errorf("host pattern %q: want a host name with {app} once, such as {app}.agents.example.com", p)
		}
		hosts = append(hosts, hostPattern{before, after})
	}
	return hosts, nil
}

// matchHost returns the part of host at the place of {app}. It contains no dot: {app} stands for a single label. The
// name need not be valid or belong to an app.
func (p hostPattern) matchHost(host string) (name string, ok bool) {
	if len(host) <= len(p.before)+len(p.after) || !strings.HasPrefix(host, p.before) || !strings.HasSuffix(host, p.after) {
		return "", false
	}
	name = host[len(p.before) : len(host)-len(p.after)]
	return name, !strings.Contains(name, ".")
}

// ParseAddress returns the app that a request names by its host, with or without a port, and by its path. If both name
// an app they must name the same one.
func (r *Router) ParseAddress(host, path string) Address {
	a := Address{Path: path}
	if remainder, ok := strings.CutPrefix(path, "/apps/"); ok {
		name, after, _ := strings.Cut(remainder, "/")
		a.App, a.Prefix, a.Path = name, "/apps/"+name, "/"+after
		a.unknown = name == ""
	}
	if name, canonical := r.appOfHost(host); name != "" {
		a.unknown = a.unknown || a.Prefix != "" && a.App != name
		a.App, a.Host = name, canonical
	}
	if a.App != "" && isOperatorPath(a.Path) {
		a.unknown = true
	}
	return a
}

// appOfHost returns the app that host names and host in lower case, without port and trailing dot; "" if no pattern
// matches.
func (r *Router) appOfHost(host string) (name, canonical string) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	for _, p := range r.hosts {
		if name, ok := p.matchHost(host); ok {
			return name, host
		}
	}
	return "", ""
}

// isOperatorPath reports whether path is below /admin or /metrics. These routes exist only without an app in the
// address, so that no tenant's address can reach them.
func isOperatorPath(path string) bool {
	for _, root := range []string{"/admin", "/metrics"} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}
