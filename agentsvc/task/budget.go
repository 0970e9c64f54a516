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

// BudgetPollInterval is the time between two looks whether the budget that a task waits for has room again.
const BudgetPollInterval = 5 * time.Second

// BudgetWait is what a task waits for whose budget is used up: the arguments of its approval.
type BudgetWait struct {
	Budget string `json:"budget"`
	ID     string `json:"id"`
	Scope  string `json:"scope"`
	Needs  int64  `json:"needs"`
}

// BudgetChange is why a task goes on that waited for a budget.
type BudgetChange struct {
	ChangedAt time.Time // when somebody changed the budget last; zero = it is gone
	ChangedBy string
}

// budgetPartType is what the data part is called by which a task tells that it waits for a budget.
const budgetPartType = "budget"

// isBudgetApproval reports whether a waits for a budget.
func isBudgetApproval(a agentsvc.Approval) bool { return a.Kind == agentsvc.AwaitBudget }

// resumeWithinBudget has a task go on whose budgets have room again, and looks again later where they have none. Its run was claimed to
// see to that. It returns [agentsvc.ErrLeaseLost]: there is nothing for this run in either case.
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
	acc := acceptedTurn{run: s.newTurnFactory().newRun(runRequest{priority: store.PriorityNormal, trace: run.Trace})}
	appendStatus(&r, t, agentsvc.Status{State: agentsvc.Working})
	r.NextRun = s.newResumeRun(t, r.Events[len(r.Events)-1].Seq, &acc)
	if err := s.store.RecordDecisions(ctx, t, r); err != nil {
		return err // somebody was faster, or it is looked at again
	}
	s.publishDecisions(t, r, &acc)
	s.dispatchTurn(acc)
	return agentsvc.ErrLeaseLost
}

// loadBudgetChange returns why there is room for what a waits for, nil where there is none.
func (s *Service) loadBudgetChange(ctx context.Context, a agentsvc.Approval) (*BudgetChange, error) {
	var w BudgetWait
	if err := json.Unmarshal(a.Call.Arguments, &w); err != nil || s.options.BudgetAvailability == nil {
		return &BudgetChange{}, nil //nolint:nilerr // the next call finds out
	}
	return s.options.BudgetAvailability(ctx, w)
}

// waitsOnlyForBudgets reports whether all that t waits for is budgets.
func waitsOnlyForBudgets(t store.StoredTask) bool {
	return len(t.Approvals) > 0 && !slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return !isBudgetApproval(a) })
}
