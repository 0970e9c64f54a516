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
	names := agentNames(a.Config)
	if len(names) == 0 || slices.Contains(names, agent) {
		return nil
	}
	return agentsvc.NewInvalidError(field, "there is no agent %.64q in the app; there are %s", agent, strings.Join(names, ", "))
}

// agentNames returns the names of a decoded configuration's agents, sorted; none if it has no object "agents".
func agentNames(config map[string]any) []string {
	agents, _ := config["agents"].(map[string]any)
	return slices.Sorted(maps.Keys(agents))
}

// checkRateAgents refuses rates for agents that config does not have. Agents that the previous rates before name are
// accepted, so that an old rate whose agent has gone does not block every other change of the limits.
func (s *Service) checkRateAgents(rates, before []Rate, config []byte) error {
	app := s.store.maskedApp(App{}, config)
	for i, r := range rates {
		known := func(b Rate) bool { return b.Agent == r.Agent }
		if r.Agent == "" || slices.ContainsFunc(before, known) {
			continue
		}
		if err := app.CheckAgent(rateField("limits.rate", i)+".agent", r.Agent); err != nil {
			return err
		}
	}
	return nil
}
