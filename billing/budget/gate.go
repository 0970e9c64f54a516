package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Gate decides what an app may use: the models of its plan, its own budgets and those of the platform. The
// runtime of an app has one. It has no state of its own, so a changed plan or budget takes effect at the next call.
// [Gate.ReserveBudget] (reserve.go) is what bounds a call; [CostReservation] (settle.go) settles or releases it.
type Gate struct {
	service *Service
	tenant  db.ID
	plan    string
}

// NewGate returns the gate of an app. plan is the name of its plan, "" for none.
func (s *Service) NewGate(tenant db.ID, plan string) *Gate {
	return &Gate{s, tenant, plan}
}

// chargeCurrency returns the currency in which the app is charged now. A reservation keeps the one it began with.
func (g *Gate) chargeCurrency() string { return g.service.prices.CurrencyForPlan(g.plan) }

// AllowsModel reports whether the app's plan allows a model.
func (g *Gate) AllowsModel(provider, model string) bool {
	p, _ := g.service.prices.CachedPlan(g.plan)
	return p.AllowsModel(provider, model)
}

// HasBudgets reports whether the app or the platform has any budget. It reads two map entries, so that an app without
// budgets pays nothing.
func (g *Gate) HasBudgets() bool {
	return len(g.service.budgets.budgetsOf("")) > 0 || len(g.service.budgets.budgetsOf(g.tenant)) > 0
}

// applicableBudgets returns the budgets that apply to a call, and apart from them the foreign ones: those whose scope
// covers the call but that count nothing of it, because they are in money of another currency. The list is sorted by
// app ("" is the platform) and id: all transactions lock balances in this order, which rules out deadlocks.
func (g *Gate) applicableBudgets(currency string, request Request) (list, foreign []Budget) {
	for _, app := range []db.ID{"", g.tenant} {
		for _, b := range g.service.budgets.budgetsOf(app) {
			switch {
			case !b.Scope.coversCall(request.Agent, request.Owner, request.Provider, request.Model):
			case b.Unit == InCalls && request.Texts > 0: // it counts calls of models that answer
			case b.Unit == InMoney && b.Currency != currency:
				foreign = append(foreign, b)
			default:
				list = append(list, b)
			}
		}
	}
	slices.SortFunc(list, func(x, y Budget) int { return cmp.Or(cmp.Compare(x.App, y.App), cmp.Compare(x.ID, y.ID)) })
	return list, foreign
}

// checkForeignBudgets refuses a call that a hard money budget cannot bound because the call is charged in another
// currency. The call is allowed if list has a hard money budget of the same app and scope in the right currency.
// Otherwise a change of the plan's currency would silently disable the budget.
func (g *Gate) checkForeignBudgets(currency string, list, foreign []Budget) error {
	for _, f := range foreign {
		isInCurrency := func(b Budget) bool { return b.Hard && b.Unit == InMoney && b.App == f.App && b.Scope == f.Scope }
		if f.Hard && !slices.ContainsFunc(list, isInCurrency) {
			return agentsvc.NewInvalidError("", "the hard budget %s is in %s, and the call is charged in %s: the operator must add one of the same scope in that currency, or remove it",
				f.Name, f.Currency, cmp.Or(currency, "no currency"))
		}
	}
	return nil
}

// CheckBudget returns an error with the detail [*agentsvc.ExhaustedBudget] if a hard budget that rejects covers every
// call that this request can make and is used up. It only avoids the work of a turn that could do nothing;
// [Gate.ReserveBudget] is what enforces budgets. agent is "" if the request does not name one.
func (g *Gate) CheckBudget(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if !g.HasBudgets() {
		return nil
	}
	currency := g.chargeCurrency()
	list, foreign := g.applicableBudgets(currency, Request{Agent: agent, Owner: owner})
	// late selects the budgets that cannot be judged before the model is known, or that do not reject: soft ones, those
	// that pause the task instead, and those of a model or, while the agent is unknown, of an agent.
	late := func(b Budget) bool {
		return !b.Hard || b.OnExhausted != Reject || b.Scope.Model != "" || agent == "" && b.Scope.Agent != ""
	}
	if err := g.checkForeignBudgets(currency, list, slices.DeleteFunc(foreign, late)); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, late)
	balances, err := g.service.readBalances(ctx, list)
	if err != nil {
		return fmt.Errorf("check budgets: %w", err)
	}
	for _, b := range balances {
		if b.Committed >= b.Amount {
			return b.exhausted().NewError()
		}
	}
	return nil
}

// Change says since when and by whose change a budget covers calls again. It is zero if the budget was deleted;
// ChangedAt is older than the caller's wait if only the usage has changed, such as by a new window.
type Change struct {
	// ChangedAt is when the budget was last changed.
	ChangedAt time.Time
	ChangedBy string
}

// CheckAvailability returns nil while the hard budget of that id, of the app or the platform, has less left than needs.
// Otherwise, also if the budget is soft or deleted, it returns a Change. A task that a budget has paused polls
// it.
func (g *Gate) CheckAvailability(ctx context.Context, id string, needs int64) (*Change, error) {
	for _, app := range []db.ID{"", g.tenant} {
		for _, b := range g.service.budgets.budgetsOf(app) {
			if b.ID != id {
				continue
			}
			list, err := g.service.readBalances(ctx, []Budget{b})
			if err != nil || list[0].Hard && list[0].Remaining() < needs {
				return nil, err
			}
			return &Change{list[0].UpdatedAt, list[0].UpdatedBy}, nil
		}
	}
	return &Change{}, nil
}

// exhausted returns the detail of the error for a call that b cannot cover. Needed is left to the caller.
func (b Balance) exhausted() *agentsvc.ExhaustedBudget {
	scope := b.Scope.String()
	switch {
	case b.App == "":
		scope = "platform"
	case scope == "":
		scope = "app"
	}
	return &agentsvc.ExhaustedBudget{Budget: b.Name, ID: b.ID, Scope: scope, ResetsAt: b.ResetsAt, PausesTask: b.OnExhausted == Pause}
}

// costBound is the upper bound of what a model call adds to one budget.
type costBound struct {
	budget Budget
	// since and until bound the window in which the call counts; until is zero for [calendar.Total].
	since time.Time
	until time.Time
	// amountFor returns the bound for a response of output tokens, in the budget's unit. It never decreases with
	// output.
	amountFor func(output int64) int64
}

// reservationLine is what a reservation takes from one budget, as stored in table reservation_line.
type reservationLine struct {
	budget Budget
	// until is the end of the window, only for the error's ResetsAt. amount is in the budget's unit.
	since  time.Time
	until  time.Time
	amount int64
}
