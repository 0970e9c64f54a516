package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOffIsInert checks that nothing of a block with enabled: false is left in the configuration, except for what acts
// in any case.
func TestOffIsInert(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, `
llms: {default: {provider: anthropic, api_key: k, thinking: {enabled: false, budget_tokens: 30000}}}
agents: {a: {trigger: {enabled: false, type: webhook, path: /webhooks/x}, notifications: [{enabled: false, id: x, url: "http://x"}]}}
guardrails: {g: {enabled: false, mode: shadow, input: {length: {max_length: 3}}}}
storage: {checkpoint: {enabled: false, strategy: hybrid, interval: 3, recovery: {auto_resume: false, timeout: 60}}}
server: {auth: {enabled: "${OFF}", issuer: "${ISSUER}", excluded_paths: [/]}}
`, Options{Lookup: newMapLookup(map[string]string{"OFF": "false"})})
	no := false
	trigger, notification := *cfg.Agents["a"].Trigger, *cfg.Agents["a"].Notifications[0]
	for name, diff := range map[string]string{
		"thinking":     cmp.Diff(&Thinking{}, cfg.LLMs["default"].Thinking),
		"trigger":      cmp.Diff([]string{"", "", "UTC"}, []string{trigger.Type, trigger.Path, trigger.Timezone}),
		"notification": cmp.Diff([]string{"", "", "webhook"}, []string{notification.ID, notification.URL, notification.Type}),
		"guardrail":    cmp.Diff(&Guardrail{Mode: "enforce"}, cfg.Guardrails["g"]),
		"checkpoint":   cmp.Diff(Checkpoint{Strategy: "event", Recovery: Recovery{AutoResume: &no, Timeout: 60}}, cfg.Storage.Checkpoint),
		"auth":         cmp.Diff([]string{"/health", "/.well-known/agent-card.json"}, cfg.Server.Auth.ExcludedPaths),
	} {
		if diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if trigger.Enabled || notification.Enabled || cfg.Guardrails["g"].Enabled || cfg.Server.Auth.Enabled {
		t.Error("a block that is off is on")
	}
}

// TestDays checks that durations of the configuration may have days.
func TestDays(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, `
llms: {default: {provider: scripted}}
tools: {t: {type: function, handler: calculator, require_approval: true, approval_timeout: "7d"}}
storage: {retention: {tasks: 30d, events: 1d12h, sessions: "${KEEP}"}}
`, Options{Lookup: newMapLookup(map[string]string{"KEEP": "90d"})})
	const day = 24 * time.Hour
	want := Retention{Tasks: 30 * day, Events: 36 * time.Hour, Sessions: 90 * day}
	if diff := cmp.Diff(want, cfg.Storage.Retention); diff != "" || cfg.Tools["t"].ApprovalTimeout != 7*day {
		t.Errorf("approval_timeout %v, retention -want +got:\n%s", cfg.Tools["t"].ApprovalTimeout, diff)
	}
}
