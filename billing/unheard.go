package billing

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
)

// Of new budgets: processes hear of one after it was made, so that calls that begin before, or end before, reserve nothing of
// it. What ends later is counted as it ends (catchUp); for the rest the balance is worked out anew until all have
// heard, every few seconds at first.
const (
	settleEvery = 2 * time.Second
	freshFor    = 20 * time.Second
	settleLater = 10 * time.Second
	settling    = 2 * time.Minute
)

// settleDown works out the balances of new budgets.
func (s *Service) settleDown(ctx context.Context) error {
	_, err := s.rebuildSome(ctx, func(b Budget) bool {
		age := s.now().Sub(b.CreatedAt)
		return age < freshFor || age < settling && age%settleLater < settleEvery
	})
	return err
}

// Spent counts what a call has used for which nothing was reserved with the budgets that apply to it by now, if any
// do. It writes the usage row, which whoever records the call may write as well.
func (a *Allowance) Spent(ctx context.Context, m *Meter, ask Ask, used agentsvc.Usage) error {
	if list, _ := a.applying(a.currency(), ask.Agent, ask.Owner, ask.Provider, ask.Model); len(list) == 0 {
		return nil
	}
	if err := m.Write(ctx, ask.facts(used)); err != nil {
		return err
	}
	return a.catchUp(ctx, ask, nil, used.Began)
}

// catchUp works out anew the balances of those budgets that a call counts in and that it has not reserved of.
func (a *Allowance) catchUp(ctx context.Context, ask Ask, reserved []line, began time.Time) error {
	var errs []error
	list, _ := a.applying(a.currency(), ask.Agent, ask.Owner, ask.Provider, ask.Model)
next:
	for _, b := range list {
		for _, l := range reserved {
			if l.budget.ID == b.ID {
				continue next
			}
		}
		since, _ := b.Window.Bounds(began, b.zone)
		_, err := a.s.Rebuild(ctx, b, since)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// facts are what the call that a asked for leaves to be counted.
func (a Ask) facts(used agentsvc.Usage) Facts {
	return Facts{Task: a.Task, Epoch: a.Epoch, Agent: a.Agent, Owner: a.Owner, Events: []agentsvc.Event{{Task: a.Task, Usage: &used}}}
}
