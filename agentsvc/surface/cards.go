package surface

import (
	"net/url"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/authz"
)

// Cards returns the cards of the agents that the caller may know of: public ones, and for a caller with a credential
// the internal ones that it may read or call. Private agents are never listed. The result is not nil.
func (v *Access) Cards() []agentsvc.Card {
	cards := []agentsvc.Card{}
	for _, c := range v.Runtime.Cards() {
		if v.canSee(c) {
			cards = append(cards, c)
		}
	}
	return cards
}

// Card returns the card of an agent, of the default one for "". An agent that the caller may not know of is "no such
// agent", as one that does not exist.
func (v *Access) Card(agent string) (agentsvc.Card, error) {
	c, ok := v.Runtime.Card(agent)
	if agent == "" {
		c, ok = v.Runtime.DefaultCard()
	}
	if !ok || !v.canSee(c) {
		return agentsvc.Card{}, apierror.ErrNoAgent
	}
	v.RecordAgent(c)
	return c, nil
}

// FindAgent returns the card of an agent that the caller is about to use. Call it after [Access.Authorize]. Private
// agents, and internal ones for an anonymous caller, are "no such agent".
func (v *Access) FindAgent(agent string) (agentsvc.Card, error) {
	c, ok := v.Runtime.Card(agent)
	if !ok || c.Visibility == agentsvc.Private || c.Visibility == agentsvc.Internal && v.Principal.Anonymous {
		return agentsvc.Card{}, apierror.ErrNoAgent
	}
	v.RecordAgent(c)
	return c, nil
}

// RecordAgent sets the agent of the request's log line and metrics. Only names that exist get there, so that callers
// cannot create metric labels.
func (v *Access) RecordAgent(c agentsvc.Card) {
	if v.record != nil {
		v.record.agent = c.Agent
	}
}

// canSee reports whether the caller may see an agent's card.
func (v *Access) canSee(c agentsvc.Card) bool {
	switch c.Visibility {
	case agentsvc.Public:
		return true
	case agentsvc.Internal:
		return !v.Principal.Anonymous &&
			(v.policy.Authorize(v.Principal, authz.AgentsRead, "") == nil || v.policy.Authorize(v.Principal, authz.AgentsCall, c.Agent) == nil)
	}
	return false
}

// BaseURL returns the URL of the app for links and cards, without a slash at its end: with the host that was configured
// for apps if the request used one, else with the path prefix that it used below the public URL. It contains nothing
// else of the request, since a client controls its Host header.
func (v *Access) BaseURL() string {
	base := *v.server.baseURL
	if v.address.Host != "" {
		base.Host = withPort(v.address.Host, base.Port())
	}
	base.Path = strings.TrimRight(base.Path, "/") + v.address.Prefix
	return base.String()
}

// Host returns the host that was configured for apps if the request used one, else "".
func (v *Access) Host() string { return v.address.Host }

// withPort returns host:port, or host if port is "".
func withPort(host, port string) string {
	if port == "" {
		return host
	}
	return host + ":" + port
}

// AgentURL returns the URL of an agent below base, see [Access.BaseURL].
func AgentURL(base, agent string) string { return base + "/agents/" + url.PathEscape(agent) }
