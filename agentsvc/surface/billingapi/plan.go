package billingapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/duration"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
	"stoa/billing/amount"
	"stoa/billing/price"
)

// planHandler serves plans. It is read-only and used by value.
type planHandler struct {
	billing *billing.Service
}

// planBody is a plan, in requests and responses.
type planBody struct {
	Name     string `json:"name"`
	Currency string `json:"currency"`
	// Timezone is where the months of invoices begin, a name of the IANA time zone database; "" = UTC.
	Timezone string `json:"timezone,omitempty"`
	// BaseFee is charged for each month; Taxes are added to the net amount of invoices.
	BaseFee        int64     `json:"base_fee"`
	BaseFeeDecimal string    `json:"base_fee_decimal"`
	Taxes          []taxBody `json:"taxes"`
	// Included are the quantities by meter that the base fee covers; Overage is the price of what exceeds
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
	// Documents bounds what each app on the plan stores for retrieval; null = the plan sets nothing.
	Documents *price.DocumentLimits `json:"documents"`
	CreatedAt *string               `json:"created_at,omitempty"`
	UpdatedAt *string               `json:"updated_at,omitempty"`
}

// planAnswer is a plan in responses. A request may send it back.
type planAnswer struct {
	planBody
	// Warnings say in words what keeps the plan from charging.
	Warnings []string `json:"warnings,omitempty"`
}

// overageBody is a price: Amount for Per units of the meter.
type overageBody struct {
	Per     int64  `json:"per"`
	Amount  *int64 `json:"amount"`
	Decimal string `json:"amount_decimal,omitempty"`
}

// taxBody is a tax.
type taxBody struct {
	Name    string     `json:"name"`
	Percent percentage `json:"percent"`
}

// percentage is a number or its text, such as 19 or 8.875. [amount.ParsePercent] checks it: its error names the field.
type percentage string

// UnmarshalJSON keeps the text of a number, or of a string.
func (p *percentage) UnmarshalJSON(b []byte) error {
	*p = percentage(strings.Trim(string(b), `"`))
	return nil
}

// MarshalJSON encodes p, which is a percentage of the domain, as a number.
func (p percentage) MarshalJSON() ([]byte, error) { return []byte(p), nil }

// retentionBody holds Go durations such as "720h"; "" = the plan does not limit it.
type retentionBody struct {
	Tasks    string `json:"tasks,omitempty"`
	Events   string `json:"events,omitempty"`
	Sessions string `json:"sessions,omitempty"`
}

// decodePlan decodes the terms of a plan.
func decodePlan(o *mutation.Request) (price.Plan, error) {
	var b planAnswer
	if err := o.DecodeBody(&b, false); err != nil {
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
		n, err := mergeAmount("overage."+meter+".amount", v.Amount, v.Decimal)
		if err != nil {
			return p, err
		}
		p.Overage[meter] = price.Overage{Per: v.Per, Amount: amount.Money(n)}
	}
	fee, err := mergeAmount("base_fee", &b.BaseFee, b.BaseFeeDecimal)
	if err != nil {
		return p, err
	}
	p.BaseFee = amount.Money(fee)
	for i, tax := range b.Taxes {
		rate, err := amount.ParsePercent(string(tax.Percent))
		if err != nil {
			return p, agentsvc.NewInvalidError(fmt.Sprintf("taxes[%d].percent", i), "%v", err)
		}
		p.Taxes = append(p.Taxes, price.Tax{Name: tax.Name, Rate: rate})
	}
	if b.Documents != nil {
		p.Documents = *b.Documents
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
			if *f.to, err = duration.Parse(f.text); err != nil || *f.to <= 0 {
				return p, agentsvc.NewInvalidError("retention."+f.name, `must be a time such as "30d"`)
			}
		}
	}
	return p, nil
}

// addPlan creates a plan.
func (h planHandler) addPlan(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	p, err := decodePlan(o)
	if err == nil {
		p, err = h.billing.Prices.AddPlan(ctx, o.Actor, p)
	}
	return mutation.Result{Status: http.StatusCreated, Body: h.newPlanAnswer(p), CreatedID: p.Name}, err
}

// updatePlan replaces all terms of a plan, for every app that is on it. The name cannot change.
func (h planHandler) updatePlan(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	p, err := decodePlan(o)
	if err != nil {
		return mutation.Result{}, err
	}
	name := surface.PathParam(o.HTTP, "plan")
	if p.Name != "" && p.Name != name {
		return mutation.Result{}, agentsvc.NewInvalidError("name", "differs from the name in the path; the name of a plan cannot change")
	}
	// Only the path names the plan; the body may repeat it.
	p.Name = name
	p, err = h.billing.Prices.UpdatePlan(ctx, o.Actor, p)
	return mutation.Result{Status: http.StatusOK, Body: h.newPlanAnswer(p)}, err
}

// handleGetPlan answers with one plan.
func (h planHandler) handleGetPlan(w http.ResponseWriter, r *http.Request) error {
	p, err := h.billing.Prices.FindPlan(r.Context(), surface.PathParam(r, "plan"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, h.newPlanAnswer(p))
}

// handleListPlans answers with all plans.
func (h planHandler) handleListPlans(w http.ResponseWriter, r *http.Request) error {
	found, err := h.billing.Prices.ListPlans(r.Context())
	if err != nil {
		return err
	}
	out := make([]planAnswer, len(found))
	for i, p := range found {
		out[i] = h.newPlanAnswer(p)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"plans": out})
}

// newPlanAnswer returns a plan as responses show it; retention is null if the plan limits nothing.
func (h planHandler) newPlanAnswer(p price.Plan) planAnswer {
	b := planAnswer{planBody: planBody{
		Name: p.Name, Currency: p.Currency, Timezone: p.Timezone, BaseFee: int64(p.BaseFee), BaseFeeDecimal: p.BaseFee.Decimal(p.Currency), Taxes: []taxBody{},
		Included: p.Included, MaxConcurrentTasks: p.MaxConcurrentTasks, QueueDepth: p.QueueDepth,
		Weight: p.Weight, AllowedModels: append([]string{}, p.AllowedModels...), CreatedAt: encode.FormatOptionalTime(p.CreatedAt), UpdatedAt: encode.FormatOptionalTime(p.UpdatedAt),
	}}
	if p.Overage != nil {
		b.Overage = make(map[string]overageBody, len(p.Overage))
	}
	for meter, v := range p.Overage {
		n := int64(v.Amount)
		b.Overage[meter] = overageBody{v.Per, &n, v.Amount.Decimal(p.Currency)}
	}
	for _, tax := range p.Taxes {
		b.Taxes = append(b.Taxes, taxBody{tax.Name, percentage(tax.Rate.Percent())})
	}
	if p.Currency != "" && !h.billing.Prices.CachedBook().HasCurrency(p.Currency) {
		b.Warnings = []string{"no price book has the currency " + p.Currency + ": usage of apps on the plan has no price but that of its overage"}
	}
	if p.Documents != (price.DocumentLimits{}) {
		b.Documents = &p.Documents
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
