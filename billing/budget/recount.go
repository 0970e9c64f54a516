package budget

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// The schedule by which the balances of new budgets are computed. A process learns of a new budget some time after it
// was created; calls that it begins before then reserve nothing in it. A call that ends later counts itself
// (recountUnreserved). For the others the balance is computed from the usage rows: every newBudgetInterval while the
// budget is younger than newBudgetAge, then every youngBudgetInterval until it is youngBudgetAge old, by when every
// process has read it ([change.ReloadInterval]).
const (
	newBudgetInterval   = 2 * time.Second
	newBudgetAge        = 20 * time.Second
	youngBudgetInterval = 10 * time.Second
	youngBudgetAge      = 2 * time.Minute
)

// RecountNewBudgets computes the balances of all budgets that were created less than maxAge ago.
func (s *Service) RecountNewBudgets(ctx context.Context, maxAge time.Duration) error {
	_, err := s.rebuildMatching(ctx, func(b Budget) bool { return s.databaseNow().Sub(b.CreatedAt) < maxAge })
	return err
}

// recountRows computes the balances that count rows of an app, which had to wait for the database: their reservations
// may have expired before the rows were written.
func (s *Service) recountRows(ctx context.Context, app db.ID, rows []usage.Row) error {
	var errs []error
	for _, of := range []db.ID{"", app} {
		for _, b := range s.budgets.budgetsOf(of) {
			windows := map[int64]bool{}
			for _, u := range rows {
				if u.Kind != amount.ModelCall && u.Kind != amount.Embedding || !b.Scope.coversCall(u.Agent, u.Owner, u.Provider, u.Model) {
					continue
				}
				since, _ := b.Window.Bounds(u.At, b.location)
				if !windows[since.UnixMicro()] {
					windows[since.UnixMicro()] = true
					_, err := s.rebuildBalance(ctx, b, since)
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// RecordUnreserved counts the usage of a call that began without a reservation in the budgets that apply to it now. It
// writes the usage row; the transaction of the task's log may write the same row, by the same key, which counts once.
func (g *Gate) RecordUnreserved(ctx context.Context, m *usage.Meter, request Request, used agentsvc.Usage) error {
	if list, _ := g.applicableBudgets(g.chargeCurrency(), request); len(list) == 0 {
		return nil
	}
	if err := m.WriteUsage(ctx, request.runFacts(used)); err != nil {
		return err
	}
	return g.recountUnreserved(ctx, request, nil, used.StartedAt)
}

// recountUnreserved computes the balances of the budgets that a call counts in but has not reserved from. began selects
// the window.
func (g *Gate) recountUnreserved(ctx context.Context, request Request, reserved []reservationLine, began time.Time) error {
	var errs []error
	list, _ := g.applicableBudgets(g.chargeCurrency(), request)
next:
	for _, b := range list {
		for _, l := range reserved {
			if l.budget.ID == b.ID {
				continue next
			}
		}
		since, _ := b.Window.Bounds(began, b.location)
		_, err := g.service.rebuildBalance(ctx, b, since)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runFacts returns the call as the facts of a run with one usage event, or as those of an embedding, which the
// [usage.Meter] turns into its row.
func (r Request) runFacts(used agentsvc.Usage) usage.RunFacts {
	if r.Texts > 0 {
		return usage.RunFacts{Agent: r.Agent, Owner: r.Owner, Embedding: &usage.Embedding{
			Call: used.Call, StartedAt: used.StartedAt, Provider: used.Provider, Model: used.Model, Texts: r.Texts, Tokens: used.InputTokens,
		}}
	}
	return usage.RunFacts{Task: r.Task, Epoch: r.Epoch, Agent: r.Agent, Owner: r.Owner, Events: []agentsvc.Event{{Task: r.Task, Usage: &used}}}
}
