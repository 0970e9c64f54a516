package doctor

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc/config"
)

// namedHost is a host that is configured by its name, and what for.
type namedHost struct{ name, use string }

// hostList collects hosts, each name once.
type hostList []namedHost

// add adds a host, unless it is empty, an address or a socket.
func (l *hostList) add(host, use string) {
	if _, err := netip.ParseAddr(host); err == nil || host == "" || strings.HasPrefix(host, "/") {
		return
	}
	if !slices.ContainsFunc(*l, func(h namedHost) bool { return h.name == host }) {
		*l = append(*l, namedHost{host, use})
	}
}

// addURL adds the host of a URL, or nothing if it has none.
func (l *hostList) addURL(address, use string) {
	if u, err := url.Parse(address); err == nil {
		l.add(u.Hostname(), use)
	}
}

// listHosts returns the hosts that the settings, the exports and the operator's file name. Hosts of apps are not among them.
func (o Options) listHosts() []namedHost {
	var l hostList
	if !o.usesSQLite() {
		l.addURL(o.Settings.Database.URL, "database")
		l.addURL(o.Settings.Database.MigrateURL, "migrating login")
	}
	l.addURL(o.Settings.Database.RedisURL, "Redis")
	l.addURL(o.Settings.Cards.PublicURL, "public URL")
	if host, _, ok := strings.Cut(o.Settings.Cards.PublicGRPC, ":"); ok {
		l.add(host, "public gRPC")
	}
	if targets, err := o.Settings.ListExportTargets(); err == nil {
		for _, t := range targets {
			l.addURL(t.URL, "export of usage")
		}
	}
	addConfigHosts(&l, o.Config)
	return l
}

// addConfigHosts adds the hosts of the operator's file, nil for none.
func addConfigHosts(l *hostList, cfg *config.Config) {
	if cfg == nil {
		return
	}
	if auth := cfg.Server.Auth; auth.Enabled {
		l.addURL(auth.JWKSURL, "server.auth")
		l.addURL(auth.Issuer, "server.auth")
	}
	addHosts(l, "llms.", cfg.LLMs, func(m *config.LLM) []string { return []string{m.BaseURL} })
	addHosts(l, "embedders.", cfg.Embedders, func(e *config.Embedder) []string { return []string{e.BaseURL} })
	addHosts(l, "databases.", cfg.Databases, func(d *config.Database) []string { return []string{d.Host} })
	addHosts(l, "vector_stores.", cfg.VectorStores, func(v *config.VectorStore) []string { return []string{v.Host} })
	addHosts(l, "tools.", cfg.Tools, func(t *config.Tool) []string { return []string{t.URL} })
	addHosts(l, "agents.", cfg.Agents, func(a *config.Agent) []string { return []string{a.URL, a.AgentCardURL} })
}

// addHosts adds the hosts of a section of the file, whose items may be nil. places returns the hosts or URLs of an item.
func addHosts[T any](l *hostList, section string, items map[string]*T, places func(*T) []string) {
	for _, name := range slices.Sorted(maps.Keys(items)) {
		if items[name] == nil {
			continue
		}
		for _, place := range places(items[name]) {
			if strings.Contains(place, "://") {
				l.addURL(place, section+name)
			} else {
				l.add(place, section+name)
			}
		}
	}
}
