package app

import (
	"path/filepath"
	"slices"
	"time"

	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/cohere"
	"stoa/agentsvc/embedder/ollama"
	"stoa/agentsvc/embedder/openai"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/session"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/vectorstore/chromem"
)

// windows are the strategies that fit a conversation to what a model gets to see.
var windows = map[string]func(b *builder, name string, a *config.Agent, g *guard) agent.Window{
	"none": func(*builder, string, *config.Agent, *guard) agent.Window { return nil },
	"buffer_window": func(_ *builder, _ string, a *config.Agent, _ *guard) agent.Window {
		return session.Buffer{Size: a.Context.WindowSize}
	},
	"token_window": func(b *builder, _ string, a *config.Agent, _ *guard) agent.Window {
		return session.Tokens{Budget: a.Context.Budget, Recent: a.Context.PreserveRecent, Count: b.counter(a.LLM)}
	},
	"summary_buffer": func(b *builder, name string, a *config.Agent, g *guard) agent.Window {
		model := b.models[a.LLM]
		if other := a.Context.SummarizerLLM; other != "" {
			model = b.models[other]
		}
		return session.Summary{
			Agent: name, Budget: a.Context.Budget, Threshold: a.Context.Threshold, Target: a.Context.Target,
			Count: b.counter(a.LLM), Model: model, Read: g.past, Store: b.store.Sessions, Log: b.log,
		}
	},
}

// window returns what an agent's context asks for, nil for the whole conversation.
func (b *builder) window(name string, a *config.Agent, g *guard) agent.Window {
	if a.Context == nil {
		return nil
	}
	return windows[a.Context.Strategy](b, name, a, g)
}

func (b *builder) counter(llm string) session.Counter {
	l := b.cfg.LLMs[llm]
	return session.CounterFor(l.Provider, l.Model)
}

// embedderKinds are the embedders that can be configured, by provider.
var embedderKinds = map[string]func(o embedder.Options, e *config.Embedder) embedder.Embedder{
	"openai": func(o embedder.Options, _ *config.Embedder) embedder.Embedder { return openai.New(o) },
	"ollama": func(o embedder.Options, _ *config.Embedder) embedder.Embedder { return ollama.New(o) },
	"cohere": func(o embedder.Options, e *config.Embedder) embedder.Embedder {
		return cohere.New(cohere.Options{Options: o, InputType: e.InputType, OutputDimension: e.OutputDimension, Truncate: e.Truncate})
	},
}

func (b *builder) embedder(name string) embedder.Embedder {
	e := b.cfg.Embedders[name]
	timeout := time.Duration(e.Timeout) * time.Second
	return b.counted(e, embedderKinds[e.Provider](embedder.Options{
		Model: e.Model, APIKey: e.APIKey, BaseURL: e.BaseURL, Dimension: e.Dimension,
		Timeout: timeout, BatchSize: e.BatchSize, HTTP: b.out.Patient(timeout),
	}, e))
}

// memory returns the app's memory, and whether its agents use it: what was remembered before it was turned off can
// still be listed and erased.
func (b *builder) memory(rows *memory.Store) (recall *memory.Recall, used bool) {
	var find memory.Finder = memory.Keyword{Store: rows}
	m := b.cfg.Storage.Memory
	if m != nil && m.Backend == "vector" {
		find = b.vectorMemory(rows, m)
	}
	return memory.NewRecall(rows, find, memory.Options{Strangers: !b.cfg.Server.Auth.Enabled, Log: b.log}), m != nil
}

func (b *builder) vectorMemory(rows *memory.Store, m *config.Memory) memory.Finder {
	o, bound := chromem.Options{}, memory.MaxIndexed
	if p := m.VectorProvider; p != nil && p.Chromem.PersistPath != "" {
		o.Path, bound = filepath.Join(p.Chromem.PersistPath, string(b.tenant.ID)), 0
	}
	index := chromem.New(o)
	b.closers = append(b.closers, index.Close)
	return memory.NewVector(rows, b.embedder(m.Embedder), index, bound)
}

// recallTool returns the tool that an agent with these tools searches its memory with, behind its guard; none where one
// of its own has that name.
func (b *builder) recallTool(names []string, g *guard) []tool.Tool {
	if b.recall == nil || slices.Contains(names, memory.ToolName) {
		return nil
	}
	return []tool.Tool{b.recall.Through(g.read).Tool()}
}
