package app_test

import (
	"errors"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// TestApprovalExample: what the example says of its tool acts.
func TestApprovalExample(t *testing.T) {
	t.Parallel()
	a := example(t, "approval")
	told, _ := call(t, a, ask("clerk", "check and pay 40"))
	if told.Status.State != agentsvc.InputRequired || told.Status.Message.Text() != "Do you agree to this payment?" {
		t.Fatalf("%s %+v", told.Status.State, told.Status.Message)
	}
	got, err := a.Tasks().Get(t.Context(), task.Reach{}, told.ID, store.With{Approvals: true})
	if err != nil || len(got.Approvals) != 1 || got.Approvals[0].Timeout != 24*time.Hour || got.Approvals[0].Call.Name != "pay" {
		t.Fatalf("%+v (%v)", got.Approvals, err)
	}
	edited := task.Ruling{Verdict: agentsvc.Approve, Arguments: []byte(`{"sum":7}`)}
	var invalid *agentsvc.InvalidError
	if _, err := a.Tasks().Decide(t.Context(), task.Reach{}, told.ID, ana, edited); !errors.As(err, &invalid) {
		t.Errorf("arguments against the schema: %v", err)
	}
	sub := ask("clerk", "")
	sub.Message.Task, sub.Rulings = told.ID, []task.Ruling{{Verdict: agentsvc.Approve, Arguments: []byte(`{"expression":"3 * 10"}`)}}
	told, _ = call(t, a, sub)
	if told.Status.State != agentsvc.Completed || told.Status.Message.Text() != "Done: 30." {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
}
