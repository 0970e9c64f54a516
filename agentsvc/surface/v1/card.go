package v1

import (
	"net/http"

	"stoa/agentsvc/surface"
)

// listCards answers with the names under which agents are called and where they live.
func listCards(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	answer := cardList{Agents: []listed{}}
	for _, c := range v.Cards() {
		answer.Agents = append(answer.Agents, listed{c.Agent, surface.AgentURL(v.BaseURL()+"/v1", c.Agent)})
	}
	return surface.WriteJSON(w, http.StatusOK, answer)
}

func card(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	c, err := v.Card(surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	answer := agentCard{
		Name: c.Name, Description: c.Description, Version: c.Version, Capabilities: []string{"streaming", "websocket"}, ContentTypes: c.InputModes,
	}
	if v.NeedsCredential() {
		answer.Security = &security{map[string]scheme{"bearer": {Type: "http", Scheme: "bearer"}}}
	}
	return surface.WriteJSON(w, http.StatusOK, wrappedCard{answer})
}
