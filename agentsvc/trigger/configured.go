package trigger

import (
	"fmt"

	"stoa/agentsvc/config"
)

// ConfiguredCrons returns the schedules of a configuration's enabled triggers, by agent.
func ConfiguredCrons(cfg *config.Config) (map[string]*Cron, error) {
	crons := map[string]*Cron{}
	for _, name := range cfg.AgentNames() {
		t := cfg.Agents[name].Trigger
		if t == nil || !t.Enabled || t.Type != "schedule" {
			continue
		}
		c, err := ParseCron(t.Cron, t.Timezone)
		if err != nil {
			return nil, fmt.Errorf("read the schedule of the agent %s: %w", name, err)
		}
		crons[name] = c
	}
	return crons, nil
}
