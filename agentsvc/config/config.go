// Package config is the YAML that describes a house of agents: which models they think with, which
// tools they may use, how they are stored, limited and served.
//
// Every top-level key of the document has a file of its name here (llms is llm.go, document_stores is
// documentstore.go), and every field of the document is a field of a struct there. The doc comments of
// these fields become the JSON Schema ([Schema]) and docs/configuration.md, so they are written for the
// person who writes the YAML.
//
// [Parse] turns a document into a [Config] or tells all its problems at once, each with its line, column
// and path. [Load] does so for the operator's own file, [Watch] tells when that file changes, [MaskSecrets] hides
// the secrets of a document that is to be shown.
//
// The way through Parse: document.go reads YAML into a tree without aliases, interpolate.go fills in ${VAR},
// decode.go fills the structs and their defaults, check.go holds what needs the whole document: references,
// host powers of tenants, and what unavailable.go says is not available yet.
package config

import (
	"slices"
	"sort"
)

// Config is one whole document. Maps are keyed by the names the document gives.
type Config struct {
	// Version is the version of this vocabulary: 2, as a number or as text.
	Version string `yaml:"version" jsonschema:"enum=2,default=2"`
	// Name names this set of agents for people.
	Name string `yaml:"name"`
	// Description says what this set of agents is for.
	Description string `yaml:"description"`
	// LLMs are the models that agents think with, by name.
	LLMs map[string]*LLM `yaml:"llms"`
	// Agents are the agents served, by name. The first public one in file order gives the default card,
	// unless `defaults.agent` names another.
	Agents map[string]*Agent `yaml:"agents"`
	// Tools are what agents can do besides writing, by name.
	Tools map[string]*Tool `yaml:"tools"`
	// Defaults names what is used where an agent or a caller names nothing.
	Defaults Defaults `yaml:"defaults"`
	// Databases are connections to SQL databases, by name.
	Databases map[string]*Database `yaml:"databases"`
	// Embedders turn text into vectors, by name.
	Embedders map[string]*Embedder `yaml:"embedders"`
	// VectorStores keep vectors and find the nearest, by name.
	VectorStores map[string]*VectorStore `yaml:"vector_stores"`
	// DocumentStores are collections of documents that agents can search, by name.
	DocumentStores map[string]*DocumentStore `yaml:"document_stores"`
	// Guardrails are chains of checks on input, output and tool calls, by name.
	Guardrails map[string]*Guardrail `yaml:"guardrails"`
	// Storage says where tasks, sessions, memory and checkpoints are kept.
	Storage Storage `yaml:"storage"`
	// RateLimiting bounds how much a session or a user may ask for. A call beyond a limit is refused (429).
	RateLimiting RateLimiting `yaml:"rate_limiting"`
	// Server is the address and the front door. It stands in the operator's file only.
	Server Server `yaml:"server"`
	// Observability turns on what an operator watches. It stands in the operator's file only.
	Observability Observability `yaml:"observability"`
	// Logger says what is logged, and where. It stands in the operator's file only.
	Logger Logger `yaml:"logger"`

	agentOrder []string
}

// AgentNames returns the names of the agents in file order. Agents that were added to the map by hand
// follow in alphabetical order.
func (c *Config) AgentNames() []string {
	names := make([]string, 0, len(c.Agents))
	for _, name := range c.agentOrder {
		if _, ok := c.Agents[name]; ok {
			names = append(names, name)
		}
	}
	if len(names) == len(c.Agents) {
		return names
	}
	listed := len(names)
	for name := range c.Agents {
		if !slices.Contains(names[:listed], name) {
			names = append(names, name)
		}
	}
	sort.Strings(names[listed:])
	return names
}
