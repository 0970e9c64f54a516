// Package config reads and checks the YAML (or JSON) document that configures an app: its models, agents and tools,
// and where its data is stored, limited and served.
//
// Every top-level key of the document has a file with its name (llms is llm.go, document_stores is documentstore.go;
// defaults is in this file), and every key is a field of a struct there. The doc comments of these structs and fields are
// user documentation: they become the JSON Schema ([Schema]) and docs/configuration.md by go generate, and tests fail if
// those are stale. The tags of the fields carry the rules that need no code; see [document.Field].
//
// [Parse] reports all problems of a document at once, each with line, column and path. Its steps: package document reads
// YAML into a tree of bounded size, replaces ${NAME} by the value of a variable and fills the structs and their
// defaults, and check.go checks what needs the whole document (references, grants, keys that depend on each other).
//
// [Check] adds the problems that only package runtime finds when it builds the agents. For that sound.go puts defaults
// in place of the values that have problems, and removes what cannot be built. A block with enabled: false is decoded
// for its form only; see off.go of package document.
//
// The operator's file is read and watched by package configfile. Package redact masks the secrets of a document that is
// shown, and restores them when it comes back.
//
// A tenant's document is untrusted: its size and depth are bounded, ${NAME} reads the app's secrets and never the
// environment, blocks of the operator are refused, and host powers need a grant. A problem never contains the value
// of a variable.
package config

import (
	"cmp"
	"slices"
	"sort"

	"stoa/agentsvc/config/document"
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
	// isTooLarge says that its expressions or JSON Schemas exceed the bounds of a document, so that it is not built, not
	// even to find further problems. Set by checkCompiled.
	isTooLarge bool
	// warnings is what [Config.Warnings] returns; set by Parse.
	warnings []document.Problem
}

// Warnings returns what the document asks for and does not get, such as a temperature beyond the vendor's range. The
// configuration works without a change of the document.
func (c *Config) Warnings() []document.Problem { return c.warnings }

// Defaults names what is used where an agent or a caller names nothing.
type Defaults struct {
	// LLM is the model of every agent that names none.
	LLM string `yaml:"llm" jsonschema:"default=default" ref:"llms"`
	// Agent is the agent whose card is served at the root. Without it, it is the first public agent of the file.
	Agent string `yaml:"agent" ref:"agents"`
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

// DefaultConfig returns the configuration that is served without a file: one agent "assistant" with one model of the
// provider that detectProvider finds in the operator's environment, else the scripted one. Everything else has its
// default.
func DefaultConfig(lookup func(name string) (string, bool)) *Config {
	cfg := document.New[Config]()
	model := document.New[LLM]()
	model.Provider = cmp.Or(detectProvider(lookup), "scripted")
	model.applyDefaults(lookup)
	agent := document.New[Agent]()
	agent.Description = "A helpful assistant."
	agent.Instruction = "You are a helpful assistant. Answer briefly and truthfully."
	agent.applyDefaults("assistant", cfg.Defaults)

	cfg.LLMs = map[string]*LLM{"default": model}
	cfg.Agents = map[string]*Agent{"assistant": agent}
	cfg.agentOrder = []string{"assistant"}
	return cfg
}
