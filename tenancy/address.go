package tenancy

import (
	"fmt"
	"net"
	"strings"
)

// Address is how a request named an app, by its path, its host, both or not at all.
type Address struct {
	App    string // "" = no app was named
	Prefix string // "/apps/NAME" where the path named it
	Host   string // as configured, with the name in it, where the host named it
	Path   string // what follows the prefix: the path of a tenant's route

	unknown bool // what was named cannot be: path and host differ, or the path is none of a tenant's routes
}

// hostPattern is a configured host such as {app}.agents.example.com.
type hostPattern struct{ before, after string }

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

// matchHost returns the name that host puts in p's place, which need not be the name of an app or valid.
func (p hostPattern) matchHost(host string) (name string, ok bool) {
	if len(host) <= len(p.before)+len(p.after) || !strings.HasPrefix(host, p.before) || !strings.HasSuffix(host, p.after) {
		return "", false
	}
	name = host[len(p.before) : len(host)-len(p.after)]
	return name, !strings.Contains(name, ".")
}

// ParseAddress reads a request's host, with or without a port, and path.
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

// appOfHost returns the app that a host names and that host as it is configured, in lower case and without a port.
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

// isOperatorPath reports whether path is the operator's and so never below an app.
func isOperatorPath(path string) bool {
	for _, root := range []string{"/admin", "/metrics"} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}
