package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/billing/amount"
	"stoa/billing/price"
)

// planBody is a plan, in requests and responses.
type planBody struct {
	Name     string `json:"name"`
	Currency string `json:"currency"`
	// Timezone is where the months of invoices begin, a name of the IANA time zone database; "" = UTC.
	Timezone string `json:"timezone,omitempty"`
	// Included are the quantities by meter that the monthly price covers; Overage is the price of what exceeds
	// them.
	Included map[string]int64       `json:"included"`
	Overage  map[string]overageBody `json:"overage"`
	// The limits apply to each app on the plan that has none of its own; 0 = the plan sets none.
	MaxConcurrentTasks int64 `json:"max_concurrent_tasks"`
	QueueDepth         int64 `json:"queue_depth"`
	Weight             int64 `json:"weight"`
	// AllowedModels are patterns of provider/model; an empty list allows every model.
	AllowedModels []string `json:"allowed_models"`
	// Retention bounds how long finished tasks, events and idle sessions are kept; null = it does not.
	Retention *retentionBody `json:"retention"`
	CreatedAt *string        `json:"created_at,omitempty"`
	UpdatedAt *string        `json:"updated_at,omitempty"`
}

// overageBody is a price: Amount for Per units of the meter.
type overageBody struct {
	Per    int64 `json:"per"`
	Amount int64 `json:"amount"`
}

// retentionBody holds Go durations such as "720h"; "" = the plan does not limit it.
type retentionBody struct {
	Tasks    string `json:"tasks,omitempty"`
	Events   string `json:"events,omitempty"`
	Sessions string `json:"sessions,omitempty"`
}

// decodePlan decodes the terms of a plan.
func (o *mutation) decodePlan() (price.Plan, error) {
	var b planBody
	if err := o.decodeBody(&b, false); err != nil {
		return price.Plan{}, err
	}
	p := price.Plan{
		Name: b.Name, Currency: b.Currency, Timezone: b.Timezone, Included: b.Included, Weight: b.Weight, MaxConcurrentTasks: b.MaxConcurrentTasks,
		QueueDepth: b.QueueDepth, AllowedModels: b.AllowedModels,
	}
	// null stays null: the response repeats what was sent.
	if b.Overage != nil {
		p.Overage = make(map[string]price.Overage, len(b.Overage))
	}
	for meter, v := range b.Overage {
		p.Overage[meter] = price.Overage{Per: v.Per, Amount: amount.Money(v.Amount)}
	}
	if r := b.Retention; r != nil {
		for _, f := range []struct {
			name, text string
			to         *time.Duration
		}{{"tasks", r.Tasks, &p.Retention.Tasks}, {"events", r.Events, &p.Retention.Events}, {"sessions", r.Sessions, &p.Retention.Sessions}} {
			// An empty duration means that the plan does not limit it.
			if f.text == "" {
				continue
			}
			var err error
			if *f.to, err = time.ParseDuration(f.text); err != nil || *f.to <= 0 {
				return p, agentsvc.NewInvalidError("retention."+f.name, `must be a time such as "720h"`)
			}
		}
	}
	return p, nil
}

// addPlan creates a plan.
func (a adminAPI) addPlan(ctx context.Context, o *mutation) (mutationResult, error) {
	p, err := o.decodePlan()
	if err == nil {
		p, err = a.billing.Prices.AddPlan(ctx, o.actor, p)
	}
	return mutationResult{status: http.StatusCreated, body: newPlanBody(p)}, err
}

// updatePlan replaces all terms of a plan, for every app that is on it. The name cannot change.
func (a adminAPI) updatePlan(ctx context.Context, o *mutation) (mutationResult, error) {
	p, err := o.decodePlan()
	if err != nil {
		return mutationResult{}, err
	}
	name := surface.PathParam(o.r, "plan")
	if p.Name != "" && p.Name != name {
		return mutationResult{}, agentsvc.NewInvalidError("name", "is another one than in the path; a plan keeps its name")
	}
	// Only the path names the plan; the body may repeat it.
	p.Name = name
	p, err = a.billing.Prices.UpdatePlan(ctx, o.actor, p)
	return mutationResult{status: http.StatusOK, body: newPlanBody(p)}, err
}

// handleGetPlan answers with one plan.
func (a adminAPI) handleGetPlan(w http.ResponseWriter, r *http.Request) error {
	p, err := a.billing.Prices.FindPlan(r.Context(), surface.PathParam(r, "plan"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newPlanBody(p))
}

// handleListPlans answers with all plans.
func (a adminAPI) handleListPlans(w http.ResponseWriter, r *http.Request) error {
	found, err := a.billing.Prices.ListPlans(r.Context())
	if err != nil {
		return err
	}
	out := make([]planBody, len(found))
	for i, p := range found {
		out[i] = newPlanBody(p)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"plans": out})
}

// newPlanBody returns a plan as responses show it; retention is null if the plan limits nothing.
func newPlanBody(p price.Plan) planBody {
	b := planBody{
		Name: p.Name, Currency: p.Currency, Timezone: p.Timezone, Included: p.Included, MaxConcurrentTasks: p.MaxConcurrentTasks, QueueDepth: p.QueueDepth,
		Weight: p.Weight, AllowedModels: p.AllowedModels, CreatedAt: formatTime(p.CreatedAt), UpdatedAt: formatTime(p.UpdatedAt),
	}
	if p.Overage != nil {
		b.Overage = make(map[string]overageBody, len(p.Overage))
	}
	for meter, v := range p.Overage {
		b.Overage[meter] = overageBody{v.Per, int64(v.Amount)}
	}
	if r := p.Retention; r != (price.Retention{}) {
		b.Retention = &retentionBody{formatDuration(r.Tasks), formatDuration(r.Events), formatDuration(r.Sessions)}
	}
	return b
}

// formatDuration returns d as text, "" for 0.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
