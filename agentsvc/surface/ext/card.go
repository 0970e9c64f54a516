package ext

import (
	"cmp"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
)

const protocolVersion = "1.0"

func handleListCards(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	cards := v.Cards()
	return surface.WriteList(w, "agents", func(yield func(agentCard) bool) {
		for _, c := range cards {
			if !yield(newCard(v, c)) {
				return
			}
		}
	}, cardTotal{len(cards)})
}

func handleCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	answer, err := newFullCard(v, c)
	if err != nil {
		return err
	}
	return surface.WriteTagged(w, r, answer)
}

// handleDefaultCard answers with the card of the agent that stands for the app.
func handleDefaultCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card("")
	if err != nil {
		return err
	}
	answer, err := newFullCard(v, c)
	if err != nil {
		return err
	}
	return surface.WriteTagged(w, r, answer)
}

// newFullCard returns the card of an agent with what official clients read of it. The address is that of this surface, which is why
// the members that say what version 0.3 finds there are left out: it looks among the interfaces.
func newFullCard(v *surface.Request, c agentsvc.Card) (agentCard, error) {
	card := newCard(v, c)
	if org, site := v.Provider(); org != "" || site != "" {
		card.Provider = &provider{org, org, site}
	}
	official, err := v.BuildOfficialCard(c)
	official.ProtocolVersion, official.PreferredTransport = "", ""
	card.OfficialCard, card.Capabilities.OfficialCapabilities = &official, &official.Capabilities
	return card, err
}

func newCard(v *surface.Request, c agentsvc.Card) agentCard {
	card := agentCard{
		Name: c.Name, Description: c.Description, URL: surface.AgentURL(v.BaseURL(), c.Agent), Version: c.Version,
		ProtocolVersion: protocolVersion, DefaultInputModes: surface.MediaTypesOrText(c.InputModes), DefaultOutputModes: surface.MediaTypesOrText(c.OutputModes),
		Capabilities: capabilities{Streaming: true}, PreferredTransport: "jsonrpc", Skills: []skill{},
	}
	if v.PrefersGRPC() {
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

func newSecurityScheme(s agentsvc.Scheme) securityScheme {
	if s.Header != "" {
		return securityScheme{Type: "apiKey", Name: s.Header, In: "header"}
	}
	return securityScheme{Type: "http", Scheme: "bearer", BearerFormat: s.Format}
}

func handleSchema(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(config.Schema())
	return nil
}
