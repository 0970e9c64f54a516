package trigger

import "stoa/agentsvc/config"

// ConfiguredCrons returns the schedules of a configuration's enabled triggers, by agent. onInvalid is called for a
// schedule that cannot be parsed, which is left out.
func ConfiguredCrons(cfg *config.Config, onInvalid func(agent string, err error)) map[string]*Cron {
	crons := map[string]*Cron{}
	for _, name := range cfg.AgentNames() {
		t := cfg.Agents[name].Trigger
		if t == nil || !t.Enabled || t.Type != "schedule" {
			continue
		}
		c, err := ParseCron(t.Cron, t.Timezone)
		if err != nil {
			onInvalid(name, err)
			continue
		}
		crons[name] = c
	}
	return crons
}
