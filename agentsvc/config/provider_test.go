package config

import "testing"

func TestAcceptsTemperature(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{
		"claude-haiku-4-5": true, "gpt-4o": true, "gemini-2.5-pro": true, "qwen3": true, // the default models
		"claude-haiku-4-5-20251001": true, "claude-sonnet-4-6": true, "claude-opus-4-20250514": true, "claude-3-5-haiku-latest": true,
		"anthropic/claude-opus-4.6": true, "us.anthropic.claude-opus-4-6-v1": true,
		"claude-opus-4-7": false, "anthropic/claude-opus-4.8": false, "claude-opus-5": false, "claude-haiku-5-5": false,
		"claude-fable-5-1": false, "claude-mythos-preview": false, "claude-next": false,
		"gpt-3.5-turbo": true, "gpt-4.1-mini": true, "gpt-4-0613": true, "ft:gpt-4o-mini:house": true, "chatgpt-4o-latest": true, "gpt-oss-120b": true,
		"o1": false, "o3-mini": false, "o5": false, "gpt-5": false, "openai/gpt-5.6-luna": false, "gpt-6.1-terra": false, "codex-mini-latest": false,
		"llama-3.3-70b": true, "deepseek-r1": true, "olmo2": true, "phi4": true,
	} {
		if got := acceptsTemperature(model); got != want {
			t.Errorf("%s: %v, want %v", model, got, want)
		}
	}
}
