package config

import "reflect"

// DefaultConfig returns the configuration that is served without a file: one agent "assistant" with one model of
// provider, which [DetectProvider] can choose. Everything else has its default.
func DefaultConfig(provider, apiKey string) *Config {
	cfg := newDefault(reflect.TypeFor[Config]()).Interface().(*Config)
	model := newDefault(reflect.TypeFor[LLM]()).Interface().(*LLM)
	model.Provider, model.APIKey = provider, apiKey
	model.applyDefaults(nil)
	agent := newDefault(reflect.TypeFor[Agent]()).Interface().(*Agent)
	agent.Description = "A helpful assistant."
	agent.Instruction = "You are a helpful assistant. Answer briefly and truthfully."
	agent.applyDefaults("assistant", cfg.Defaults)

	cfg.LLMs = map[string]*LLM{"default": model}
	cfg.Agents = map[string]*Agent{"assistant": agent}
	cfg.agentOrder = []string{"assistant"}
	return cfg
}
