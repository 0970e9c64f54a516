package task

import (
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// BudgetPollInterval is the time between two checks whether the budget that a task waits for has capacity again.
const BudgetPollInterval = 5 * time.Second

// BudgetWait describes what a paused task waits for. It is stored as the arguments of an approval of kind
// AwaitBudget, so its JSON names must not change.
type BudgetWait struct {
	Budget string `json:"budget"`
	ID     string `json:"id"`
	Scope  string `json:"scope"`
	Needs  int64  `json:"needs"`
}

// BudgetChange is why a task that waited for a budget continues.
type BudgetChange struct {
	ChangedAt time.Time // last change of the budget; zero = it was deleted
	ChangedBy string
}

// budgetPartType is the type of the data part with which a task reports that it waits for a budget.
const budgetPartType = "budget"

// isBudgetApproval reports whether a waits for a budget.
func isBudgetApproval(a agentsvc.Approval) bool { return a.Kind == agentsvc.AwaitBudget }

// waitsOnlyForBudgets reports whether every open approval of t waits for a budget.
func waitsOnlyForBudgets(t store.StoredTask) bool {
	return len(t.Approvals) > 0 && !slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return !isBudgetApproval(a) })
}
