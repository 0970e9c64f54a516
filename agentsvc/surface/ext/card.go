package ext

import (
	"cmp"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/response"
)

// protocolVersion is the version of this surface's own card format, not that of official A2A.
const protocolVersion = "1.0"

// cardHandler serves the cards of agents. It is read-only and used by value.
type cardHandler struct{ cards agentcard.Builder }

// handleListCards answers with the short cards of all agents that the caller may see. [response.WriteList] encodes
// one card at a time: the list of a large app must not be in memory for every caller at once.
func (h cardHandler) handleListCards(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	var total cardTotal
	return response.WriteList(r.Context(), string(v.App.ID), w, "agents", func(yield func(agentCard) bool) {
		for c := range v.Cards() {
			total.Total++
			if !yield(h.newCard(v, c)) {
				return
			}
		}
	}, &total)
}

// handleCard answers with the full card of one agent. An agent that the caller may not see is not found. The member url
// is that of this surface, so the members that describe what version 0.3 finds at url are cleared: a client of 0.3 then
// looks into the additional interfaces.
func (h cardHandler) handleCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	answer, err := h.newFullCard(v, c)
	if err != nil {
		return err
	}
	answer.Card.ProtocolVersion, answer.Card.PreferredTransport = "", ""
	return agentcard.WriteCard(w, r, answer)
}

// handleDefaultCard answers with the full card of the app's default agent. It is the card that clients find by the
// host's name alone, so it must be one for clients of version 0.3 as well, which read the agent's address in url: the
// official endpoint, in place of this surface's.
func (h cardHandler) handleDefaultCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card("")
	if err != nil {
		return err
	}
	answer, err := h.newFullCard(v, c)
	if err != nil {
		return err
	}
	answer.URL = answer.Card.URL
	return agentcard.WriteCard(w, r, answer)
}

// newFullCard returns a card with the members of the official A2A card added. The signature covers the official members
// of version 1.0 as [agentcard.Builder.Build] encodes them, so members of the same name must have the same value here.
func (h cardHandler) newFullCard(v *surface.Request, c agentsvc.Card) (agentCard, error) {
	card := h.newCard(v, c)
	if org, site := v.Runtime.Provider(); org != "" || site != "" {
		card.Provider = &provider{org, org, site}
	}
	official, err := h.cards.Build(v, c)
	card.Card, card.Capabilities.Capabilities = &official, &official.Capabilities
	return card, err
}

// newCard returns the short card of an agent: the members of this surface alone.
func (h cardHandler) newCard(v *surface.Request, c agentsvc.Card) agentCard {
	card := agentCard{
		Name: c.Name, Description: c.Description, URL: surface.AgentURL(v.BaseURL(), c.Agent), Version: c.Version,
		ProtocolVersion: protocolVersion, DefaultInputModes: agentcard.MediaTypesOrText(c.InputModes), DefaultOutputModes: agentcard.MediaTypesOrText(c.OutputModes),
		Capabilities: capabilities{Streaming: true}, PreferredTransport: "jsonrpc", Skills: []skill{},
	}
	// The operator prefers gRPC (server.transport: grpc); the endpoint for it is in the official members.
	if h.cards.PrefersGRPC() {
		card.PreferredTransport = "grpc"
	}
	for _, s := range c.Skills {
		if s.Tags == nil {
			s.Tags = []string{}
		}
		card.Skills = append(card.Skills, skill{s.ID, s.Name, cmp.Or(s.Description, s.Name), s.Tags})
	}
	schemes, require := v.SecuritySchemes(c, "/agents/"+c.Agent)
	for _, s := range schemes {
		if card.SecuritySchemes == nil {
			card.SecuritySchemes = map[string]securityScheme{}
		}
		card.SecuritySchemes[s.Name] = newSecurityScheme(s)
	}
	if len(require) > 0 {
		all := map[string][]string{}
		for _, name := range require {
			all[name] = []string{}
		}
		card.Security = []map[string][]string{all}
	}
	return card
}

// newSecurityScheme returns a way to authenticate as cards describe it (OpenAPI 3, Security Scheme Object).
func newSecurityScheme(s agentsvc.Scheme) securityScheme {
	if s.Header != "" {
		return securityScheme{Type: "apiKey", Name: s.Header, In: "header"}
	}
	return securityScheme{Type: "http", Scheme: "bearer", BearerFormat: s.Format}
}

// handleSchema answers with the JSON Schema of app configurations.
func handleSchema(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(config.Schema())
	return nil
}
