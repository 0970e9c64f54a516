package billing

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
)

// Of new budgets: processes hear of one after it was made, so that calls that begin before, or end before, reserve nothing of
// it. What ends later is counted as it ends (recountUnreserved); for the rest the balance is worked out anew until all have
// heard, every few seconds at first.
const (
	recountInterval      = 2 * time.Second
	recountOftenAge      = 20 * time.Second
	recountLaterInterval = 10 * time.Second
	recountMaxAge        = 2 * time.Minute
)

// recountNewBudgets works out the balances of new budgets.
func (s *Service) recountNewBudgets(ctx context.Context) error {
	_, err := s.rebuildMatching(ctx, func(b Budget) bool {
		age := s.databaseNow().Sub(b.CreatedAt)
		return age < recountOftenAge || age < recountMaxAge && age%recountLaterInterval < recountInterval
	})
	return err
}

// RecordUnreserved counts what a call has used for which nothing was reserved with the budgets that apply to it by now, if any
// do. It writes the usage row, which whoever records the call may write as well.
func (a *BudgetGate) RecordUnreserved(ctx context.Context, m *Meter, request UsageRequest, used agentsvc.Usage) error {
	if list, _ := a.applicableBudgets(a.chargeCurrency(), request.Agent, request.Owner, request.Provider, request.Model); len(list) == 0 {
		return nil
	}
	if err := m.WriteUsage(ctx, request.runFacts(used)); err != nil {
		return err
	}
	return a.recountUnreserved(ctx, request, nil, used.StartedAt)
}

// recountUnreserved works out anew the balances of those budgets that a call counts in and that it has not reserved of.
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

// runFacts are what the call that a asked for leaves to be counted.
func (a UsageRequest) runFacts(used agentsvc.Usage) RunFacts {
	return RunFacts{Task: a.Task, Epoch: a.Epoch, Agent: a.Agent, Owner: a.Owner, Events: []agentsvc.Event{{Task: a.Task, Usage: &used}}}
}
