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

// llmKinds are the models that can be configured, by provider.
var llmKinds = map[string]func(b *builder, name string, l *config.LLM) (llm.Provider, error){
	"anthropic": anthropicModel,
	"gemini":    geminiModel,
	"ollama":    ollamaModel,
	"openai":    openaiModel,
	"scripted":  scriptedModel,
}

// llms makes the models. What stands around a vendor's model is, from the inside out: tries after a failure, a breaker
// that spares it while it is down, the count of its calls and the budgets they are held to, whoever watches, and the models to
// fall back on.
func (b *builder) llms() {
	alone := make(map[string]llm.Provider, len(b.cfg.LLMs))
	for name, l := range b.cfg.LLMs {
		m, err := llmKinds[l.Provider](b, name, l)
		if err != nil {
			b.wrong("llms."+name, err)
			continue
		}
		if l.Provider != "scripted" {
			m = llm.Break(llm.Retry(m))
		}
		b.wrong("llms."+name, b.allowed(l))
		alone[name] = b.watchModel(l, b.metered(l, m))
	}
	b.models = make(map[string]llm.Provider, len(alone))
	for name := range alone {
		var others []llm.Provider
		for _, other := range b.fallbacks(name, map[string]bool{})[1:] {
			others = append(others, alone[other])
		}
		b.models[name] = llm.Fallback(alone[name], others...)
	}
}

// fallbacks returns the names of a model and of those to fall back on, each followed by its own.
func (b *builder) fallbacks(name string, seen map[string]bool) []string {
	if seen[name] {
		return nil
	}
	seen[name] = true
	names := []string{name}
	for _, next := range b.cfg.LLMs[name].Fallbacks {
		names = append(names, b.fallbacks(next, seen)...)
	}
	return names
}

func anthropicModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	o := anthropic.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.out.Patient(upstream.FirstWord), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	}
	if t := l.Thinking; t != nil {
		o.Thinking, o.ThinkingBudget = t.Enabled, int64(t.BudgetTokens)
	}
	return anthropic.New(o)
}

func geminiModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	return gemini.New(gemini.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.out.Patient(upstream.FirstWord), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	})
}

func ollamaModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	return ollama.New(ollama.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.out.Patient(upstream.FirstWord), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
	})
}

func openaiModel(b *builder, _ string, l *config.LLM) (llm.Provider, error) {
	return openai.New(openai.Options{
		Model: l.Model, APIKey: l.APIKey, BaseURL: l.BaseURL, HTTP: b.out.Patient(upstream.FirstWord), Temperature: l.Temperature, MaxTokens: int64(l.MaxTokens),
		Responses: l.API == "responses",
	})
}

func scriptedModel(_ *builder, _ string, l *config.LLM) (llm.Provider, error) {
	script := make([]scripted.Rule, len(l.Script))
	for i, r := range l.Script {
		script[i] = scriptedRule(r)
	}
	return scripted.New(scripted.Options{Model: l.Model, Script: script})
}

// replies reports whether a model, or one that it falls back on, has an answer that is a message by itself.
func (b *builder) replies(name string) bool {
	if b.cfg.LLMs[name] == nil {
		return false
	}
	for _, name := range b.fallbacks(name, map[string]bool{}) {
		if slices.ContainsFunc(b.cfg.LLMs[name].Script, func(r *config.Rule) bool { return r.Reply == "message" }) {
			return true
		}
	}
	return false
}

func scriptedRule(r *config.Rule) scripted.Rule {
	out := scripted.Rule{Usage: scriptedUsage(r.Usage), Alone: r.Reply == "message"}
	if w := r.When; w != nil {
		out.When = scripted.When{Text: w.Text, ToolResult: w.ToolResult, MessageID: w.MessageID}
	}
	for _, it := range r.Then {
		out.Then = append(out.Then, scriptedItem(it))
	}
	return out
}

func scriptedItem(it *config.Item) scripted.Item {
	out := scripted.Item{Say: it.Say, Pause: it.Pause, Ask: it.Ask, Refuse: it.Refuse, Usage: scriptedUsage(it.Usage)}
	if c := it.Call; c != nil {
		out.Call = &scripted.Call{Tool: c.Tool, Arguments: c.Arguments}
	}
	if f := it.Fail; f != nil {
		out.Fail = &scripted.Fail{Status: f.Status, Message: f.Message}
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

func scriptedUsage(u *config.Usage) *scripted.Usage {
	if u == nil {
		return nil
	}
	return &scripted.Usage{InputTokens: int64(u.InputTokens), OutputTokens: int64(u.OutputTokens)}
}
