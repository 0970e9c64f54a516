package tenancy

import (
	"maps"
	"slices"
	"strings"
)

// CheckAgent refuses the name of an agent that the app's configuration does not have, since what is about it would never
// act. It takes any name where the configuration is not shown.
func (a *App) CheckAgent(field, agent string) error {
	names := agentNames(a.Config)
	if len(names) == 0 || slices.Contains(names, agent) {
		return nil
	}
	return invalidField(field, "there is no agent %.64q in the app; there are %s", agent, strings.Join(names, ", "))
}

// agentNames returns the names of a configuration's agents, in order, none where it does not tell them.
func agentNames(config map[string]any) []string {
	agents, _ := config["agents"].(map[string]any)
	return slices.Sorted(maps.Keys(agents))
}

// checkRateAgents refuses rates of agents that the app does not have under config, but for those that were there before.
func (s *Service) checkRateAgents(rates, before []Rate, config []byte) error {
	app := s.maskedApp(App{}, config)
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
