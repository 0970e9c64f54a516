package ops

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// loadBudgetApp returns the app whose budgets a path is about, the zero one for the platform.
func (a adminAPI) loadBudgetApp(ctx context.Context, name string) (tenancy.App, error) {
	if name == "" {
		return tenancy.App{}, nil
	}
	return a.apps.LoadApp(ctx, name)
}

type budgetBody struct {
	Name        string       `json:"name"`
	Scope       scopeBody    `json:"scope"`
	Unit        billing.Unit `json:"unit"`
	Amount      *int64       `json:"amount"`
	Currency    string       `json:"currency,omitempty"`
	Window      string       `json:"window"`
	Timezone    string       `json:"timezone"`
	Hard        bool         `json:"hard"`
	OnExhausted string       `json:"on_exhausted"`
	Thresholds  []int        `json:"thresholds"`
}

type scopeBody struct {
	Agent string `json:"agent,omitempty"`
	Key   string `json:"key,omitempty"`
	User  string `json:"user,omitempty"`
	Model string `json:"model,omitempty"`
}

type balanceBody struct {
	budgetBody
	Committed int64           `json:"committed"`
	Reserved  int64           `json:"reserved"`
	Remaining int64           `json:"remaining"`
	ResetsAt  *string         `json:"resets_at"`
	Passed    []thresholdBody `json:"passed"`
	CreatedAt *string         `json:"created_at"`
	UpdatedAt *string         `json:"updated_at"`
}

// thresholdBody is a threshold that was passed in the window under way, and how the budget stood then.
type thresholdBody struct {
	Threshold int     `json:"threshold"`
	At        *string `json:"at"`
	Committed int64   `json:"committed"`
	Amount    int64   `json:"amount"`
}

func newBalanceBody(b billing.Balance) balanceBody {
	passed := []thresholdBody{}
	for _, p := range b.PassedThresholds {
		passed = append(passed, thresholdBody{p.Threshold, formatTime(p.At), p.Committed, p.Amount})
	}
	return balanceBody{
		newBudgetBody(b.Budget), b.Committed, b.Reserved, b.Remaining(), formatTime(b.ResetsAt), passed, formatTime(b.CreatedAt), formatTime(b.UpdatedAt),
	}
}

func newBudgetBody(b billing.Budget) budgetBody {
	return budgetBody{
		b.Name, scopeBody(b.Scope), b.Unit, &b.Amount, b.Currency, string(b.Window), b.Zone, b.Hard, b.OnExhausted, append([]int{}, b.Thresholds...),
	}
}

// decodeBudget reads what a budget is to be.
func (o *mutation) decodeBudget() (billing.Budget, error) {
	var b budgetBody
	if err := o.decodeBody(&b, false); err != nil {
		return billing.Budget{}, err
	}
	return b.toBudget()
}

func (b budgetBody) toBudget() (billing.Budget, error) {
	if b.Amount == nil {
		return billing.Budget{}, agentsvc.NewInvalidError("amount", "is missing")
	}
	return billing.Budget{
		Name: b.Name, Scope: billing.Scope(b.Scope), Unit: b.Unit, Amount: *b.Amount, Currency: b.Currency, Window: billing.Window(b.Window),
		Zone: b.Timezone, Hard: b.Hard, OnExhausted: b.OnExhausted, Thresholds: b.Thresholds,
	}, nil
}

func (a adminAPI) addBudget(ctx context.Context, o *mutation) (mutationResult, error) {
	app, err := a.loadBudgetApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	b, err := o.decodeBudget()
	if err != nil {
		return mutationResult{}, err
	}
	if err := a.checkScope(ctx, app, b.Scope); err != nil {
		return mutationResult{}, err
	}
	made, err := a.billing.AddBudget(ctx, o.actor, app, b)
	return mutationResult{status: http.StatusCreated, body: newBalanceBody(made), appID: app.ID}, err
}

func (a adminAPI) updateBudget(ctx context.Context, o *mutation) (mutationResult, error) {
	app, err := a.loadBudgetApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	made, err := a.billing.UpdateBudget(ctx, o.actor, app, surface.PathParam(o.r, "budget"), o.decodeBudgetUpdate)
	return mutationResult{status: http.StatusOK, body: newBalanceBody(made), appID: app.ID}, err
}

// decodeBudgetUpdate reads what a budget is to be that is there. What is left out stays as it is.
func (o *mutation) decodeBudgetUpdate(was billing.Budget) (billing.Budget, error) {
	b := newBudgetBody(was)
	if err := o.decodeBody(&b, false); err != nil {
		return billing.Budget{}, err
	}
	if b.Name != was.Name {
		return billing.Budget{}, agentsvc.NewInvalidError("name", "is another one than in the path; a budget keeps its name")
	}
	return b.toBudget()
}

func (a adminAPI) deleteBudget(ctx context.Context, o *mutation) (mutationResult, error) {
	app, err := a.loadBudgetApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	return mutationResult{status: http.StatusNoContent}, a.billing.DeleteBudget(ctx, o.actor, app, surface.PathParam(o.r, "budget"))
}

func (a adminAPI) handleListBudgets(w http.ResponseWriter, r *http.Request) error {
	app, err := a.loadBudgetApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return a.writeBudgets(w, r, app.ID)
}

func (a adminAPI) handleListAppBudgets(w http.ResponseWriter, r *http.Request) error {
	return a.writeBudgets(w, r, surface.RequestOf(r).App.ID)
}

func (a adminAPI) writeBudgets(w http.ResponseWriter, r *http.Request, app db.ID) error {
	found, err := a.billing.ListBudgets(r.Context(), app)
	if err != nil {
		return err
	}
	out := make([]balanceBody, len(found))
	for i, b := range found {
		out[i] = newBalanceBody(b)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"budgets": out})
}
