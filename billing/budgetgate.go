package billing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// BudgetGate is what an app may use: the models of its plan, and its budgets together with those of the platform.
type BudgetGate struct {
	service *Service
	tenant  db.ID
	plan    string
}

// NewBudgetGate returns that of an app that is on a plan, "" = on none.
func (s *Service) NewBudgetGate(tenant db.ID, plan string) *BudgetGate {
	return &BudgetGate{s, tenant, plan}
}

// chargeCurrency is that in which the app is charged by now.
func (a *BudgetGate) chargeCurrency() string { return a.service.currencyForPlan(a.plan) }

// AllowsModel reports whether the app's plan lets it use a model.
func (a *BudgetGate) AllowsModel(provider, model string) bool {
	p, _ := a.service.CachedPlan(a.plan)
	return p.AllowsModel(provider, model)
}

// HasBudgets reports whether any budget applies to the app. It costs nothing to ask.
func (a *BudgetGate) HasBudgets() bool {
	return len(a.service.budgets.budgetsOf("")) > 0 || len(a.service.budgets.budgetsOf(a.tenant)) > 0
}

// applicableBudgets returns the budgets that apply to a call, those of the platform first, in the order in which all lock them, and
// apart those that cover it and count nothing of it: of money in another currency than the call is charged in.
func (a *BudgetGate) applicableBudgets(currency, agent string, owner agentsvc.Owner, provider, model string) (list, foreign []Budget) {
	for _, app := range []db.ID{"", a.tenant} {
		for _, b := range a.service.budgets.budgetsOf(app) {
			switch {
			case !b.Scope.coversCall(agent, owner, provider, model):
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

// checkForeignBudgets refuses a call that a hard budget of money would not hold, because it is charged in another currency: unless a
// hard one of the same scope, of those that apply, is in that.
func (a *BudgetGate) checkForeignBudgets(currency string, list, foreign []Budget) error {
	for _, f := range foreign {
		isInCurrency := func(b Budget) bool { return b.Hard && b.Unit == InMoney && b.App == f.App && b.Scope == f.Scope }
		if f.Hard && !slices.ContainsFunc(list, isInCurrency) {
			return agentsvc.NewInvalidError("", "the hard budget %s is in %s, and the call is charged in %s: the operator must add one of the same scope in that currency, or remove it",
				f.Name, f.Currency, cmp.Or(currency, "no currency"))
		}
	}
	return nil
}

// CheckBudget returns an [*agentsvc.BudgetExhaustedError] if a budget that covers whatever a caller asks of an agent is used up, and
// calls beyond it fail. It spares a call that could do nothing; what holds is [Allowance.ReserveUsage].
func (a *BudgetGate) CheckBudget(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if !a.HasBudgets() {
		return nil
	}
	currency := a.chargeCurrency()
	list, foreign := a.applicableBudgets(currency, agent, owner, "", "")
	late := func(b Budget) bool {
		return !b.Hard || b.OnExhausted != Reject || b.Scope.Model != "" || agent == "" && b.Scope.Agent != ""
	}
	if err := a.checkForeignBudgets(currency, list, slices.DeleteFunc(foreign, late)); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, late)
	balances, err := a.service.readBalances(ctx, list)
	if err != nil {
		return fmt.Errorf("check budgets: %w", err)
	}
	for _, b := range balances {
		if b.Committed >= b.Amount {
			return b.exhaustedError()
		}
	}
	return nil
}

// BudgetChange is why there is room in a budget that had none: what was used up has changed by itself, or somebody has changed the
// budget. Of one that is gone it is zero.
type BudgetChange struct {
	ChangedAt time.Time // when the budget was
	ChangedBy string
}

// CheckAvailability returns a relief if the budget of that id, of the app or the platform, has room for so much, or is in nobody's way
// any more, else nil.
func (a *BudgetGate) CheckAvailability(ctx context.Context, id string, needs int64) (*BudgetChange, error) {
	for _, app := range []db.ID{"", a.tenant} {
		for _, b := range a.service.budgets.budgetsOf(app) {
			if b.ID != id {
				continue
			}
			list, err := a.service.readBalances(ctx, []Budget{b})
			if err != nil || list[0].Hard && list[0].Remaining() < needs {
				return nil, err
			}
			return &BudgetChange{list[0].UpdatedAt, list[0].UpdatedBy}, nil
		}
	}
	return &BudgetChange{}, nil
}

// exhaustedError is the error of a call that b has no room for.
func (b Balance) exhaustedError() *agentsvc.BudgetExhaustedError {
	scope := b.Scope.String()
	switch {
	case b.App == "":
		scope = "platform"
	case scope == "":
		scope = "app"
	}
	return &agentsvc.BudgetExhaustedError{Budget: b.Name, ID: b.ID, Scope: scope, ResetsAt: b.ResetsAt, PausesTask: b.OnExhausted == Pause}
}

// costBound is the most that a model call can cost, by budget.
type costBound struct {
	budget    Budget
	since     time.Time
	until     time.Time
	amountFor func(output int64) int64
}

// reservationLine is what a reservation takes from one budget.
type reservationLine struct {
	budget Budget
	since  time.Time
	until  time.Time
	amount int64
}
