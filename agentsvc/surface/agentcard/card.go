// Package agentcard builds the agent cards of the A2A specification, signs them and lists on them how to call an agent.
// [Card] has the members of version 1.0 and those of version 0.3, so that clients of either version find theirs.
package agentcard

import (
	"cmp"
	"encoding/json"
	"net/url"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

type (
	// Card is the card of an agent: the members of 1.0, some of which 0.3 has as well, and then those of 0.3 alone.
	Card struct {
		Members10
		Members03
		Signatures []Signature `json:"signatures,omitempty"`
	}
	// Members10 are the members of version 1.0.
	Members10 struct {
		Name                string            `json:"name"`
		Description         string            `json:"description"`
		Version             string            `json:"version"`
		Provider            *Provider         `json:"provider,omitempty"`
		Capabilities        Capabilities      `json:"capabilities"`
		Skills              []Skill           `json:"skills"`
		SupportedInterfaces []Interface       `json:"supportedInterfaces"`
		DefaultInputModes   []string          `json:"defaultInputModes"`
		DefaultOutputModes  []string          `json:"defaultOutputModes"`
		SecuritySchemes     map[string]Scheme `json:"securitySchemes,omitempty"`
		// SecurityRequirements has its name of the Protocol Buffers, see docs/decisions/card-requirements.md.
		SecurityRequirements []Requirement `json:"security_requirements,omitempty"`
	}
	// Members03 are the members that only version 0.3 has.
	Members03 struct {
		ProtocolVersion      string                `json:"protocolVersion,omitempty"`
		URL                  string                `json:"url"`
		PreferredTransport   string                `json:"preferredTransport,omitempty"`
		AdditionalInterfaces []Transport           `json:"additionalInterfaces"`
		Security             []map[string][]string `json:"security,omitempty"`
		ExtendedCard         bool                  `json:"supportsAuthenticatedExtendedCard"`
	}

	// Signature is a detached JWS (RFC 7515) over the members that version 1.0 has of the card, in base64url.
	Signature struct {
		Protected string `json:"protected"`
		Signature string `json:"signature"`
	}
	// Interface is one way to call an agent, as version 1.0 lists it: address, binding and version.
	Interface struct {
		URL             string `json:"url"`
		ProtocolBinding string `json:"protocolBinding"`
		ProtocolVersion string `json:"protocolVersion"`
		// Tenant is what clients must send as the tenant of their calls, "" = nothing.
		Tenant string `json:"tenant,omitempty"`
	}
	// Transport is one way to call an agent, as version 0.3 lists it.
	Transport struct {
		URL       string `json:"url"`
		Transport string `json:"transport"`
	}
	// Capabilities are the optional parts of the specification that an agent supports.
	Capabilities struct {
		Streaming         bool `json:"streaming"`
		PushNotifications bool `json:"pushNotifications"`
		ExtendedAgentCard bool `json:"extendedAgentCard"`
	}
	// Provider is the organization that offers an agent.
	Provider struct {
		Organization string `json:"organization"`
		URL          string `json:"url"`
	}
	// Skill is one thing that an agent can do.
	Skill struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Tags        []string `json:"tags"`
		Examples    []string `json:"examples,omitempty"`
	}
	// Scheme is a kind of credential: the flat members are for 0.3, the nested ones for 1.0.
	Scheme struct {
		Type         string `json:"type"`
		Scheme       string `json:"scheme,omitempty"`
		BearerFormat string `json:"bearerFormat,omitempty"`
		Name         string `json:"name,omitempty"`
		In           string `json:"in,omitempty"`

		HTTPAuth *HTTPAuthScheme `json:"httpAuthSecurityScheme,omitempty"`
		APIKey   *APIKeyScheme   `json:"apiKeySecurityScheme,omitempty"`
	}
	// HTTPAuthScheme is a credential in the Authorization header.
	HTTPAuthScheme struct {
		Scheme       string `json:"scheme"`
		BearerFormat string `json:"bearerFormat,omitempty"`
	}
	// APIKeyScheme is a credential in a header of its own.
	APIKeyScheme struct {
		Location string `json:"location"`
		Name     string `json:"name"`
	}
	// Requirement names the schemes that are required together.
	Requirement struct {
		Schemes map[string]ScopeList `json:"schemes"`
	}
	// ScopeList has the scopes that a scheme needs, always none here. Empty lists are written as such.
	ScopeList struct {
		List []string `json:"list"`
	}
)

// The versions of A2A that the server speaks and the bindings that it has over HTTP, as cards name them.
const (
	A2A10 = "1.0"
	A2A03 = "0.3"

	bindingRPC  = "JSONRPC"
	bindingREST = "HTTP+JSON"
)

// agentURL returns the URL at which official clients call an agent below base, see [surface.Access.BaseURL].
func agentURL(base, agent string) string { return base + "/a2a/" + url.PathEscape(agent) }

// listInterfaces returns the ways to call an agent, the preferred ones first: clients take the first that they support.
func (b Builder) listInterfaces(v *surface.Request, agent string) []Interface {
	at := agentURL(v.BaseURL(), agent)
	return b.withGRPCInterfaces(v, agent, []Interface{
		{at, bindingRPC, A2A10, ""}, {at, bindingREST, A2A10, ""},
		{at, bindingRPC, A2A03, ""}, {at + "/v0.3", bindingREST, A2A03, ""},
	})
}

// Builder builds cards. The zero value advertises no gRPC and signs nothing. It is read-only.
type Builder struct {
	// GRPC is the gRPC interface that cards advertise.
	GRPC GRPC
	// Sign signs a card, given as JSON; nil = cards are not signed.
	Sign func(card []byte) (Signature, error)
}

// Build returns the card of an agent that the caller may see. The error is that of signing.
func (b Builder) Build(v *surface.Request, c agentsvc.Card) (Card, error) {
	card := Card{
		Members10: Members10{
			Name: c.Name, Description: c.Description, Version: c.Version, Skills: []Skill{},
			Capabilities:      Capabilities{Streaming: true, PushNotifications: SupportsPush(v), ExtendedAgentCard: true},
			DefaultInputModes: MediaTypesOrText(c.InputModes), DefaultOutputModes: MediaTypesOrText(c.OutputModes),
			SupportedInterfaces: b.listInterfaces(v, c.Agent),
		},
		Members03: Members03{ProtocolVersion: A2A03 + ".0", ExtendedCard: true},
	}
	if org, site := v.Runtime.Provider(); org != "" || site != "" {
		card.Provider = &Provider{org, site}
	}
	for _, s := range c.Skills {
		if s.Tags == nil {
			s.Tags = []string{}
		}
		card.Skills = append(card.Skills, Skill{s.ID, s.Name, cmp.Or(s.Description, s.Name), s.Tags, s.Examples})
	}
	// Version 0.3 has one main interface and a list that repeats it.
	for _, i := range card.SupportedInterfaces {
		if i.ProtocolVersion != A2A03 {
			continue
		}
		if card.URL == "" {
			card.URL, card.PreferredTransport = i.URL, i.ProtocolBinding
		}
		card.AdditionalInterfaces = append(card.AdditionalInterfaces, Transport{i.URL, i.ProtocolBinding})
	}
	card.setSecurity(v.SecuritySchemes(c, "/a2a/"+c.Agent))
	return card, card.signWith(b.Sign)
}

// signWith sets the card's signature by f; nil = it has none. The card must be complete by then.
func (c *Card) signWith(f func(card []byte) (Signature, error)) error {
	if f == nil {
		return nil
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	signature, err := f(raw)
	c.Signatures = []Signature{signature}
	return err
}

// setSecurity sets the security schemes that callers may use and those that are required, all of them together.
func (c *Card) setSecurity(schemes []agentsvc.Scheme, require []string) {
	for _, s := range schemes {
		if c.SecuritySchemes == nil {
			c.SecuritySchemes = map[string]Scheme{}
		}
		scheme := Scheme{Type: "http", Scheme: "bearer", BearerFormat: s.Format, HTTPAuth: &HTTPAuthScheme{"bearer", s.Format}}
		if s.Header != "" {
			scheme = Scheme{Type: "apiKey", Name: s.Header, In: "header", APIKey: &APIKeyScheme{"header", s.Header}}
		}
		c.SecuritySchemes[s.Name] = scheme
	}
	if len(require) == 0 {
		return
	}
	all, scopes := map[string][]string{}, map[string]ScopeList{}
	for _, name := range require {
		all[name], scopes[name] = []string{}, ScopeList{[]string{}}
	}
	c.Security, c.SecurityRequirements = []map[string][]string{all}, []Requirement{{scopes}}
}

// MediaTypesOrText returns types, or text/plain if there are none.
func MediaTypesOrText(types []string) []string {
	if len(types) == 0 {
		return []string{"text/plain"}
	}
	return types
}

// SupportsPush reports whether the app sends push notifications to addresses of callers.
func SupportsPush(v *surface.Request) bool {
	return v.Runtime.Notifier() != nil && v.Runtime.PushEnabled()
}
