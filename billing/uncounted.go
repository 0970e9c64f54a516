package billing

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
)

// The schedule of counting new budgets. A process learns of a new budget some time after it was created; calls that it
// begins before then reserve nothing in it. A call that ends later counts itself (recountUnreserved). For the others
// the balance is computed from the usage rows every recountInterval until the budget is recountOftenAge old, then every
// recountLaterInterval until recountMaxAge, by when every process has read it (reloadInterval).
const (
	recountInterval      = 2 * time.Second
	recountOftenAge      = 20 * time.Second
	recountLaterInterval = 10 * time.Second
	recountMaxAge        = 2 * time.Minute
)

// recountNewBudgets computes the balances of all budgets that are younger than recountMaxAge, by the schedule above.
// The remainder of the division is below recountInterval in one of the ticks of each recountLaterInterval.
func (s *Service) recountNewBudgets(ctx context.Context) error {
	_, err := s.rebuildMatching(ctx, func(b Budget) bool {
		age := s.databaseNow().Sub(b.CreatedAt)
		return age < recountOftenAge || age < recountMaxAge && age%recountLaterInterval < recountInterval
	})
	return err
}

// RecordUnreserved counts the usage of a call that began without a reservation in the budgets that apply to it now. It
// writes the usage row; the transaction of the task's log may write the same row, by the same key, which counts once.
func (a *BudgetGate) RecordUnreserved(ctx context.Context, m *Meter, request UsageRequest, used agentsvc.Usage) error {
	if list, _ := a.applicableBudgets(a.chargeCurrency(), request.Agent, request.Owner, request.Provider, request.Model); len(list) == 0 {
		return nil
	}
	if err := m.WriteUsage(ctx, request.runFacts(used)); err != nil {
		return err
	}
	return a.recountUnreserved(ctx, request, nil, used.StartedAt)
}

// recountUnreserved computes the balances of the budgets that a call counts in but has not reserved from. began selects
// the window.
func (a *BudgetGate) recountUnreserved(ctx context.Context, request UsageRequest, reserved []reservationLine, began time.Time) error {
	var errs []error
	list, _ := a.applicableBudgets(a.chargeCurrency(), request.Agent, request.Owner, request.Provider, request.Model)
next:
	for _, b := range list {
		for _, l := range reserved {
			if l.budget.ID == b.ID {
				continue next
			}
		}
		since, _ := b.Window.Bounds(began, b.location)
		_, err := a.service.RebuildBalance(ctx, b, since)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runFacts returns the call as the facts of a run with one usage event, which the [Meter] turns into its row.
func (a UsageRequest) runFacts(used agentsvc.Usage) RunFacts {
	return RunFacts{Task: a.Task, Epoch: a.Epoch, Agent: a.Agent, Owner: a.Owner, Events: []agentsvc.Event{{Task: a.Task, Usage: &used}}}
}
