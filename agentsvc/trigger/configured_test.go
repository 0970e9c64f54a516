package trigger_test

import (
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/trigger"
)

// TestReadSchedules checks that schedules are read after the secrets of an app are filled in.
func TestReadSchedules(t *testing.T) {
	t.Parallel()
	src := `
llms: {m: {provider: scripted}}
agents:
  daily: {llm: m, trigger: {type: "${KIND}", cron: "0 7 * * *", input: Go.}}
  paused: {llm: m, trigger: {type: schedule, enabled: false, cron: "0 8 * * *", input: Go.}}
  plain: {llm: m}
`
	cfg, err := config.Parse([]byte(src), config.Options{Tenant: true, Lookup: func(name string) (string, bool) { return "schedule", name == "KIND" }})
	if err != nil {
		t.Fatal(err)
	}
	crons, err := trigger.ConfiguredCrons(cfg)
	if err != nil || len(crons) != 1 || crons["daily"] == nil {
		t.Errorf("the schedules are %v, %v", crons, err)
	}
	cfg.Agents["daily"].Trigger.Cron = "soon"
	if _, err := trigger.ConfiguredCrons(cfg); err == nil {
		t.Error("an invalid schedule is no error")
	}
}
