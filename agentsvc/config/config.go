// Package config reads and checks the YAML (or JSON) document that configures an app: its models, agents and tools,
// and where its data is stored, limited and served.
//
// Every top-level key of the document has a file with its name (llms is llm.go, document_stores is documentstore.go),
// and every key is a field of a struct there. The doc comments of these structs and fields are user documentation:
// they become the JSON Schema ([Schema]) and docs/configuration.md by go generate, and tests fail if those are stale.
// The tags of the fields carry the rules that need no code; see field.go.
//
// The main functions are [Parse] for a tenant's document, [Load] and [Watch] for the operator's file, [Decode] and
// [MaskSecrets] to show a document, and [RestoreSecrets] to accept it back.
//
// Parse reports all problems of a document at once, each with line, column and path. Its steps: document.go reads
// YAML into a tree of bounded size without aliases, interpolate.go replaces ${NAME} by the value of a variable,
// decode.go fills the structs and their defaults, check.go checks what needs the whole document (references, grants,
// keys that depend on each other), and unavailable.go refuses what is not implemented yet.
//
// A tenant's document is untrusted: its size and depth are bounded, ${NAME} reads the app's secrets and never the
// environment, blocks of the operator are refused, and host powers need a grant. A problem never contains the value
// of a variable.
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
	// Server is the listener, TLS, CORS and authentication. It is allowed in the operator's file only.
	Server Server `yaml:"server"`
	// Observability turns on what an operator watches. It is allowed in the operator's file only.
	Observability Observability `yaml:"observability"`
	// Logger says what is logged, and where. It is allowed in the operator's file only.
	Logger Logger `yaml:"logger"`

	// agentOrder is the agents' names in file order, which the map loses; set by Parse.
	agentOrder []string
}

// AgentNames returns the names of the agents in file order. Agents that were added to the map by code follow in
// alphabetical order.
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
