package surface

import (
	"net/url"
	"strings"

	"stoa/agentsvc"
	"stoa/authz"
)

// Cards lists the agents that the caller may know of: public ones, and to a caller with a credential those internal
// ones that it may read of or call. Private agents are known to nobody.
func (v *Visit) Cards() []agentsvc.Card {
	cards := []agentsvc.Card{}
	for _, c := range v.house.Cards() {
		if v.sees(c) {
			cards = append(cards, c)
		}
	}
	return cards
}

// Card returns an agent's card, the default one's for "". What the caller may not know of is not there.
func (v *Visit) Card(agent string) (agentsvc.Card, error) {
	c, ok := v.house.Card(agent)
	if agent == "" {
		c, ok = v.house.DefaultCard()
	}
	if !ok || !v.sees(c) {
		return agentsvc.Card{}, errNoAgent
	}
	v.about(c)
	return c, nil
}

// Callee returns the card of an agent that the caller is about to use, having been admitted to that. Private agents are
// there for nobody, internal ones for those with a credential.
func (v *Visit) Callee(agent string) (agentsvc.Card, error) {
	c, ok := v.house.Card(agent)
	if !ok || c.Visibility == agentsvc.Private || c.Visibility == agentsvc.Internal && v.Principal.Anonymous {
		return agentsvc.Card{}, errNoAgent
	}
	v.about(c)
	return c, nil
}

// about notes for log and metrics which agent a request is about.
func (v *Visit) about(c agentsvc.Card) {
	if v.rec != nil {
		v.rec.agent = c.Agent
	}
}

func (v *Visit) sees(c agentsvc.Card) bool {
	switch c.Visibility {
	case agentsvc.Public:
		return true
	case agentsvc.Internal:
		return !v.Principal.Anonymous &&
			(v.policy.May(v.Principal, authz.AgentsRead, "") == nil || v.policy.May(v.Principal, authz.AgentsCall, c.Agent) == nil)
	}
	return false
}

// Provider names who offers the app.
func (v *Visit) Provider() (org, site string) { return v.house.Provider() }

// BaseURL returns where the app lives as the caller addressed it: by the host that was configured for apps, or by a
// path below the public URL. It has no slash at its end and holds nothing that only the request said.
func (v *Visit) BaseURL() string {
	base := *v.server.base
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
