package runner

import (
	"context"
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// pauseForBudget pauses the turn until a budget has capacity for its next model call. The wait is an approval of kind
// AwaitBudget whose timeout is the poll interval: when it expires, a worker claims the run and
// task.approvalExpiry checks the budget again. Other approvals that the agent was about to request are
// dropped; it requests them again when it continues.
func (exe *execution) pauseForBudget(ctx context.Context, e *agentsvc.ExhaustedBudget) error {
	arguments, err := json.Marshal(task.BudgetWait{Budget: e.Budget, ID: e.ID, Scope: e.Scope, Needs: e.Needed})
	if err != nil {
		return err
	}
	exe.gatherReports()
	exe.turn.approvals = []agentsvc.Event{{Approval: &agentsvc.Approval{
		Call: agentsvc.ToolCall{ID: agentsvc.CallID("budget_" + agentsvc.NewID()), Name: e.Budget, Arguments: arguments},
		Kind: agentsvc.AwaitBudget, Prompt: fmt.Sprintf("Paused: %v. The task continues when the budget allows it.", e.NewError()), Timeout: task.BudgetPollInterval,
	}}}
	rec := store.Record{Events: append(exe.pending, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.InputRequired}})}
	exe.pauseRun(&rec)
	return exe.writeRecord(ctx, rec)
}
