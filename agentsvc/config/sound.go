package config

import (
	"reflect"
	"slices"

	"stoa/agentsvc/config/document"
)

// removeUnsound makes c a configuration that can be built in spite of its problems, so that the build finds those of
// the same blocks as well. A value with a problem gets its default. A block is removed where the problem leaves open
// what it is, and so are embedders and vector stores with problems, whose build reports its errors at the blocks that
// name them. An agent with problems loses its members, whose number and depth are then not bounded.
func (c *Config) removeUnsound(doc *document.Document) {
	// The expressions of a script stay: the placeholders of the rule are their groups, and its build checks them itself.
	document.ResetUnsound(doc, reflect.ValueOf(c).Elem(), reflect.TypeFor[When]())
	root := (*document.Path)(nil)
	removeEntries(doc, root.Field("llms"), c.LLMs, "provider")
	removeEntries(doc, root.Field("tools"), c.Tools, "type", "handler", "transport", "command")
	removeEntries(doc, root.Field("databases"), c.Databases, "driver")
	removeEntries(doc, root.Field("embedders"), c.Embedders, "")
	removeEntries(doc, root.Field("vector_stores"), c.VectorStores, "")
	for name, s := range c.DocumentStores {
		if !c.keepParts(s) || doc.IsUnsound(root.Field("document_stores").Name(name).Field("source").Field("type")) {
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

// keepParts removes from a document store what c does not have, and reports whether its source can be built.
func (c *Config) keepParts(s *DocumentStore) bool {
	if s.Source == nil {
		return false
	}
	if c.VectorStores[s.VectorStore] == nil {
		s.VectorStore = ""
	}
	switch s.Source.Type {
	case "sql":
		return s.Source.SQL != nil
	case "api":
		return s.Source.API != nil
	default:
		return true
	}
}

// removeEntries removes from the top-level mapping at p the entries in which one of keys has a problem; the key "" stands
// for the whole entry.
func removeEntries[T any](doc *document.Document, p *document.Path, entries map[string]T, keys ...string) {
	for name := range entries {
		for _, key := range keys {
			if at := p.Name(name); key == "" && doc.IsUnsound(at) || key != "" && doc.IsUnsound(at.Field(key)) {
				delete(entries, name)
			}
		}
	}
}

// soundAgent returns the agent a at p without what cannot be built.
func (c *Config) soundAgent(doc *document.Document, p *document.Path, a *Agent) *Agent {
	a.DocumentStores = slices.DeleteFunc(slices.Clone(a.DocumentStores), func(name string) bool { return c.DocumentStores[name] == nil })
	if doc.IsUnsound(p.Field("trigger").Field("type")) {
		a.Trigger = nil
	}
	if x := a.Context; x != nil && x.SummarizerLLM != "" && c.LLMs[x.SummarizerLLM] == nil {
		a.Context = nil
	}
	switch {
	case doc.IsUnsound(p.Field("type")):
		return &Agent{Name: a.Name, Type: "sequential", Trigger: a.Trigger, Notifications: a.Notifications}
	case doc.IsUnsound(p):
		a.SubAgents, a.AgentTools = nil, nil
	}
	return a
}
