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

// owner returns the app whose budgets a path is about, the zero one for the platform.
func (a admin) owner(ctx context.Context, name string) (tenancy.App, error) {
	if name == "" {
		return tenancy.App{}, nil
	}
	return a.apps.Get(ctx, name)
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
	Committed int64        `json:"committed"`
	Reserved  int64        `json:"reserved"`
	Remaining int64        `json:"remaining"`
	ResetsAt  *string      `json:"resets_at"`
	Passed    []passedBody `json:"passed"`
	CreatedAt *string      `json:"created_at"`
	UpdatedAt *string      `json:"updated_at"`
}

// passedBody is a threshold that was passed in the window under way, and how the budget stood then.
type passedBody struct {
	Threshold int     `json:"threshold"`
	At        *string `json:"at"`
	Committed int64   `json:"committed"`
	Amount    int64   `json:"amount"`
}

func newBalanceBody(b billing.Balance) balanceBody {
	passed := []passedBody{}
	for _, p := range b.Passed {
		passed = append(passed, passedBody{p.Threshold, stamp(p.At), p.Committed, p.Amount})
	}
	return balanceBody{
		newBudgetBody(b.Budget), b.Committed, b.Reserved, b.Remaining(), stamp(b.ResetsAt), passed, stamp(b.CreatedAt), stamp(b.UpdatedAt),
	}
}

func newBudgetBody(b billing.Budget) budgetBody {
	return budgetBody{
		b.Name, scopeBody(b.Scope), b.Unit, &b.Amount, b.Currency, string(b.Window), b.Zone, b.Hard, b.OnExhausted, append([]int{}, b.Thresholds...),
	}
}

// budget reads what a budget is to be.
func (o *order) budget() (billing.Budget, error) {
	var b budgetBody
	if err := o.decode(&b, false); err != nil {
		return billing.Budget{}, err
	}
	return b.budget()
}

func (b budgetBody) budget() (billing.Budget, error) {
	if b.Amount == nil {
		return billing.Budget{}, agentsvc.Invalid("amount", "is missing")
	}
	return billing.Budget{
		Name: b.Name, Scope: billing.Scope(b.Scope), Unit: b.Unit, Amount: *b.Amount, Currency: b.Currency, Window: billing.Window(b.Window),
		Zone: b.Timezone, Hard: b.Hard, OnExhausted: b.OnExhausted, Thresholds: b.Thresholds,
	}, nil
}

func (a admin) addBudget(ctx context.Context, o *order) (answer, error) {
	app, err := a.owner(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	b, err := o.budget()
	if err != nil {
		return answer{}, err
	}
	if err := a.checkScope(ctx, app, b.Scope); err != nil {
		return answer{}, err
	}
	made, err := a.billing.AddBudget(ctx, o.actor, app, b)
	return answer{status: http.StatusCreated, body: newBalanceBody(made), app: app.ID}, err
}

func (a admin) putBudget(ctx context.Context, o *order) (answer, error) {
	app, err := a.owner(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	made, err := a.billing.PutBudget(ctx, o.actor, app, surface.Param(o.r, "budget"), o.changed)
	return answer{status: http.StatusOK, body: newBalanceBody(made), app: app.ID}, err
}

// changed reads what a budget is to be that is there. What is left out stays as it is.
func (o *order) changed(was billing.Budget) (billing.Budget, error) {
	b := newBudgetBody(was)
	if err := o.decode(&b, false); err != nil {
		return billing.Budget{}, err
	}
	if b.Name != was.Name {
		return billing.Budget{}, agentsvc.Invalid("name", "is another one than in the path; a budget keeps its name")
	}
	return b.budget()
}

func (a admin) deleteBudget(ctx context.Context, o *order) (answer, error) {
	app, err := a.owner(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.billing.DeleteBudget(ctx, o.actor, app, surface.Param(o.r, "budget"))
}

func (a admin) budgets(w http.ResponseWriter, r *http.Request) error {
	app, err := a.owner(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	return a.writeBudgets(w, r, app.ID)
}

func (a admin) ownBudgets(w http.ResponseWriter, r *http.Request) error {
	return a.writeBudgets(w, r, surface.VisitOf(r).App.ID)
}

func (a admin) writeBudgets(w http.ResponseWriter, r *http.Request, app db.ID) error {
	found, err := a.billing.Budgets(r.Context(), app)
	if err != nil {
		return err
	}
	out := make([]balanceBody, len(found))
	for i, b := range found {
		out[i] = newBalanceBody(b)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"budgets": out})
}
