package runtime

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

// modelBuilders are the model providers, by their name in the configuration.
var modelBuilders = map[string]func(b *modelBuilder, name string, l *config.LLM) (llm.Provider, error){
	"anthropic": newAnthropicModel,
	"gemini":    newGeminiModel,
	"ollama":    newOllamaModel,
	"openai":    newOpenAIModel,
	"scripted":  newScriptedModel,
}

// modelBuilder builds the models of the configuration.
type modelBuilder struct {
	*hostAccess
	meters metering
	traces tracing
	// models are complete: with retries, metering, tracing and fallbacks. A model with a problem has no entry.
	models map[string]llm.Provider
}

// buildModels builds the models. From the inside out, a vendor's model is wrapped by a circuit breaker, retries,
// metering with budgets, and tracing; then come the fallbacks. So a retried call is one call to budgets and traces, and
// each fallback model is metered by itself.
func (b *modelBuilder) buildModels() {
	primaries := make(map[string]llm.Provider, len(b.cfg.LLMs))
	for name, l := range b.cfg.LLMs {
		b.addProblem("llms."+name, b.meters.checkModelInPlan(l))
		m, err := modelBuilders[l.Provider](b, name, l)
		if err != nil {
			b.addProblem("llms."+name, err)
			continue
		}
		if l.Provider != "scripted" {
			m = llm.WithRetry(llm.WithCircuitBreaker(m))
		}
		primaries[name] = b.traces.traceModel(l, b.meters.meterModel(l, m))
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

// fallbackChain returns the name of a model and those of its fallbacks, each followed by its own. seen ends cycles.
func (b *modelBuilder) fallbackChain(name string, seen map[string]bool) []string {
	if seen[name] || b.cfg.LLMs[name] == nil { // the fallback has a problem of its own
		return nil
	}
	seen[name] = true
	names := []string{name}
	for _, next := range b.cfg.LLMs[name].Fallbacks {
		names = append(names, b.fallbackChain(next, seen)...)
	}
	return names
}

// newAnthropicModel builds a model of Anthropic's Messages API.
func newAnthropicModel(b *modelBuilder, _ string, l *config.LLM) (llm.Provider, error) {
	o := anthropic.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	}
	if t := l.Thinking; t != nil {
		o.Thinking, o.ThinkingBudget = t.Enabled, int64(t.BudgetTokens)
	}
	return anthropic.New(o)
}

// newGeminiModel builds a model of Google's Gemini API. As for every vendor, the wait for a response's header is
// bounded by upstream.DefaultFirstTimeout, which is longer than for other requests: a model may think, or be loaded,
// before it answers.
func newGeminiModel(b *modelBuilder, _ string, l *config.LLM) (llm.Provider, error) {
	return gemini.New(gemini.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	})
}

// newOllamaModel builds a model of an Ollama server.

func newOllamaModel(b *modelBuilder, _ string, l *config.LLM) (llm.Provider, error) {
	return ollama.New(ollama.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	})
}

// newOpenAIModel builds a model of OpenAI's chat completions API or, with api: responses, of its responses API.
func newOpenAIModel(b *modelBuilder, _ string, l *config.LLM) (llm.Provider, error) {
	return openai.New(openai.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.egressClient.HTTPWithHeaderTimeout(upstream.DefaultFirstTimeout), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
		Responses: l.API == "responses",
	})
}

// newScriptedModel builds a model that answers by a script, for tests and examples. It makes no requests.
func newScriptedModel(b *modelBuilder, _ string, l *config.LLM) (llm.Provider, error) {
	script := make([]scripted.Rule, len(l.Script))
	for i, r := range l.Script {
		script[i] = newScriptedRule(r)
	}
	return scripted.New(scripted.Options{App: b.appID(), Model: l.Model, Script: script})
}

// hasMessageReply reports whether a scripted model, or one of its fallbacks, can answer with a message instead of a
// task (A2A). It becomes [agentsvc.Card.StandaloneReplies].
func (b *modelBuilder) hasMessageReply(name string) bool {
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

// newScriptedRule converts a rule of the configuration: when it applies, and the items of its response.
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

// newScriptedItem converts one item of a response. The validation of the configuration ensures that it sets one kind of
// item.
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

// newScriptedUsage converts the usage that a script reports, nil for none.
func newScriptedUsage(u *config.Usage) *scripted.Usage {
	if u == nil {
		return nil
	}
	return &scripted.Usage{InputTokens: int64(u.InputTokens), OutputTokens: int64(u.OutputTokens)}
}
