package billingapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestListModels checks which models the scope of a budget may name: those of models and of embedders.
func TestListModels(t *testing.T) {
	t.Parallel()
	entry := func(provider, model string) map[string]any {
		return map[string]any{"x": map[string]any{"provider": provider, "model": model}}
	}
	for name, c := range map[string]struct {
		config map[string]any
		want   []string
		all    bool
	}{
		"models and embedders": {map[string]any{"llms": entry("openai", "gpt-4o"), "embedders": entry("cohere", "embed")}, []string{"cohere/embed", "openai/gpt-4o"}, true},
		"without a vendor":     {map[string]any{"llms": entry("scripted", ""), "embedders": entry("hashing", "")}, []string{"hashing/hashing", "scripted/scripted"}, true},
		"a usual model":        {map[string]any{"llms": entry("scripted", ""), "embedders": entry("openai", "")}, nil, false},
		"a variable":           {map[string]any{"llms": entry("openai", "${MODEL}")}, nil, false},
		"none":                 {map[string]any{}, nil, false},
	} {
		got, all := listModels(c.config)
		if diff := cmp.Diff(c.want, got); diff != "" || all != c.all {
			t.Errorf("%s: %v %s", name, all, diff)
		}
	}
}
