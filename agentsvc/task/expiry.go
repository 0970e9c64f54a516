package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/tenancy/audit"
)

// approvalExpiry resolves what a tenant's tasks wait for without a human: approvals whose timeout has passed, and
// budgets that have capacity again.
type approvalExpiry struct {
	turns *pipeline
	store *store.Store
	// budgetAvailability is [Options].BudgetAvailability.
	budgetAvailability func(ctx context.Context, w BudgetWait) (*BudgetChange, error)
	hash               func(text []byte) string
}

// handleTimeout handles a run that the queue woke because an approval's timeout has passed. It rejects or fails the
// task for the expired approvals, or continues a task that waits only for budgets. If nothing is overdue any more,
// because a decision was made or the time extended, the run rests again. It returns [agentsvc.ErrLeaseLost] in all
// these cases, since this run has nothing to execute, and other errors of the database.
func (e *approvalExpiry) handleTimeout(ctx context.Context, memory *capacity.MemoryReservation, run store.Run) error {
	for {
		t, err := e.store.Tasks.Load(ctx, memory, run.Task, store.TaskParts{Approvals: true})
		if err != nil {
			return err
		}
		if t.Turn != run.Turn || !t.Status.State.IsInterrupted() {
			return agentsvc.ErrLeaseLost
		}
		if waitsOnlyForBudgets(t) {
			return e.resumeWithinBudget(ctx, run, t)
		}
		late, err := e.store.Approvals.ListOverdue(ctx, run.Task)
		if err != nil {
			return err
		}
		r, status := e.resolveOverdue(t, late)
		if len(r.ClosedApprovals) == 0 {
			return errors.Join(agentsvc.ErrLeaseLost, e.store.Runs.Unclaim(ctx, run))
		}
		appendStatus(&r, t, status)
		switch err = e.store.Approvals.RecordDecisions(ctx, t, r); {
		case err == nil:
			e.turns.hub.publishEvents(topicKey{e.turns.tenant, t.ID}, r.Events...)
			return agentsvc.ErrLeaseLost
		case !errors.Is(err, agentsvc.ErrTaskChanged) || ctx.Err() != nil:
			return err
		}
	}
}

// resolveOverdue returns the decisions and the status that follow from t's expired approvals, whose sequences are
// late: a call without a decision rejects the task; if only credentials are missing, it fails.
func (e *approvalExpiry) resolveOverdue(t store.StoredTask, late []int64) (r store.DecisionRecord, status agentsvc.Status) {
	state := agentsvc.Failed
	var why []string
	var tools []any
	for _, a := range t.Approvals {
		if !slices.Contains(late, a.Seq) {
			continue
		}
		addDecision(e.hash, &r, t, a, agentsvc.Decision{Call: a.Call.ID, Outcome: agentsvc.OutcomeExpired}, audit.Origin{})
		reason := fmt.Sprintf("Nobody supplied the credential for %s within %v.", a.Credential.Tool, a.Timeout)
		if a.NeedsDecision() {
			state = agentsvc.Rejected
			reason = fmt.Sprintf("Nobody decided about the call of %s within %v.", a.Call.Name, a.Timeout)
		}
		if !slices.Contains(why, reason) {
			why, tools = append(why, reason), append(tools, a.Credential.Tool)
		}
	}
	status = newStatus(t.ID, state, why)
	if state == agentsvc.Failed {
		setFailure(&status, agentsvc.Failure{Code: agentsvc.FailurePrecondition, Details: map[string]any{"credentials": tools}})
	}
	return r, status
}

// resumeWithinBudget continues a task if all budgets that it waits for have capacity, or postpones its approval by
// BudgetPollInterval. run was woken for this check and has nothing to execute, so the result is
// [agentsvc.ErrLeaseLost] in both cases.
func (e *approvalExpiry) resumeWithinBudget(ctx context.Context, run store.Run, t store.StoredTask) error {
	var r store.DecisionRecord
	for _, a := range t.Approvals {
		change, err := e.loadBudgetChange(ctx, a)
		if err != nil {
			return err
		}
		if change == nil {
			return errors.Join(agentsvc.ErrLeaseLost, e.store.Approvals.Postpone(ctx, run, a.Seq, BudgetPollInterval))
		}
		r.AuditEntries = append(r.AuditEntries, newBudgetResumeEntry(t, a, *change))
		r.ClosedApprovals = append(r.ClosedApprovals, a.Seq)
		r.Events = append(r.Events, agentsvc.Event{Frame: a.Frame, Decision: &agentsvc.Decision{
			Call: a.Call.ID, Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(a.Call.Arguments),
		}})
	}
	appendStatus(&r, t, agentsvc.Status{State: agentsvc.Working})
	acc, err := e.turns.commit(ctx, e.turns.newDecisionPlan(opening{priority: store.PriorityNormal, trace: run.Trace, roles: run.Roles}, placement{}, t, r))
	switch {
	case errors.Is(err, agentsvc.ErrTaskChanged):
		return agentsvc.ErrLeaseLost
	case err != nil:
		return err // the run is tried again
	}
	e.turns.dispatch(acc)
	return agentsvc.ErrLeaseLost
}

// loadBudgetChange returns why there is capacity for what a waits for, nil where there is none. Where it cannot be known
// the task continues: its next model call reserves from the budget anyway.
func (e *approvalExpiry) loadBudgetChange(ctx context.Context, a agentsvc.Approval) (*BudgetChange, error) {
	var w BudgetWait
	if err := json.Unmarshal(a.Call.Arguments, &w); err != nil || e.budgetAvailability == nil {
		return &BudgetChange{}, nil //nolint:nilerr // the next call finds out
	}
	return e.budgetAvailability(ctx, w)
}
