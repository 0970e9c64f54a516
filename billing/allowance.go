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

// Allowance is what an app may use: the models of its plan, and its budgets together with those of the platform.
type Allowance struct {
	s      *Service
	tenant db.ID
	plan   string
}

// Allowance returns that of an app that is on a plan, "" = on none.
func (s *Service) Allowance(tenant db.ID, plan string) *Allowance { return &Allowance{s, tenant, plan} }

// currency is that in which the app is charged by now.
func (a *Allowance) currency() string { return a.s.currency(a.plan) }

// Allows reports whether the app's plan lets it use a model.
func (a *Allowance) Allows(provider, model string) bool {
	p, _ := a.s.Plan(a.plan)
	return p.Allows(provider, model)
}

// Bounded reports whether any budget applies to the app. It costs nothing to ask.
func (a *Allowance) Bounded() bool {
	return len(a.s.budgets.of("")) > 0 || len(a.s.budgets.of(a.tenant)) > 0
}

// applying returns the budgets that apply to a call, those of the platform first, in the order in which all lock them, and
// apart those that cover it and count nothing of it: of money in another currency than the call is charged in.
func (a *Allowance) applying(currency, agent string, owner agentsvc.Owner, provider, model string) (list, foreign []Budget) {
	for _, app := range []db.ID{"", a.tenant} {
		for _, b := range a.s.budgets.of(app) {
			switch {
			case !b.Scope.covers(agent, owner, provider, model):
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

// exchange refuses a call that a hard budget of money would not hold, because it is charged in another currency: unless a
// hard one of the same scope, of those that apply, is in that.
func (a *Allowance) exchange(currency string, list, foreign []Budget) error {
	for _, f := range foreign {
		beside := func(b Budget) bool { return b.Hard && b.Unit == InMoney && b.App == f.App && b.Scope == f.Scope }
		if f.Hard && !slices.ContainsFunc(list, beside) {
			return agentsvc.Invalid("", "the hard budget %s is in %s, and the call is charged in %s: the operator must add one of the same scope in that currency, or remove it",
				f.Name, f.Currency, cmp.Or(currency, "no currency"))
		}
	}
	return nil
}

// Check returns an [*agentsvc.ExhaustedError] if a budget that covers whatever a caller asks of an agent is used up, and
// calls beyond it fail. It spares a call that could do nothing; what holds is [Allowance.Reserve].
func (a *Allowance) Check(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if !a.Bounded() {
		return nil
	}
	currency := a.currency()
	list, foreign := a.applying(currency, agent, owner, "", "")
	late := func(b Budget) bool {
		return !b.Hard || b.OnExhausted != Reject || b.Scope.Model != "" || agent == "" && b.Scope.Agent != ""
	}
	if err := a.exchange(currency, list, slices.DeleteFunc(foreign, late)); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, late)
	balances, err := a.s.balances(ctx, list)
	if err != nil {
		return fmt.Errorf("check budgets: %w", err)
	}
	for _, b := range balances {
		if b.Committed >= b.Amount {
			return b.exhausted()
		}
	}
	return nil
}

// Relief is why there is room in a budget that had none: what was used up has changed by itself, or somebody has changed the
// budget. Of one that is gone it is zero.
type Relief struct {
	ChangedAt time.Time // when the budget was
	ChangedBy string
}

// Room returns a relief if the budget of that id, of the app or the platform, has room for so much, or is in nobody's way
// any more, else nil.
func (a *Allowance) Room(ctx context.Context, id string, needs int64) (*Relief, error) {
	for _, app := range []db.ID{"", a.tenant} {
		for _, b := range a.s.budgets.of(app) {
			if b.ID != id {
				continue
			}
			list, err := a.s.balances(ctx, []Budget{b})
			if err != nil || list[0].Hard && list[0].Remaining() < needs {
				return nil, err
			}
			return &Relief{list[0].UpdatedAt, list[0].UpdatedBy}, nil
		}
	}
	return &Relief{}, nil
}

// exhausted is the error of a call that b has no room for.
func (b Balance) exhausted() *agentsvc.ExhaustedError {
	scope := b.Scope.String()
	switch {
	case b.App == "":
		scope = "platform"
	case scope == "":
		scope = "app"
	}
	return &agentsvc.ExhaustedError{Budget: b.Name, ID: b.ID, Scope: scope, Resets: b.ResetsAt, Pauses: b.OnExhausted == Pause}
}

// bound is the most that a model call can cost, by budget.
type bound struct {
	budget Budget
	since  time.Time
	until  time.Time
	amount func(output int64) int64
}

// line is what a reservation takes from one budget.
type line struct {
	budget Budget
	since  time.Time
	until  time.Time
	amount int64
}
