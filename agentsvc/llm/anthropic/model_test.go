package anthropic

import "testing"

func TestBudgeted(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{
		"claude-haiku-4-5":                       true,
		"claude-haiku-4-5-20251001":              true,
		"claude-sonnet-4-5":                      true,
		"claude-opus-4-5-20251101":               true,
		"claude-opus-4-1":                        true,
		"claude-opus-4-20250514":                 true,
		"claude-opus-4@20250514":                 true,
		"claude-sonnet-4-0":                      true,
		"claude-3-7-sonnet-latest":               true,
		"claude-3-5-haiku-20241022":              true,
		"anthropic/claude-opus-4.5":              true,
		"us.anthropic.claude-opus-4-5-v1:0":      true,
		"claude-opus-4-6":                        false,
		"claude-sonnet-4-6":                      false,
		"us.anthropic.claude-opus-4-6-v1":        false,
		"claude-opus-4-7":                        false,
		"anthropic/claude-opus-4.8":              false,
		"claude-opus-5":                          false,
		"claude-haiku-5-5":                       false,
		"claude-sonnet-5-5-20261001":             false,
		"claude-fable-5-1":                       false,
		"claude-mythos-preview":                  false,
		"claude-opus-10":                         false,
		"claude-next":                            false,
		"kimi-k2":                                true, // another model behind the same protocol
		"my-claude-like-model":                   true,
		"projects/x/models/claude-opus-4-7@2026": false,
	} {
		if got := hasThinkingBudget(model); got != want {
			t.Errorf("%s: %v, want %v", model, got, want)
		}
	}
}
