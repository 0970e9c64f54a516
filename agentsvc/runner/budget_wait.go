package runner

import (
	"context"
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// pauseForBudget has the turn wait until a budget has room for its next model call. What else it was about to ask for it asks for
// again when it goes on.
func (t *execution) pauseForBudget(ctx context.Context, e *agentsvc.BudgetExhaustedError) error {
	arguments, err := json.Marshal(task.BudgetWait{Budget: e.Budget, ID: e.ID, Scope: e.Scope, Needs: e.Needed})
	if err != nil {
		return err
	}
	t.gatherFindings()
	t.approvals = []agentsvc.Event{{Approval: &agentsvc.Approval{
		Call: agentsvc.ToolCall{ID: agentsvc.CallID("budget_" + agentsvc.NewID()), Name: e.Budget, Arguments: arguments},
		Kind: agentsvc.AwaitBudget, Prompt: fmt.Sprintf("Paused: %v. The task goes on by itself when there is room again.", e), Timeout: task.BudgetPollInterval,
	}}}
	rec := store.Record{Events: append(t.pending, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.InputRequired}})}
	t.pauseRun(&rec)
	return t.writeRecord(ctx, rec)
}
