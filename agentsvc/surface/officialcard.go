package surface

import (
	"cmp"
	"encoding/json"
	"net/url"

	"stoa/agentsvc"
)

// The card of an agent as official A2A has it: the members of version 1.0 and those of 0.3 beside each other, so that clients of
// either find theirs.
type (
	// OfficialCard is the card.
	OfficialCard struct {
		Name                 string                    `json:"name"`
		Description          string                    `json:"description"`
		Version              string                    `json:"version"`
		Provider             *OfficialProvider         `json:"provider,omitempty"`
		Capabilities         OfficialCapabilities      `json:"capabilities"`
		Skills               []OfficialSkill           `json:"skills"`
		SupportedInterfaces  []Interface               `json:"supportedInterfaces"`
		DefaultInputModes    []string                  `json:"defaultInputModes"`
		DefaultOutputModes   []string                  `json:"defaultOutputModes"`
		SecuritySchemes      map[string]OfficialScheme `json:"securitySchemes,omitempty"`
		SecurityRequirements []OfficialRequirement     `json:"securityRequirements,omitempty"`

		ProtocolVersion      string                `json:"protocolVersion,omitempty"`
		URL                  string                `json:"url"`
		PreferredTransport   string                `json:"preferredTransport,omitempty"`
		AdditionalInterfaces []Transport           `json:"additionalInterfaces"`
		Security             []map[string][]string `json:"security,omitempty"`
		ExtendedCard         bool                  `json:"supportsAuthenticatedExtendedCard"`

		Signatures []CardSignature `json:"signatures,omitempty"`
	}

	// CardSignature is a detached JWS (RFC 7515) over what version 1.0 reads of a card.
	CardSignature struct {
		Protected string `json:"protected"`
		Signature string `json:"signature"`
	}
	// Interface is a way to call an agent.
	Interface struct {
		URL             string `json:"url"`
		ProtocolBinding string `json:"protocolBinding"`
		ProtocolVersion string `json:"protocolVersion"`
		Tenant          string `json:"tenant,omitempty"` // what calls name as such
	}
	// Transport is an interface as version 0.3 tells it.
	Transport struct {
		URL       string `json:"url"`
		Transport string `json:"transport"`
	}
	// OfficialCapabilities is what an agent can do beside answering.
	OfficialCapabilities struct {
		Streaming         bool `json:"streaming"`
		PushNotifications bool `json:"pushNotifications"`
		ExtendedAgentCard bool `json:"extendedAgentCard"`
	}
	// OfficialProvider is who offers an agent.
	OfficialProvider struct {
		Organization string `json:"organization"`
		URL          string `json:"url"`
	}
	// OfficialSkill is one thing that an agent can do.
	OfficialSkill struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Tags        []string `json:"tags"`
		Examples    []string `json:"examples,omitempty"`
	}
	// OfficialScheme is a kind of credential: with a type for 0.3, by the name of the type for 1.0.
	OfficialScheme struct {
		Type         string `json:"type"`
		Scheme       string `json:"scheme,omitempty"`
		BearerFormat string `json:"bearerFormat,omitempty"`
		Name         string `json:"name,omitempty"`
		In           string `json:"in,omitempty"`

		HTTPAuth *HTTPAuthScheme `json:"httpAuthSecurityScheme,omitempty"`
		APIKey   *APIKeyScheme   `json:"apiKeySecurityScheme,omitempty"`
	}
	// HTTPAuthScheme is a credential in the header Authorization.
	HTTPAuthScheme struct {
		Scheme       string `json:"scheme"`
		BearerFormat string `json:"bearerFormat,omitempty"`
	}
	// APIKeyScheme is a credential in a header of its own.
	APIKeyScheme struct {
		Location string `json:"location"`
		Name     string `json:"name"`
	}
	// OfficialRequirement names the credentials that are needed together, and the scopes of each, which are none.
	OfficialRequirement struct {
		Schemes map[string][]string `json:"schemes"`
	}
)

// The versions of A2A that are spoken, and the bindings.
const (
	A2A10 = "1.0"
	A2A03 = "0.3"

	bindingRPC  = "JSONRPC"
	bindingREST = "HTTP+JSON"
)

// A2AURL returns where an agent is called by official clients, below base.
func A2AURL(base, agent string) string { return base + "/a2a/" + url.PathEscape(agent) }

// listInterfaces lists the ways to call an agent, the best first.
func (v *Request) listInterfaces(agent string) []Interface {
	at := A2AURL(v.BaseURL(), agent)
	return v.withGRPCInterfaces(agent, []Interface{
		{at, bindingRPC, A2A10, ""}, {at, bindingREST, A2A10, ""},
		{at, bindingRPC, A2A03, ""}, {at + "/v0.3", bindingREST, A2A03, ""},
	})
}

// BuildOfficialCard returns the card of an agent as official clients read it, signed where cards are.
func (v *Request) BuildOfficialCard(c agentsvc.Card) (OfficialCard, error) {
	card := OfficialCard{
		Name: c.Name, Description: c.Description, Version: c.Version, Skills: []OfficialSkill{},
		Capabilities:      OfficialCapabilities{Streaming: true, PushNotifications: v.SupportsPush(), ExtendedAgentCard: true},
		DefaultInputModes: MediaTypesOrText(c.InputModes), DefaultOutputModes: MediaTypesOrText(c.OutputModes),
		SupportedInterfaces: v.listInterfaces(c.Agent), ProtocolVersion: A2A03 + ".0", ExtendedCard: true,
	}
	if org, site := v.Provider(); org != "" || site != "" {
		card.Provider = &OfficialProvider{org, site}
	}
	for _, s := range c.Skills {
		if s.Tags == nil {
			s.Tags = []string{}
		}
		card.Skills = append(card.Skills, OfficialSkill{s.ID, s.Name, cmp.Or(s.Description, s.Name), s.Tags, s.Examples})
	}
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
	return card, card.signWith(v.server.options.SignCard)
}

// signWith signs the card by f, nil = it stays as it is.
func (c *OfficialCard) signWith(f func(card []byte) (CardSignature, error)) error {
	if f == nil {
		return nil
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	signature, err := f(raw)
	c.Signatures = []CardSignature{signature}
	return err
}

// setSecurity adds the credentials that callers may show, and the names of those that they must, all of them.
func (c *OfficialCard) setSecurity(schemes []agentsvc.Scheme, require []string) {
	for _, s := range schemes {
		if c.SecuritySchemes == nil {
			c.SecuritySchemes = map[string]OfficialScheme{}
		}
		scheme := OfficialScheme{Type: "http", Scheme: "bearer", BearerFormat: s.Format, HTTPAuth: &HTTPAuthScheme{"bearer", s.Format}}
		if s.Header != "" {
			scheme = OfficialScheme{Type: "apiKey", Name: s.Header, In: "header", APIKey: &APIKeyScheme{"header", s.Header}}
		}
		c.SecuritySchemes[s.Name] = scheme
	}
	if len(require) == 0 {
		return
	}
	all := map[string][]string{}
	for _, name := range require {
		all[name] = []string{}
	}
	c.Security, c.SecurityRequirements = []map[string][]string{all}, []OfficialRequirement{{all}}
}

// MediaTypesOrText returns what an agent reads or writes: plain text where it has not said.
func MediaTypesOrText(types []string) []string {
	if len(types) == 0 {
		return []string{plainText}
	}
	return types
}
