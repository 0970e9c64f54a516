package config

import (
	"fmt"

	"stoa/agentsvc/config/document"
	"stoa/agentsvc/pattern"
)

// LLM is one model and how to reach it.
type LLM struct {
	// Provider is the vendor, or `scripted` for the built-in model that needs no network. Without it, the
	// provider follows from the model's name, else from the API key that is set in the environment, else it is ollama
	// if OLLAMA_HOST is set there.
	Provider string `yaml:"provider" jsonschema:"enum=anthropic,enum=openai,enum=gemini,enum=ollama,enum=scripted"`
	// Model is the vendor's name of the model. Without it: anthropic claude-haiku-4-5, openai gpt-4o,
	// gemini gemini-2.5-pro, ollama qwen3.
	Model string `yaml:"model"`
	// APIKey is the vendor's key. In the operator's file a missing key is read from OPENAI_API_KEY,
	// ANTHROPIC_API_KEY or GEMINI_API_KEY; an app brings its own.
	APIKey string `yaml:"api_key" secret:"true" to:"provider,base_url"`
	// BaseURL is the address of the API, where it is not the vendor's own. In the operator's file a missing address of
	// ollama is read from OLLAMA_HOST.
	BaseURL string `yaml:"base_url"`
	// API is the protocol that openai is asked in: chat completions, which every compatible server has, or
	// OpenAI's own responses.
	API string `yaml:"api" jsonschema:"enum=chat,enum=responses,default=chat" only:"provider=openai"`
	// Temperature is the randomness of the model's text, from 0 to 2; anthropic gets 1 at most, with a warning. Models
	// that may refuse one get none unless it is written, and a model that thinks gets none.
	Temperature *float64 `yaml:"temperature" jsonschema:"minimum=0,maximum=2,default=0.7"`
	// MaxTokens is the longest answer in tokens; 0 leaves it to the provider.
	MaxTokens int `yaml:"max_tokens" jsonschema:"minimum=0"`
	// MaxToolOutputLength is how many characters of a tool's result the model gets to see; 0 is all.
	MaxToolOutputLength int `yaml:"max_tool_output_length" jsonschema:"minimum=0,default=0"`
	// Thinking lets the model reason before it answers.
	Thinking *Thinking `yaml:"thinking" only:"provider=anthropic"`
	// Fallbacks are the models to ask, in this order, where this one fails before the first word of its answer.
	// They may have fallbacks of their own.
	Fallbacks []string `yaml:"fallbacks" ref:"llms"`
	// Script holds the rules of a scripted model; the first that matches the last message answers. Without
	// rules it answers "You said: " and the message.
	Script []*Rule `yaml:"script" only:"provider=scripted"`
}

// Thinking lets a model reason before it answers.
type Thinking struct {
	// Enabled turns reasoning on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// BudgetTokens is how many tokens the model may spend on it: 1024 or more, and less than `max_tokens`. Without
	// it, it is 1024.
	BudgetTokens int `yaml:"budget_tokens" jsonschema:"minimum=0"`
}

// minThinkingTokens is the smallest thinking budget that Anthropic's API accepts.
const minThinkingTokens = 1024

// checkRules checks address, name, fallbacks and the key. A tenant supplies its own key, unless it has the grant
// operator_models; the operator's key is never sent to an address that the tenant chose.
func (l *LLM) checkRules(c *validation, s document.Location) {
	l.checkFallbacks(c, s)
	c.checkAddress(s.Child("base_url"), l.BaseURL)
	c.checkName(s.Child("model"), l.Model)
	total := 0
	for _, r := range l.Script {
		if r != nil && r.When != nil {
			total += pattern.SumInstructions(r.When.Text, r.When.MessageID)
		}
	}
	c.checkPatternTotal(s.Child("script"), total)
	c.compiled.Instructions += total
	v := findVendor(l.Provider)
	if v == nil {
		if !c.doc.HasValue(s.Value, "provider") {
			c.addProblem(s, "the provider follows neither from the model's name nor from a key or OLLAMA_HOST in the environment: set provider")
		}
		return
	}
	// Temperatures have one meaning and different ranges: a document that changes the vendor keeps working.
	if l.Temperature != nil && *l.Temperature > v.maxTemperature {
		*l.Temperature = v.maxTemperature
		c.addWarning(s.Child("temperature"), fmt.Sprintf("is more than %[1]v, the most that %[2]s takes: %[1]v is used", v.maxTemperature, v.name))
	}
	if l.Provider == "anthropic" {
		l.checkAnthropic(c, s)
	}
	if v.keyVariable == "" || c.doc.HasValue(s.Value, "api_key") || l.APIKey != "" {
		return
	}
	const emptyKey = "is empty: give it a value, or leave it out to use "
	at := s.Child("api_key")
	switch {
	case c.Tenant && !c.isGranted("operator_models"):
		c.addProblem(s, "api_key is needed: an app brings its own key, unless the operator grants operator_models")
	case c.Tenant && l.BaseURL != "":
		c.addProblem(s.Child("base_url"), "needs an api_key beside it: a key that the operator lends is not sent to another address")
	case c.Tenant && isEmptyText(at):
		c.addProblem(at, emptyKey+"the operator's")
	case !c.Tenant && l.BaseURL == "" && isEmptyText(at):
		c.addProblem(at, emptyKey+v.keyVariable)
	case !c.Tenant && l.BaseURL == "":
		c.addProblem(s, "api_key is needed: set it, or "+v.keyVariable+" in the environment")
	}
}

// checkAnthropic reports values that Anthropic's API refuses, so that they are found before the first call.
func (l *LLM) checkAnthropic(c *validation, s document.Location) {
	if l.refusesTemperature() {
		c.addProblem(s.Child("temperature"), "is refused by "+l.Model+": leave it out")
	}
	t := l.Thinking
	if t == nil || !t.Enabled || t.BudgetTokens == 0 {
		return
	}
	at := s.Child("thinking").Child("budget_tokens")
	switch {
	case t.BudgetTokens < minThinkingTokens:
		c.addProblem(at, "is less than 1024, the least that anthropic takes")
	case l.MaxTokens > 0 && t.BudgetTokens >= l.MaxTokens:
		c.addProblem(at, "leaves nothing for the answer: it must be less than max_tokens")
	}
}

// maxFallbacks bounds the models that are asked where one fails: its fallbacks, theirs and so on. Each model keeps its
// list, and the search for cycles follows it, so that without a bound a document of 220 KB took 9 s of processor time and
// one with a chain of some thousand models the memory of the square of their number.
const maxFallbacks = 32

// checkFallbacks refuses more than maxFallbacks, and fallbacks that lead back to l: the calls would never end.
func (l *LLM) checkFallbacks(c *validation, s document.Location) {
	if !c.hasFewFallbacks(s.Path.Part, map[string]bool{}) {
		c.addProblem(s.Child("fallbacks"), fmt.Sprintf("leads to more than %d models, the fallbacks of fallbacks included; at most %[1]d are asked", maxFallbacks))
		return
	}
	for i, name := range l.Fallbacks {
		if chain := c.fallbackPath(name, s.Path.Part, map[string]bool{}); chain != nil {
			c.addProblem(s.Child("fallbacks").Item(i), "leads back to where it began: "+formatChain(append([]string{s.Path.Part}, chain...)))
		}
	}
}

// hasFewFallbacks reports whether the fallbacks of a model lead to at most maxFallbacks others, with those in seen. It
// visits no more than that.
func (val *validation) hasFewFallbacks(name string, seen map[string]bool) bool {
	l := val.llms[name]
	if l == nil || seen[name] {
		return true
	}
	if seen[name] = true; len(seen) > maxFallbacks+1 || len(l.Fallbacks) > maxFallbacks {
		return false
	}
	for _, next := range l.Fallbacks {
		if !val.hasFewFallbacks(next, seen) {
			return false
		}
	}
	return true
}

// fallbackPath returns the models on a path of fallbacks from one model to another, nil if there is none. seen are
// the models already visited.
func (val *validation) fallbackPath(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	l := val.llms[from]
	if l == nil || seen[from] {
		return nil
	}
	seen[from] = true
	for _, next := range l.Fallbacks {
		if chain := val.fallbackPath(next, to, seen); chain != nil {
			return append([]string{from}, chain...)
		}
	}
	return nil
}
