package surface

import (
	"iter"

	"net/url"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/authz"
)

// Cards returns the cards of the agents that the caller may know of: public ones, and for a caller with a credential
// the internal ones that it may read or call. Private agents are never listed.
func (a *Access) Cards() iter.Seq[agentsvc.Card] {
	return func(yield func(agentsvc.Card) bool) {
		for _, c := range a.Runtime.Cards() {
			if a.canSee(c) && !yield(c) {
				return
			}
		}
	}
}

// seesCards reports whether a may know of any agent.
func seesCards(a *Access) bool {
	for range a.Cards() {
		return true
	}
	return false
}

// Card returns the card of an agent, of the default one for "". An agent that the caller may not know of is "no such
// agent", as one that does not exist.
func (a *Access) Card(agent string) (agentsvc.Card, error) {
	c, ok := a.Runtime.Card(agent)
	if agent == "" {
		c, ok = a.Runtime.DefaultCard()
	}
	if !ok || !a.canSee(c) {
		return agentsvc.Card{}, apierror.ErrNoAgent
	}
	a.RecordAgent(c)
	return c, nil
}

// FindAgent returns the card of an agent that the caller is about to use. Call it after [Access.Authorize]. Private
// agents, and internal ones for an anonymous caller, are "no such agent".
func (a *Access) FindAgent(agent string) (agentsvc.Card, error) {
	c, ok := a.Runtime.Card(agent)
	if !ok || c.Visibility == agentsvc.Private || c.Visibility == agentsvc.Internal && a.Principal.Anonymous {
		return agentsvc.Card{}, apierror.ErrNoAgent
	}
	a.RecordAgent(c)
	return c, nil
}

// RecordAgent sets the agent of the request's log line and metrics. Only names that exist get there, so that callers
// cannot create metric labels.
func (a *Access) RecordAgent(c agentsvc.Card) {
	if a.requestRecord != nil {
		a.requestRecord.agent = c.Agent
	}
}

// canSee reports whether the caller may see an agent's card.
func (a *Access) canSee(c agentsvc.Card) bool {
	switch c.Visibility {
	case agentsvc.Public:
		return true
	case agentsvc.Internal:
		return !a.Principal.Anonymous &&
			(a.policy.Authorize(a.Principal, authz.AgentsRead, "") == nil || a.policy.Authorize(a.Principal, authz.AgentsCall, c.Agent) == nil)
	}
	return false
}

// BaseURL returns the URL of the app for links and cards, without a slash at its end: with the host that was configured
// for apps if the request used one, else with the path prefix that it used below the public URL. It contains nothing
// else of the request, since a client controls its Host header.
func (a *Access) BaseURL() string {
	base := *a.server.baseURL
	if a.address.Host != "" {
		base.Host = withPort(a.address.Host, base.Port())
	}
	base.Path = strings.TrimRight(base.Path, "/") + a.address.Prefix
	return base.String()
}

// Host returns the host that was configured for apps if the request used one, else "".
func (a *Access) Host() string { return a.address.Host }

// withPort returns host:port, or host if port is "".
func withPort(host, port string) string {
	if port == "" {
		return host
	}
	return host + ":" + port
}

// AgentURL returns the URL of an agent below base, see [Access.BaseURL].
func AgentURL(base, agent string) string { return base + "/agents/" + url.PathEscape(agent) }
