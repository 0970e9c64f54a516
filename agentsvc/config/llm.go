package config

// LLM is one model and how to reach it.
type LLM struct {
	// Provider is the vendor, or `scripted` for the built-in model that needs no network. Without it, the
	// provider follows from the model's name, else from the API key that is set in the environment.
	Provider string `yaml:"provider" jsonschema:"enum=anthropic,enum=openai,enum=gemini,enum=ollama,enum=scripted"`
	// Model is the vendor's name of the model. Without it: anthropic claude-haiku-4-5, openai gpt-4o,
	// gemini gemini-2.5-pro, ollama qwen3.
	Model string `yaml:"model"`
	// APIKey is the vendor's key. In the operator's file a missing key is read from OPENAI_API_KEY,
	// ANTHROPIC_API_KEY or GEMINI_API_KEY; an app brings its own.
	APIKey string `yaml:"api_key" secret:"true"`
	// BaseURL is the address of the API, where it is not the vendor's own.
	BaseURL string `yaml:"base_url"`
	// Temperature is how freely the model chooses its words, from 0 to 2. Reasoning models that accept
	// none get none unless it is written.
	Temperature *float64 `yaml:"temperature" jsonschema:"minimum=0,maximum=2,default=0.7"`
	// MaxTokens is the longest answer in tokens; 0 leaves it to the provider.
	MaxTokens int `yaml:"max_tokens" jsonschema:"minimum=0"`
	// MaxToolOutputLength is how many characters of a tool's result the model gets to see; 0 is all.
	MaxToolOutputLength int `yaml:"max_tool_output_length" jsonschema:"minimum=0,default=0"`
	// Thinking lets the model reason before it answers.
	Thinking *Thinking `yaml:"thinking" only:"provider=anthropic"`
	// Script holds the rules of a scripted model; the first that matches the last message answers. Without
	// rules it answers "You said: " and the message.
	Script []*Rule `yaml:"script" only:"provider=scripted"`
}

// Thinking lets a model reason before it answers.
type Thinking struct {
	// Enabled turns reasoning on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// BudgetTokens is how many tokens the model may spend on it.
	BudgetTokens int `yaml:"budget_tokens" jsonschema:"minimum=0"`
}

func (l *LLM) check(c *checks, s spot) {
	v := vendorOf(l.Provider)
	if v == nil {
		if !c.doc.has(s.value, "provider") {
			c.problem(s, "the provider follows neither from the model's name nor from a key in the environment: set provider")
		}
		return
	}
	if v.keyVariable == "" || c.doc.has(s.value, "api_key") || l.APIKey != "" {
		return
	}
	switch {
	case c.Tenant && !c.granted("operator_models"):
		c.refuse(s, "api_key is needed: an app brings its own key, unless the operator grants operator_models")
	case c.Tenant && l.BaseURL != "":
		c.refuse(s.child("base_url"), "needs an api_key beside it: a key that the operator lends is not sent to another address")
	case !c.Tenant && l.BaseURL == "":
		c.problem(s, "api_key is needed: set it, or "+v.keyVariable+" in the environment")
	}
}
