package billingapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/price"
	"stoa/tenancy"
)

// checkScope refuses a budget scope that no call can match: an agent or key that the app does not have, or a model
// that its configuration does not use. Such a budget would look active and never count. For a budget of all apps
// (zero app) only the key is checked.
func (h budgetHandler) checkScope(ctx context.Context, app tenancy.App, s budget.Scope) error {
	if s.Key != "" {
		_, of, err := h.keys.Store.Find(ctx, s.Key)
		switch {
		case errors.Is(err, agentsvc.CodeNotFound), err == nil && app.ID != "" && of.App != app.ID:
			return agentsvc.NewInvalidError("scope.key", "must be the id of an API key that there is; the app's list of keys has them")
		case err != nil:
			return err
		}
	}
	if app.ID == "" {
		return nil
	}
	if s.Agent != "" {
		if err := app.CheckAgent("scope.agent", s.Agent); err != nil {
			return err
		}
	}
	models, all := listModels(app.Config.Decode())
	// The same matching as for calls (budget.Scope), so that this check and the budget agree.
	fits := func(m string) bool {
		provider, name, _ := strings.Cut(m, "/")
		return price.MatchesModel(s.Model, provider, name)
	}
	// Without the full list of models the scope cannot be checked and is accepted.
	if s.Model == "" || !all || slices.ContainsFunc(models, fits) {
		return nil
	}
	return agentsvc.NewInvalidError("scope.model", "%.64q fits no model of the app; there are %s", s.Model, strings.Join(models, ", "))
}

// listModels returns the models and embedders of a configuration that budgets count, as provider/model in alphabetical
// order. all is false if the list may be incomplete: a model named
// by a variable (${...}) or by a default is not known here.
func listModels(config map[string]any) (models []string, all bool) {
	// The configuration is untyped here: tenancy stores it as JSON. Failed type assertions leave zero values, which
	// make the list incomplete.
	// The providers without a vendor need no model name; their calls are recorded under the provider's.
	for block, nameless := range map[string]string{"llms": "scripted", "embedders": "hashing"} {
		entries, _ := config[block].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			entry, _ := entries[name].(map[string]any)
			provider, _ := entry["provider"].(string)
			model, _ := entry["model"].(string)
			if provider == nameless && model == "" {
				model = provider
			}
			if provider == "" || model == "" || strings.Contains(provider+model, "$") {
				return nil, false
			}
			models = append(models, provider+"/"+model)
		}
	}
	slices.Sort(models)
	return models, len(models) > 0
}
