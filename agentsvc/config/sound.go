package config

import (
	"slices"

	"stoa/agentsvc/config/document"
)

// removeUnsound removes what has problems from c, and what names it, so that the rest can be built. An agent with
// problems becomes one that does nothing; its trigger and its notifications are parts of their own.
func (c *Config) removeUnsound(doc *document.Document) {
	root := (*document.Path)(nil)
	removeEntries(doc, root.Field("llms"), c.LLMs)
	removeEntries(doc, root.Field("tools"), c.Tools)
	removeEntries(doc, root.Field("guardrails"), c.Guardrails)
	removeEntries(doc, root.Field("databases"), c.Databases)
	removeEntries(doc, root.Field("embedders"), c.Embedders)
	removeEntries(doc, root.Field("vector_stores"), c.VectorStores)
	removeEntries(doc, root.Field("document_stores"), c.DocumentStores)
	for name, s := range c.DocumentStores {
		if !c.hasPartsOf(s) {
			delete(c.DocumentStores, name)
		}
	}
	for name, l := range c.LLMs {
		if l.Provider == "" { // its variable is missing
			delete(c.LLMs, name)
		}
	}
	for name, a := range c.Agents {
		c.Agents[name] = c.soundAgent(doc, root.Field("agents").Name(name), a)
	}
	if doc.IsUnsound(root.Field("storage")) {
		c.Storage = *document.New[Storage]()
	}
	if m := c.Storage.Memory; m != nil && m.Backend == "vector" && c.Embedders[m.Embedder] == nil {
		c.Storage.Memory = nil
	}
	if doc.IsUnsound(root.Field("rate_limiting")) || c.RateLimiting.SQLDatabase != "" && c.Databases[c.RateLimiting.SQLDatabase] == nil {
		c.RateLimiting = *document.New[RateLimiting]()
	}
}

// hasPartsOf reports whether c has all that a document store needs to be built.
func (c *Config) hasPartsOf(s *DocumentStore) bool {
	if s == nil || s.Source == nil || s.Embedder != "" && c.Embedders[s.Embedder] == nil || s.VectorStore != "" && c.VectorStores[s.VectorStore] == nil {
		return false
	}
	switch s.Source.Type {
	case "sql":
		return s.Source.SQL != nil && c.Databases[s.Source.SQL.Database] != nil
	case "api":
		return s.Source.API != nil
	default:
		return true
	}
}

// removeEntries removes the entries with problems from the top-level mapping at p.
func removeEntries[T any](doc *document.Document, p *document.Path, entries map[string]T) {
	for name := range entries {
		if doc.IsUnsound(p.Name(name)) {
			delete(entries, name)
		}
	}
}

// soundAgent returns the agent a at p without what has problems.
func (c *Config) soundAgent(doc *document.Document, p *document.Path, a *Agent) *Agent {
	a.DocumentStores = slices.DeleteFunc(slices.Clone(a.DocumentStores), func(name string) bool { return c.DocumentStores[name] == nil })
	trigger, notifications := a.Trigger, append([]*Notification(nil), a.Notifications...)
	if doc.IsUnsound(p.Field("trigger")) {
		trigger = nil
	}
	for i := range notifications {
		if doc.IsUnsound(p.Field("notifications").Item(i)) {
			notifications[i] = nil
		}
	}
	if x := a.Context; doc.IsUnsound(p) || x != nil && x.SummarizerLLM != "" && c.LLMs[x.SummarizerLLM] == nil {
		return &Agent{Name: a.Name, Type: "sequential", Trigger: trigger, Notifications: notifications}
	}
	return a
}
