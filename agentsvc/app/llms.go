package app

import (
	"slices"

	"stoa/agentsvc/config"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/anthropic"
	"stoa/agentsvc/llm/gemini"
	"stoa/agentsvc/llm/ollama"
	"stoa/agentsvc/llm/openai"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/llm/upstream"
)

// modelBuilders are the models that can be configured, by provider.
var modelBuilders = map[string]func(b *builder, name string, l *config.LLM) (llm.Provider, error){
	"anthropic": newAnthropicModel,
	"gemini":    newGeminiModel,
	"ollama":    newOllamaModel,
	"openai":    newOpenAIModel,
	"scripted":  newScriptedModel,
}

// buildModels makes the models. What stands around a vendor's model is, from the inside out: tries after a failure, a breaker
// that spares it while it is down, the count of its calls and the budgets they are held to, whoever watches, and the models to
// fall back on.
func (b *builder) buildModels() {
	primaries := make(map[string]llm.Provider, len(b.cfg.LLMs))
	for name, l := range b.cfg.LLMs {
		m, err := modelBuilders[l.Provider](b, name, l)
		if err != nil {
			b.addProblem("llms."+name, err)
			continue
		}
		if l.Provider != "scripted" {
			m = llm.WithCircuitBreaker(llm.WithRetry(m))
		}
		b.addProblem("llms."+name, b.checkModelInPlan(l))
		primaries[name] = b.traceModel(l, b.meterModel(l, m))
	}
	b.models = make(map[string]llm.Provider, len(primaries))
	for name := range primaries {
		var others []llm.Provider
		for _, other := range b.fallbackChain(name, map[string]bool{})[1:] {
			others = append(others, primaries[other])
		}
		b.models[name] = llm.WithFallback(primaries[name], others...)
	}
}

// fallbackChain returns the names of a model and of those to fall back on, each followed by its own.
func (b *builder) fallbackChain(name string, seen map[string]bool) []string {
	if seen[name] {
		return nil
	}
	seen[name] = true
	names := []string{name}
	for _, next := range b.cfg.LLMs[name].Fallbacks {
		names = append(names, b.fallbackChain(next, seen)...)
	}
	return names
}

func newAnthropicModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	o := anthropic.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	}
	if t := l.Thinking; t != nil {
		o.Thinking, o.ThinkingBudget = t.Enabled, int64(t.BudgetTokens)
	}
	return anthropic.New(o)
}

func newGeminiModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	return gemini.New(gemini.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	})
}

func newOllamaModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	return ollama.New(ollama.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	})
}

func newOpenAIModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	return openai.New(openai.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
		Responses: l.API == "responses",
	})
}

func newScriptedModel(_ *builder, _ string, l *config.LLM) (llm.Provider, error) {
	script := make([]scripted.Rule, len(l.Script))
	for i, r := range l.Script {
		script[i] = newScriptedRule(r)
	}
	return scripted.New(scripted.Options{Model: l.Model, Script: script})
}

// hasMessageReply reports whether a model, or one that it falls back on, has an answer that is a message by itself.
func (b *builder) hasMessageReply(name string) bool {
	if b.cfg.LLMs[name] == nil {
		return false
	}
	for _, name := range b.fallbackChain(name, map[string]bool{}) {
		if slices.ContainsFunc(b.cfg.LLMs[name].Script, func(r *config.Rule) bool { return r.Reply == "message" }) {
			return true
		}
	}
	return false
}

func newScriptedRule(r *config.Rule) scripted.Rule {
	out := scripted.Rule{Usage: newScriptedUsage(r.Usage), Standalone: r.Reply == "message"}
	if w := r.When; w != nil {
		out.When = scripted.When{Text: w.Text, ToolResult: w.ToolResult, MessageID: w.MessageID}
	}
	for _, it := range r.Then {
		out.Then = append(out.Then, newScriptedItem(it))
	}
	return out
}

func newScriptedItem(it *config.Item) scripted.Item {
	out := scripted.Item{Text: it.Say, Pause: it.Pause, Question: it.Ask, Refusal: it.Refuse, Usage: newScriptedUsage(it.Usage)}
	if c := it.Call; c != nil {
		out.Call = &scripted.Call{Tool: c.Tool, Arguments: c.Arguments}
	}
	if f := it.Fail; f != nil {
		out.Failure = &scripted.Failure{Status: f.Status, Message: f.Message}
	}
	if a := it.Artifact; a != nil {
		out.Artifact = &scripted.Artifact{
			Name: a.Name, MediaType: a.MediaType, Text: a.Text, FileBase64: a.FileBase64, URL: a.URL, Append: a.Append, Last: a.Last,
		}
		if a.Data != nil {
			out.Artifact.Data = a.Data
		}
	}
	return out
}

func newScriptedUsage(u *config.Usage) *scripted.Usage {
	if u == nil {
		return nil
	}
	return &scripted.Usage{InputTokens: int64(u.InputTokens), OutputTokens: int64(u.OutputTokens)}
}
