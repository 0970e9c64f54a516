package v1

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/response"
)

// handleListCards answers with the name and URL of every agent that the caller may see.
func handleListCards(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	return response.WriteList(r.Context(), string(v.App.ID), w, "agents", func(yield func(cardEntry) bool) {
		for c := range v.Cards() {
			if !yield(cardEntry{c.Agent, surface.AgentURL(v.BaseURL()+"/v1", c.Agent)}) {
				return
			}
		}
	}, nil)
}

// handleCard answers with the card of one agent, or not found for an agent that the caller may not see.
func handleCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	answer := agentCard{
		Name: c.Name, Description: c.Description, Version: c.Version, Capabilities: []string{"streaming", "websocket"}, ContentTypes: c.InputModes,
	}
	// The names of the schemes that are required together have no member in this card.
	schemes, _ := v.SecuritySchemes(c, "/v1/agents/"+c.Agent)
	for _, s := range schemes {
		if answer.Security == nil {
			answer.Security = &security{map[string]scheme{}}
		}
		answer.Security.Schemes[s.Name] = newSecurityScheme(s)
	}
	return agentcard.WriteCard(w, r, wrappedCard{answer})
}

// newSecurityScheme returns a way to authenticate as cards describe it (OpenAPI 3, Security Scheme Object).
func newSecurityScheme(s agentsvc.Scheme) scheme {
	if s.Header != "" {
		return scheme{Type: "apiKey", Name: s.Header, In: "header"}
	}
	return scheme{Type: "http", Scheme: "bearer"}
}
