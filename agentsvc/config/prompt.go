package config

// Prompt shapes an agent's system prompt in more detail than `instruction`.
type Prompt struct {
	// SystemPrompt replaces the whole system prompt.
	SystemPrompt string `yaml:"system_prompt"`
	// Role says who the agent is.
	Role string `yaml:"role"`
	// Guidance says how the agent should work.
	Guidance string `yaml:"guidance"`
}

// StructuredOutput makes an agent answer in JSON of a given schema.
type StructuredOutput struct {
	// Strict asks the provider to hold the schema to the letter.
	Strict bool `yaml:"strict" jsonschema:"default=false"`
	// Name names the schema for the model.
	Name string `yaml:"name"`
	// Schema is the JSON Schema of the answer.
	Schema map[string]any `yaml:"schema"`
}

// Reasoning bounds and ends an agent's loop of thinking and calling tools.
type Reasoning struct {
	// MaxIterations is how many rounds one turn may take; 0 is the built-in bound.
	MaxIterations int `yaml:"max_iterations" jsonschema:"minimum=0"`
	// EnableExitTool gives the model a tool that ends the loop.
	EnableExitTool bool `yaml:"enable_exit_tool" jsonschema:"default=false"`
	// EnableEscalateTool gives the model a tool that hands over to the parent agent.
	EnableEscalateTool bool `yaml:"enable_escalate_tool" jsonschema:"default=false"`
	// TerminationConditions are what ends the loop.
	TerminationConditions []string `yaml:"termination_conditions" jsonschema:"enum=no_tool_calls,enum=escalate,enum=transfer"`
}

// Context says how much of a long conversation the model gets to see.
type Context struct {
	// Strategy is how the conversation is cut: not at all (none), to the last messages (buffer_window), to a
	// number of tokens (token_window), or by summing up what is old (summary_buffer).
	Strategy string `yaml:"strategy" jsonschema:"enum=none,enum=buffer_window,enum=token_window,enum=summary_buffer,default=none"`
	// WindowSize is how many messages stay.
	WindowSize int `yaml:"window_size" jsonschema:"minimum=1,default=20" only:"strategy=buffer_window"`
	// Budget is how many tokens stay.
	Budget int `yaml:"budget" jsonschema:"minimum=1,default=8000" only:"strategy=token_window|summary_buffer"`
	// Threshold is the share of the budget at which the conversation is summed up.
	Threshold float64 `yaml:"threshold" jsonschema:"minimum=0,maximum=1,default=0.85" only:"strategy=summary_buffer"`
	// Target is the share of the budget that is left after summing up.
	Target float64 `yaml:"target" jsonschema:"minimum=0,maximum=1,default=0.7" only:"strategy=summary_buffer"`
	// PreserveRecent is how many of the last messages always stay.
	PreserveRecent int `yaml:"preserve_recent" jsonschema:"minimum=0,default=5" only:"strategy=token_window"`
	// SummarizerLLM is the model that sums up. Without it, it is the agent's own.
	SummarizerLLM string `yaml:"summarizer_llm" ref:"llms" only:"strategy=summary_buffer"`
}
