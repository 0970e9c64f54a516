package surface

import (
	"net/url"
	"strings"

	"stoa/agentsvc"
	"stoa/authz"
)

// Cards lists the agents that the caller may know of: public ones, and to a caller with a credential those internal
// ones that it may read of or call. Private agents are known to nobody.
func (v *Request) Cards() []agentsvc.Card {
	cards := []agentsvc.Card{}
	for _, c := range v.runtime.Cards() {
		if v.canSee(c) {
			cards = append(cards, c)
		}
	}
	return cards
}

// Card returns an agent's card, the default one's for "". What the caller may not know of is not there.
func (v *Request) Card(agent string) (agentsvc.Card, error) {
	c, ok := v.runtime.Card(agent)
	if agent == "" {
		c, ok = v.runtime.DefaultCard()
	}
	if !ok || !v.canSee(c) {
		return agentsvc.Card{}, errNoAgent
	}
	v.recordAgent(c)
	return c, nil
}

// FindAgent returns the card of an agent that the caller is about to use, having been admitted to that. Private agents are
// there for nobody, internal ones for those with a credential.
func (v *Request) FindAgent(agent string) (agentsvc.Card, error) {
	c, ok := v.runtime.Card(agent)
	if !ok || c.Visibility == agentsvc.Private || c.Visibility == agentsvc.Internal && v.Principal.Anonymous {
		return agentsvc.Card{}, errNoAgent
	}
	v.recordAgent(c)
	return c, nil
}

// recordAgent notes for log and metrics which agent a request is about.
func (v *Request) recordAgent(c agentsvc.Card) {
	if v.record != nil {
		v.record.agent = c.Agent
	}
}

func (v *Request) canSee(c agentsvc.Card) bool {
	switch c.Visibility {
	case agentsvc.Public:
		return true
	case agentsvc.Internal:
		return !v.Principal.Anonymous &&
			(v.policy.Authorize(v.Principal, authz.AgentsRead, "") == nil || v.policy.Authorize(v.Principal, authz.AgentsCall, c.Agent) == nil)
	}
	return false
}

// Provider names who offers the app.
func (v *Request) Provider() (org, site string) { return v.runtime.Provider() }

// BaseURL returns where the app lives as the caller addressed it: by the host that was configured for apps, or by a
// path below the public URL. It has no slash at its end and holds nothing that only the request said.
func (v *Request) BaseURL() string {
	base := *v.server.baseURL
	if v.address.Host != "" {
		base.Host = withPort(v.address.Host, base.Port())
	}
	base.Path = strings.TrimRight(base.Path, "/") + v.address.Prefix
	return base.String()
}

func withPort(host, port string) string {
	if port == "" {
		return host
	}
	return host + ":" + port
}

// AgentURL returns where an agent lives below base.
func AgentURL(base, agent string) string { return base + "/agents/" + url.PathEscape(agent) }
