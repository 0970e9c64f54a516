package runtime_test

import (
	"errors"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/audit"
)

// TestApprovalExample checks that the approval settings of the example take effect.
func TestApprovalExample(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "approval")
	outcome, _ := runTurn(t, a, newSubmissionFor("clerk", "check and pay 40"))
	if outcome.Status.State != agentsvc.InputRequired || outcome.Status.Message.Text() != "Do you agree to this payment?" {
		t.Fatalf("%s %+v", outcome.Status.State, outcome.Status.Message)
	}
	got, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{}, outcome.ID, store.TaskParts{Approvals: true})
	if err != nil || len(got.Approvals) != 1 || got.Approvals[0].Timeout != 24*time.Hour || got.Approvals[0].Call.Name != "pay" {
		t.Fatalf("%+v (%v)", got.Approvals, err)
	}
	edited := task.DecisionInput{Outcome: agentsvc.OutcomeApproved, Arguments: []byte(`{"sum":7}`)}
	if _, err := a.Tasks().Decisions.Decide(t.Context(), task.Visibility{}, outcome.ID, ana, audit.Origin{}, edited); !errors.Is(err, agentsvc.CodeInvalid) {
		t.Errorf("arguments against the schema: %v", err)
	}
	sub := newSubmissionFor("clerk", "")
	sub.Message.Task, sub.Decisions = outcome.ID, []task.DecisionInput{{Outcome: agentsvc.OutcomeApproved, Arguments: []byte(`{"expression":"3 * 10"}`)}}
	outcome, _ = runTurn(t, a, sub)
	if outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != "Done: 30." {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
}
