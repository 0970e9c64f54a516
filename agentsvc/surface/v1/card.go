package v1

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// handleListCards answers with the names under which agents are called and where they live.
func handleListCards(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	answer := cardList{Agents: []cardEntry{}}
	for _, c := range v.Cards() {
		answer.Agents = append(answer.Agents, cardEntry{c.Agent, surface.AgentURL(v.BaseURL()+"/v1", c.Agent)})
	}
	return surface.WriteJSON(w, http.StatusOK, answer)
}

func handleCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	answer := agentCard{
		Name: c.Name, Description: c.Description, Version: c.Version, Capabilities: []string{"streaming", "websocket"}, ContentTypes: c.InputModes,
	}
	schemes, _ := v.SecuritySchemes(c, "/v1/agents/"+c.Agent)
	for _, s := range schemes {
		if answer.Security == nil {
			answer.Security = &security{map[string]scheme{}}
		}
		answer.Security.Schemes[s.Name] = newSecurityScheme(s)
	}
	return surface.WriteJSON(w, http.StatusOK, wrappedCard{answer})
}

func newSecurityScheme(s agentsvc.Scheme) scheme {
	if s.Header != "" {
		return scheme{Type: "apiKey", Name: s.Header, In: "header"}
	}
	return scheme{Type: "http", Scheme: "bearer"}
}
