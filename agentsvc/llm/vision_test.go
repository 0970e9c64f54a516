package llm_test

import (
	"slices"
	"testing"

	"stoa/agentsvc/llm"
)

func TestImageTypes(t *testing.T) {
	t.Parallel()
	images := []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	for provider, models := range map[string]map[string]bool{
		"anthropic": {"claude-haiku-4-5": true, "claude-3-5-haiku-latest": true, "us.anthropic.claude-opus-4-6-v1": true, "claude-mythos-preview": true,
			"claude-2.1": false, "claude-instant-1.2": false, "deepseek-chat": false},
		"gemini": {"gemini-2.5-pro": true, "models/gemini-3-flash": true, "gemma-3-27b-it": false},
		"openai": {"gpt-4o": true, "gpt-4o-mini": true, "chatgpt-4o-latest": true, "gpt-4.1-nano": true, "gpt-4-turbo": true, "gpt-5": true, "openai/gpt-5.6-luna": true,
			"o1": true, "o3": true, "o3-pro": true, "o4-mini": true, "ft:gpt-4o-mini:acme": true,
			"gpt-4": false, "gpt-4-0613": false, "gpt-3.5-turbo": false, "o1-mini": false, "o1-preview": false, "o3-mini": false, "gpt-oss-120b": false, "llama-3.3-70b": false},
		"ollama":   {"llava:13b": true, "llama3.2-vision": true, "gemma3:4b": true, "qwen3-vl:8b": true, "qwen3": false, "qwen3:8b": false, "llama3.2": false},
		"scripted": {"scripted": false},
	} {
		for model, sees := range models {
			want := images
			if !sees {
				want = nil
			}
			if got := llm.ImageTypesOf(provider, model); !slices.Equal(got, want) {
				t.Errorf("%s/%s: %v, want %v", provider, model, got, want)
			}
		}
	}
}
