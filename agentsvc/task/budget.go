package task

import (
	"context"
	"encoding/json"
	"errors"
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

// resumeWithinBudget continues a task if all budgets that it waits for have capacity, or postpones its approval by
// BudgetPollInterval. run was woken for this check and has nothing to execute, so the result is
// [agentsvc.ErrLeaseLost] in both cases.
func (s *Service) resumeWithinBudget(ctx context.Context, run store.Run, t store.StoredTask) error {
	var r store.DecisionRecord
	for _, a := range t.Approvals {
		change, err := s.loadBudgetChange(ctx, a)
		if err != nil {
			return err
		}
		if change == nil {
			return errors.Join(agentsvc.ErrLeaseLost, s.store.PostponeApproval(ctx, run, a.Seq, BudgetPollInterval))
		}
		r.AuditEntries = append(r.AuditEntries, newBudgetResumeEntry(t, a, *change))
		r.ClosedApprovals = append(r.ClosedApprovals, a.Seq)
		r.Events = append(r.Events, agentsvc.Event{Frame: a.Frame, Decision: &agentsvc.Decision{
			Call: a.Call.ID, Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(a.Call.Arguments),
		}})
	}
	appendStatus(&r, t, agentsvc.Status{State: agentsvc.Working})
	acc, err := s.commitTurn(ctx, s.newDecisionPlan(opening{priority: store.PriorityNormal, trace: run.Trace}, placement{}, t, r))
	if err != nil {
		return err // the task changed meanwhile, or the run is tried again
	}
	s.dispatchTurn(acc)
	return agentsvc.ErrLeaseLost
}

// loadBudgetChange returns why there is capacity for what a waits for, nil where there is none. Where it cannot be known
// the task continues: its next model call reserves from the budget anyway.
func (s *Service) loadBudgetChange(ctx context.Context, a agentsvc.Approval) (*BudgetChange, error) {
	var w BudgetWait
	if err := json.Unmarshal(a.Call.Arguments, &w); err != nil || s.options.BudgetAvailability == nil {
		return &BudgetChange{}, nil //nolint:nilerr // the next call finds out
	}
	return s.options.BudgetAvailability(ctx, w)
}

// waitsOnlyForBudgets reports whether every open approval of t waits for a budget.
func waitsOnlyForBudgets(t store.StoredTask) bool {
	return len(t.Approvals) > 0 && !slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return !isBudgetApproval(a) })
}
