package tenancy

import (
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// CheckAgent returns an error with [agentsvc.CodeInvalid] for field if the app's configuration has no agent of that name: a
// setting about such an agent would never have an effect. It accepts any name if a carries no Config.
func (a *App) CheckAgent(field, agent string) error {
	agents, _ := a.Config.Decode()["agents"].(map[string]any)
	return checkAgentName(agents, field, agent)
}

// checkAgentName is [App.CheckAgent] for the agents of a configuration; it accepts any name if there are none.
func checkAgentName(agents map[string]any, field, agent string) error {
	if _, known := agents[agent]; known || len(agents) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(agents))
	return agentsvc.NewInvalidError(field, "there is no agent %.64q in the app; there are %s", agent, strings.Join(names, ", "))
}

// checkRateAgents refuses rates for agents that config does not have. Agents that the previous rates before name are
// accepted, so that an old rate whose agent has gone does not block every other change of the limits.
func (s *Service) checkRateAgents(rates, before []Rate, config []byte) error {
	if s.store.options.DecodeConfig == nil || len(rates) == 0 {
		return nil
	}
	doc, err := s.store.options.DecodeConfig(config)
	if err != nil {
		return nil //nolint:nilerr // the check of the configuration reports it
	}
	agents, _ := doc["agents"].(map[string]any)
	for i, r := range rates {
		known := func(b Rate) bool { return b.Agent == r.Agent }
		if r.Agent == "" || slices.ContainsFunc(before, known) {
			continue
		}
		if err := checkAgentName(agents, rateField("limits.rate", i)+".agent", r.Agent); err != nil {
			return err
		}
	}
	return nil
}
