package billingapi

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/billing/calendar"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// budgetHandler serves budgets. It is read-only and used by value.
type budgetHandler struct {
	apps    *tenancy.Service
	keys    *authz.APIKeys
	billing *billing.Service
}

// loadBudgetApp returns the app of a budget route, or the zero App for the routes below /admin/budgets, whose
// budgets apply to all apps together.
func (h budgetHandler) loadBudgetApp(ctx context.Context, name string) (tenancy.App, error) {
	if name == "" {
		return tenancy.App{}, nil
	}
	return h.apps.LoadApp(ctx, name)
}

// budgetBody is a budget, in requests and responses.
type budgetBody struct {
	Name  string      `json:"name"`
	Scope scopeBody   `json:"scope"`
	Unit  budget.Unit `json:"unit"`
	// Amount is in tokens, calls or nano-units, by Unit. It is a pointer to distinguish 0 from a missing value.
	Amount *int64 `json:"amount"`
	// AmountDecimal is Amount in whole units of the currency, only for budgets in money.
	AmountDecimal string `json:"amount_decimal,omitempty"`
	// Currency is that of Amount, only for budgets in money.
	Currency string `json:"currency,omitempty"`
	// Window is the period after which the balance starts at 0 again; its days and months begin in Timezone, "" =
	// UTC.
	Window   string `json:"window"`
	Timezone string `json:"timezone"`
	// Hard budgets refuse calls beyond Amount; others only record thresholds.
	Hard bool `json:"hard"`
	// OnExhausted is what a task does when a hard budget is used up: it fails (reject) or waits (pause).
	OnExhausted string `json:"on_exhausted"`
	// Thresholds are percentages of Amount.
	Thresholds []int `json:"thresholds"`
}

// scopeBody restricts a budget to calls of an agent, an API key, a user or a model; empty members do not restrict.
type scopeBody struct {
	Agent string `json:"agent,omitempty"`
	Key   string `json:"key,omitempty"`
	User  string `json:"user,omitempty"`
	Model string `json:"model,omitempty"`
}

// balanceBody is a budget with its balance in the current window.
type balanceBody struct {
	budgetBody
	// Committed is settled usage, Reserved is held back for calls in progress, Remaining is what is left of Amount
	// after both.
	Committed int64 `json:"committed"`
	Reserved  int64 `json:"reserved"`
	Remaining int64 `json:"remaining"`
	// The same in whole units of the currency, only for budgets in money.
	CommittedDecimal string `json:"committed_decimal,omitempty"`
	ReservedDecimal  string `json:"reserved_decimal,omitempty"`
	RemainingDecimal string `json:"remaining_decimal,omitempty"`
	// ResetsAt is the end of the window, null for a budget without one.
	ResetsAt *string `json:"resets_at"`
	// Passed are the thresholds that were reached in the current window.
	Passed    []thresholdBody `json:"passed"`
	CreatedAt *string         `json:"created_at"`
	UpdatedAt *string         `json:"updated_at"`
}

// thresholdBody is a threshold that was passed in the current window, and the balance at that time.
type thresholdBody struct {
	Threshold        int     `json:"threshold"`
	At               *string `json:"at"`
	Committed        int64   `json:"committed"`
	Amount           int64   `json:"amount"`
	CommittedDecimal string  `json:"committed_decimal,omitempty"`
	AmountDecimal    string  `json:"amount_decimal,omitempty"`
}

// newBalanceBody returns a balance; lists are never null.
func newBalanceBody(b budget.Balance) balanceBody {
	decimal := func(n int64) string { return b.Unit.FormatDecimal(n, b.Currency) }
	passed := []thresholdBody{}
	for _, p := range b.PassedThresholds {
		passed = append(passed, thresholdBody{p.Threshold, encode.FormatOptionalTime(p.At), p.Committed, p.Amount, decimal(p.Committed), decimal(p.Amount)})
	}
	return balanceBody{
		newBudgetBody(b.Budget), b.Committed, b.Reserved, b.Remaining(), decimal(b.Committed), decimal(b.Reserved), decimal(b.Remaining()),
		encode.FormatOptionalTime(b.ResetsAt), passed, encode.FormatOptionalTime(b.CreatedAt), encode.FormatOptionalTime(b.UpdatedAt),
	}
}

// newBudgetBody returns the settings of a budget. decodeBudgetUpdate decodes a change over it.
func newBudgetBody(b budget.Budget) budgetBody {
	return budgetBody{
		b.Name, scopeBody(b.Scope), b.Unit, &b.Amount, b.Unit.FormatDecimal(b.Amount, b.Currency), b.Currency, string(b.Window), b.Zone, b.Hard, b.OnExhausted, append([]int{}, b.Thresholds...),
	}
}

// decodeBudget decodes a new budget.
func decodeBudget(o *mutation.Request) (budget.Budget, error) {
	var b budgetBody
	if err := o.DecodeBody(&b, false); err != nil {
		return budget.Budget{}, err
	}
	return b.toBudget()
}

// toBudget returns the domain's budget; package budget validates it.
func (b budgetBody) toBudget() (budget.Budget, error) {
	if b.AmountDecimal != "" && b.Unit != budget.InMoney {
		return budget.Budget{}, agentsvc.NewInvalidError("amount_decimal", "is for budgets of money; this one is in %s, so send amount", b.Unit)
	}
	n, err := mergeAmount("amount", b.Amount, b.AmountDecimal)
	if err != nil {
		return budget.Budget{}, err
	}
	return budget.Budget{
		Name: b.Name, Scope: budget.Scope(b.Scope), Unit: b.Unit, Amount: n, Currency: b.Currency, Window: calendar.Window(b.Window),
		Zone: b.Timezone, Hard: b.Hard, OnExhausted: b.OnExhausted, Thresholds: b.Thresholds,
	}, nil
}

// addBudget creates a budget of an app or of the platform. The name is unique among its budgets.
func (h budgetHandler) addBudget(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	app, err := h.loadBudgetApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	b, err := decodeBudget(o)
	if err != nil {
		return mutation.Result{}, err
	}
	// Package budget cannot check the scope: it does not know configurations and keys. A change cannot alter the
	// scope, so only a new budget is checked.
	if err := h.checkScope(ctx, app, b.Scope); err != nil {
		return mutation.Result{}, err
	}
	made, err := h.billing.Budgets.AddBudget(ctx, o.Actor, app, b)
	return mutation.Result{Status: http.StatusCreated, Body: newBalanceBody(made), AppID: app.ID, CreatedID: made.Name}, err
}

// updateBudget changes a budget. The body is decoded inside the transaction that has locked the budget's row, so
// that two partial changes cannot overwrite each other.
func (h budgetHandler) updateBudget(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	app, err := h.loadBudgetApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	made, err := h.billing.Budgets.UpdateBudget(ctx, o.Actor, app, surface.PathParam(o.HTTP, "budget"), func(was budget.Budget) (budget.Budget, error) {
		return decodeBudgetUpdate(o, was)
	})
	return mutation.Result{Status: http.StatusOK, Body: newBalanceBody(made), AppID: app.ID}, err
}

// decodeBudgetUpdate decodes a change over the current budget was: members that are left out stay unchanged.
func decodeBudgetUpdate(o *mutation.Request, was budget.Budget) (budget.Budget, error) {
	b := newBudgetBody(was)
	// The change may name the amount either way.
	b.Amount, b.AmountDecimal = nil, ""
	if err := o.DecodeBody(&b, false); err != nil {
		return budget.Budget{}, err
	}
	if b.Amount == nil && b.AmountDecimal == "" {
		b.Amount = &was.Amount
	}
	if b.Name != was.Name {
		return budget.Budget{}, agentsvc.NewInvalidError("name", "differs from the name in the path; the name of a budget cannot change")
	}
	return b.toBudget()
}

// deleteBudget deletes a budget with its balances and threshold events.
func (h budgetHandler) deleteBudget(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	app, err := h.loadBudgetApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusNoContent}, h.billing.Budgets.DeleteBudget(ctx, o.Actor, app, surface.PathParam(o.HTTP, "budget"))
}

// handleListBudgets answers an operator with the budgets of an app, or with those of the platform.
func (h budgetHandler) handleListBudgets(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadBudgetApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return h.writeBudgets(w, r, app.ID)
}

// handleListAppBudgets answers an app with its own budgets.
func (h budgetHandler) handleListAppBudgets(w http.ResponseWriter, r *http.Request) error {
	return h.writeBudgets(w, r, surface.RequestOf(r).App.ID)
}

// handleGetBudget answers an operator with a budget of an app, or of the platform.
func (h budgetHandler) handleGetBudget(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadBudgetApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return h.writeBudget(w, r, app.ID)
}

// handleGetAppBudget answers an app with one of its budgets.
func (h budgetHandler) handleGetAppBudget(w http.ResponseWriter, r *http.Request) error {
	return h.writeBudget(w, r, surface.RequestOf(r).App.ID)
}

// writeBudget answers with the budget of the path and its balance; app "" = one of the platform.
func (h budgetHandler) writeBudget(w http.ResponseWriter, r *http.Request, app db.ID) error {
	found, err := h.billing.Budgets.FindBudget(r.Context(), app, surface.PathParam(r, "budget"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newBalanceBody(found))
}

// writeBudgets answers with the budgets of an app and their balances; "" = those of the platform.
func (h budgetHandler) writeBudgets(w http.ResponseWriter, r *http.Request, app db.ID) error {
	found, err := h.billing.Budgets.ListBudgets(r.Context(), app)
	if err != nil {
		return err
	}
	out := make([]balanceBody, len(found))
	for i, b := range found {
		out[i] = newBalanceBody(b)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"budgets": out})
}
