package ops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy"
)

// checkScope refuses the scope of a budget that no call could ever be of: an agent or a key that the app does not have, or a
// model that none of its configuration is. Of a budget of all apps, whose app is the zero one, only the key is looked at.
func (a adminAPI) checkScope(ctx context.Context, app tenancy.App, s billing.Scope) error {
	if s.Key != "" {
		_, of, err := a.apps.FindAPIKey(ctx, s.Key)
		switch {
		case errors.Is(err, tenancy.ErrNotFound), err == nil && app.ID != "" && of.App != app.ID:
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
	models, all := listModels(app.Config)
	fits := func(m string) bool {
		provider, name, _ := strings.Cut(m, "/")
		return billing.MatchesModel(s.Model, provider, name)
	}
	if s.Model == "" || !all || slices.ContainsFunc(models, fits) {
		return nil
	}
	return agentsvc.NewInvalidError("scope.model", "%.64q fits no model of the app; there are %s", s.Model, strings.Join(models, ", "))
}

// listModels returns the models of a configuration whose calls count in budgets, as provider/model, in order, and whether these
// are all: one whose name is not written out may be any. Embedders are none of them.
func listModels(config map[string]any) (models []string, all bool) {
	entries, _ := config["llms"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		entry, _ := entries[name].(map[string]any)
		provider, _ := entry["provider"].(string)
		model, _ := entry["model"].(string)
		if provider == "scripted" && model == "" {
			model = provider
		}
		if provider == "" || model == "" || strings.Contains(provider+model, "$") {
			return nil, false
		}
		models = append(models, provider+"/"+model)
	}
	return models, len(models) > 0
}
