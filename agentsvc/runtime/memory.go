package runtime

import (
	"path/filepath"
	"slices"
	"time"

	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/cohere"
	"stoa/agentsvc/embedder/hashing"
	"stoa/agentsvc/embedder/ollama"
	"stoa/agentsvc/embedder/openai"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/session"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/vectorstore/chromem"
)

// windowBuilders are the strategies that shorten a conversation for a model, by their name in the configuration.
var windowBuilders = map[string]func(b *agentBuilder, name string, a *config.Agent, g *agentGuardrail) agent.Window{
	"none": func(*agentBuilder, string, *config.Agent, *agentGuardrail) agent.Window { return nil },
	"buffer_window": func(_ *agentBuilder, _ string, a *config.Agent, _ *agentGuardrail) agent.Window {
		return session.MessageWindow{MaxEntries: a.Context.WindowSize}
	},
	"token_window": func(b *agentBuilder, _ string, a *config.Agent, _ *agentGuardrail) agent.Window {
		return session.TokenWindow{App: b.appID(), Budget: a.Context.Budget, MinEntries: a.Context.PreserveRecent, CountTokens: b.tokenCounter(a.LLM)}
	},
	"summary_buffer": func(b *agentBuilder, name string, a *config.Agent, g *agentGuardrail) agent.Window {
		model := b.models[a.LLM]
		if other := a.Context.SummarizerLLM; other != "" {
			model = b.models[other]
		}
		// FilterEntries is the guardrail: the summarizing model must not read what the agent's model may not.
		return session.SummaryWindow{
			App: b.appID(), Agent: name, Budget: a.Context.Budget, Threshold: a.Context.Threshold, Target: a.Context.Target,
			CountTokens: b.tokenCounter(a.LLM), Model: model, FilterEntries: g.filterHistory, Store: b.sessions, Log: b.log,
		}
	},
}

// newWindow returns the window of an agent's context settings, nil for the whole conversation.
func (b *agentBuilder) newWindow(name string, a *config.Agent, g *agentGuardrail) agent.Window {
	if a.Context == nil {
		return nil
	}
	return windowBuilders[a.Context.Strategy](b, name, a, g)
}

// tokenCounter returns the counter for the model of that name in the configuration.
func (b *agentBuilder) tokenCounter(llm string) session.TokenCounter {
	l := b.cfg.LLMs[llm]
	return session.NewTokenCounter(l.Provider, l.Model)
}

// embedderBuilders are the embedders, by provider.
var embedderBuilders = map[string]func(o embedder.Options, e *config.Embedder) embedder.Embedder{
	"openai":  func(o embedder.Options, _ *config.Embedder) embedder.Embedder { return openai.New(o) },
	"ollama":  func(o embedder.Options, _ *config.Embedder) embedder.Embedder { return ollama.New(o) },
	"hashing": func(o embedder.Options, _ *config.Embedder) embedder.Embedder { return hashing.New(o) },
	"cohere": func(o embedder.Options, e *config.Embedder) embedder.Embedder {
		return cohere.New(cohere.Options{Options: o, InputType: e.InputType, OutputDimension: e.OutputDimension, Truncate: e.Truncate})
	},
}

// memoryBuilder builds the app's memory.
type memoryBuilder struct {
	*hostAccess
	meters metering
}

// newEmbedder builds an embedder whose texts are counted as usage.
func (b *memoryBuilder) newEmbedder(name string) embedder.Embedder {
	e := b.cfg.Embedders[name]
	timeout := time.Duration(e.Timeout) * time.Second
	return b.meters.meterEmbedder(e, embedderBuilders[e.Provider](embedder.Options{
		Model: e.Model, APIKey: e.APIKey, BaseURL: e.BaseURL, Dimension: e.Dimension,
		Timeout: timeout, BatchSize: e.BatchSize, HTTP: b.egressClient.HTTPWithHeaderTimeout(timeout), Memory: b.newAnswerMemory(),
	}, e))
}

// newMemory returns the app's memory, and whether its agents use it. It exists in any case: what was remembered before
// the memory was disabled can still be listed and erased.
func (b *memoryBuilder) newMemory(rows *memory.Store) (recall *memory.Recall, used bool) {
	var find memory.Finder = memory.KeywordFinder{Store: rows}
	m := b.cfg.Storage.Memory
	if m != nil && m.Backend == "vector" {
		find = b.newVectorFinder(rows, m)
	}
	return memory.NewRecall(rows, find, memory.Options{IncludeAnonymous: !b.cfg.Server.Auth.Enabled, Log: b.log}), m != nil
}

// newVectorFinder returns a finder by vectors. An index in a folder has no bound; one in memory has
// [memory.MaxIndexedVectors]. The folder of a tenant is named by its id.
func (b *memoryBuilder) newVectorFinder(rows *memory.Store, m *config.Memory) memory.Finder {
	o, bound := chromem.Options{App: string(b.tenant.ID), Memory: b.newVectorMemory()}, memory.MaxIndexedVectors
	if p := m.VectorProvider; p != nil && p.Chromem.PersistPath != "" {
		o.Path, bound = filepath.Join(p.Chromem.PersistPath, string(b.tenant.ID)), 0
	}
	index := chromem.New(o)
	b.closers = append(b.closers, index.Close)
	return memory.NewVectorFinder(rows, b.newEmbedder(m.Embedder), index, bound)
}

// newMemoryTools returns the recall tool for an agent, behind its guardrail. There is none if the app has no memory or
// the agent has a tool of that name.
func (b *agentBuilder) newMemoryTools(names []string, g *agentGuardrail) []tool.Tool {
	if b.recall == nil || slices.Contains(names, memory.ToolName) {
		return nil
	}
	return []tool.Tool{b.recall.WithTextFilter(g.filterText).NewTool()}
}
