package config

// Defaults names what is used where an agent or a caller names nothing.
type Defaults struct {
	// LLM is the model of every agent that names none.
	LLM string `yaml:"llm" jsonschema:"default=default" ref:"llms"`
	// Agent is the agent whose card is served at the root. Without it, it is the first public agent of the file.
	Agent string `yaml:"agent" ref:"agents"`
}
