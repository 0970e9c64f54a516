package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/billing"
)

type planBody struct {
	Name               string                     `json:"name"`
	Currency           string                     `json:"currency"`
	Timezone           string                     `json:"timezone,omitempty"`
	Included           map[string]int64           `json:"included"`
	Overage            map[string]billing.Overage `json:"overage"`
	MaxConcurrentTasks int64                      `json:"max_concurrent_tasks"`
	QueueDepth         int64                      `json:"queue_depth"`
	Weight             int64                      `json:"weight"`
	AllowedModels      []string                   `json:"allowed_models"`
	Retention          *retentionBody             `json:"retention"`
	CreatedAt          *string                    `json:"created_at,omitempty"`
	UpdatedAt          *string                    `json:"updated_at,omitempty"`
}

type retentionBody struct {
	Tasks    string `json:"tasks,omitempty"`
	Events   string `json:"events,omitempty"`
	Sessions string `json:"sessions,omitempty"`
}

// decodePlan reads the terms of a plan.
func (o *mutation) decodePlan() (billing.Plan, error) {
	var b planBody
	if err := o.decodeBody(&b, false); err != nil {
		return billing.Plan{}, err
	}
	p := billing.Plan{
		Name: b.Name, Currency: b.Currency, Timezone: b.Timezone, Included: b.Included, Overage: b.Overage, Weight: b.Weight, MaxConcurrentTasks: b.MaxConcurrentTasks,
		QueueDepth: b.QueueDepth, AllowedModels: b.AllowedModels,
	}
	if r := b.Retention; r != nil {
		for _, f := range []struct {
			name, text string
			to         *time.Duration
		}{{"tasks", r.Tasks, &p.Retention.Tasks}, {"events", r.Events, &p.Retention.Events}, {"sessions", r.Sessions, &p.Retention.Sessions}} {
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

func (a adminAPI) addPlan(ctx context.Context, o *mutation) (mutationResult, error) {
	p, err := o.decodePlan()
	if err == nil {
		p, err = a.billing.AddPlan(ctx, o.actor, p)
	}
	return mutationResult{status: http.StatusCreated, body: newPlanBody(p)}, err
}

func (a adminAPI) updatePlan(ctx context.Context, o *mutation) (mutationResult, error) {
	p, err := o.decodePlan()
	if err != nil {
		return mutationResult{}, err
	}
	name := surface.PathParam(o.r, "plan")
	if p.Name != "" && p.Name != name {
		return mutationResult{}, agentsvc.NewInvalidError("name", "is another one than in the path; a plan keeps its name")
	}
	p.Name = name
	p, err = a.billing.UpdatePlan(ctx, o.actor, p)
	return mutationResult{status: http.StatusOK, body: newPlanBody(p)}, err
}

func (a adminAPI) handleGetPlan(w http.ResponseWriter, r *http.Request) error {
	p, err := a.billing.FindPlan(r.Context(), surface.PathParam(r, "plan"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newPlanBody(p))
}

func (a adminAPI) handleListPlans(w http.ResponseWriter, r *http.Request) error {
	found, err := a.billing.ListPlans(r.Context())
	if err != nil {
		return err
	}
	out := make([]planBody, len(found))
	for i, p := range found {
		out[i] = newPlanBody(p)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"plans": out})
}

func newPlanBody(p billing.Plan) planBody {
	b := planBody{
		Name: p.Name, Currency: p.Currency, Timezone: p.Timezone, Included: p.Included, Overage: p.Overage, MaxConcurrentTasks: p.MaxConcurrentTasks, QueueDepth: p.QueueDepth,
		Weight: p.Weight, AllowedModels: p.AllowedModels, CreatedAt: formatTime(p.CreatedAt), UpdatedAt: formatTime(p.UpdatedAt),
	}
	if r := p.Retention; r != (billing.Retention{}) {
		b.Retention = &retentionBody{formatDuration(r.Tasks), formatDuration(r.Events), formatDuration(r.Sessions)}
	}
	return b
}

func formatDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
