package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/tenancy/db/dbtest"
)

// TestTriggersExample starts the example's agents: by a tick, twice, which is one task, and with the message that its
// webhook makes of a delivery.
func TestTriggersExample(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "triggers")
	s := a.Schedules()["reporter"]
	if s == nil || len(a.Schedules()) != 1 {
		t.Fatalf("the schedules are %v", a.Schedules())
	}
	at := time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)
	tick := trigger.Tick{Agent: "reporter", Spec: s.Cron.String(), At: at}
	first, err := a.StartTick(t.Context(), tick)
	again, err2 := a.StartTick(t.Context(), tick)
	if err != nil || err2 != nil || first != again {
		t.Errorf("a tick is the tasks %s and %s (%v, %v)", first, again, err, err2)
	}
	var got agentsvc.Task
	dbtest.WaitUntil(t, "the task ends", func() bool {
		got, err = a.Tasks().Reader.Get(t.Context(), task.Visibility{}, first, store.TaskParts{History: true})
		return err == nil && got.Status.State.IsTerminal()
	})
	if got.Status.Message.Text() != "Nothing has happened." || got.Owner != trigger.TaskOwner("reporter") {
		t.Errorf("the task of %v says %q", got.Owner, got.Status.Message.Text())
	}
	if diff := cmp.Diff(map[string]any{"trigger": "schedule", "scheduled_at": "2026-11-20T09:30:00+01:00"}, got.History[0].Metadata); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tick.Spec = "UTC 0 0 * * *"
	if _, err := a.StartTick(t.Context(), tick); !errors.Is(err, trigger.ErrNoSchedule) {
		t.Errorf("a tick of another schedule: %v", err)
	}
	hook := a.Webhooks()["/webhooks/triage"]
	if hook == nil || hook.ResultTimeout != 30*time.Second {
		t.Fatalf("the webhook is %+v", hook)
	}
	content, err := hook.Input.BuildMessage(t.Context(), "application/json", []byte(`{"issue": {"title": "It is down", "user": {"login": "ana"}}}`))
	if err != nil || content != "ana says: It is down" {
		t.Errorf("a delivery says %q (%v)", content, err)
	}
	outcome, _ := runTurn(t, a, newSubmissionFor("triage", content))
	if outcome.Status.Message.Text() != "Thank you, ana. I look after this: It is down" {
		t.Errorf("the answer is %q", outcome.Status.Message.Text())
	}
}

// TestTriggerProblems checks the paths of problems in schedules and templates.
func TestTriggerProblems(t *testing.T) {
	t.Parallel()
	const src = `
llms: {m: {provider: scripted}}
agents:
  often: {llm: m, trigger: {type: schedule, cron: "* * * * * *"}}
  where: {llm: m, trigger: {type: schedule, cron: "* * * * *", timezone: Nowhere}}
  broken: {llm: m, trigger: {type: webhook, webhook_input: {template: "{{.x"}}}
  off: {llm: m, trigger: {enabled: false, type: schedule, cron: nonsense}}
  nothing: {llm: m, trigger: {type: webhook, secret: "whsec_${EMPTY:}"}}
  uncoded: {llm: m, trigger: {type: webhook, secret: whsec_not-base64}}
  short: {llm: m, trigger: {type: webhook, secret: a-secret-of-the-hooks}}
  asleep: {llm: m, trigger: {enabled: false, type: webhook, secret: x}}
`
	err := checkConfig(src)
	var configErr *document.Error
	if !errors.As(err, &configErr) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range configErr.Problems {
		got = append(got, p.Path)
		if p.Line == 0 {
			t.Errorf("%s has no line", p.Path)
		}
	}
	want := []string{"agents.often.trigger.cron", "agents.where.trigger.timezone", "agents.broken.trigger.webhook_input.template",
		"agents.nothing.trigger.secret", "agents.uncoded.trigger.secret", "agents.short.trigger.secret"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
