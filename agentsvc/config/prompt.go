package config

import (
	"slices"

	"stoa/agentsvc/config/document"
)

// Prompt shapes an agent's system prompt in more detail than `instruction`.
type Prompt struct {
	// SystemPrompt replaces the whole system prompt: `instruction`, `role`, `guidance` and the instructions of agents above.
	SystemPrompt string `yaml:"system_prompt"`
	// Role says who the agent is.
	Role string `yaml:"role"`
	// Guidance says how the agent should work.
	Guidance string `yaml:"guidance"`
}

// StructuredOutput makes an agent answer in JSON of a given schema.
type StructuredOutput struct {
	// Strict accepts the answer only if it is the JSON value alone; without it the value may be inside other text.
	Strict bool `yaml:"strict" jsonschema:"default=false"`
	// Name names the schema for the model.
	Name string `yaml:"name"`
	// Schema is the JSON Schema of the answer.
	Schema map[string]any `yaml:"schema" jsonschema:"required"`
}

// checkRules checks the schema.
func (o *StructuredOutput) checkRules(c *validation, s document.Location) {
	c.checkSchema(s.Child("schema"), o.Schema)
}

// Reasoning bounds and ends an agent's loop of thinking and calling tools.
type Reasoning struct {
	// MaxIterations is how often the model is asked in one turn at most; 0 is a hundred times.
	MaxIterations int `yaml:"max_iterations" jsonschema:"minimum=0,maximum=1000"`
	// MaxTransfers is how often control may be handed over in one turn, by this agent and all that follow it; 0 is ten
	// times. One more ends the task as failed.
	MaxTransfers int `yaml:"max_transfers" jsonschema:"minimum=0,maximum=100"`
	// EnableExitTool gives the model a tool that ends the loop.
	EnableExitTool bool `yaml:"enable_exit_tool" jsonschema:"default=false"`
	// EnableEscalateTool gives the model a tool that hands over to the parent agent.
	EnableEscalateTool bool `yaml:"enable_escalate_tool" jsonschema:"default=false"`
	// TerminationConditions are what ends the loop: an answer that calls no tool, a call of escalate, an answer of an
	// agent that control was handed over to. Without them each of the three does.
	TerminationConditions []string `yaml:"termination_conditions" jsonschema:"enum=no_tool_calls,enum=escalate,enum=transfer"`
}

// checkTermination checks that at least one condition can end the agent's loop.
func (a *Agent) checkTermination(c *validation, s document.Location) {
	r := a.Reasoning
	if r == nil || len(r.TerminationConditions) == 0 {
		return
	}
	when := func(condition string) bool { return slices.Contains(r.TerminationConditions, condition) }
	if !when("no_tool_calls") && !r.EnableExitTool && !(when("escalate") && r.EnableEscalateTool) && !(when("transfer") && len(a.SubAgents) > 0) {
		c.addProblem(s.Child("reasoning").Child("termination_conditions"),
			"leaves the agent no way to finish: add no_tool_calls, or turn enable_exit_tool on")
	}
}

// Context says how much of a long conversation the model gets to see, and what happens to a message that arrives while the
// conversation is at work on another.
type Context struct {
	// OnBusy is what happens to a message that opens a task while the session is at work: the task waits for its turn
	// (queue), the message is refused (reject), or the tasks at work and waiting are cancelled (interrupt).
	OnBusy string `yaml:"on_busy" jsonschema:"enum=queue,enum=reject,enum=interrupt,default=queue"`
	// Strategy is how the conversation is cut: not at all (none), to the last messages (buffer_window), to a
	// number of tokens (token_window), or by summing up what is old (summary_buffer).
	Strategy string `yaml:"strategy" jsonschema:"enum=none,enum=buffer_window,enum=token_window,enum=summary_buffer,default=none"`
	// WindowSize is how many messages stay; a tool's result counts as one.
	WindowSize int `yaml:"window_size" jsonschema:"minimum=1,default=20" only:"strategy=buffer_window"`
	// Budget is how many tokens the conversation may have. They are counted exactly for models of openai and estimated
	// for others.
	Budget int `yaml:"budget" jsonschema:"minimum=1,default=8000" only:"strategy=token_window|summary_buffer"`
	// Threshold is the share of the budget at which the conversation is summed up.
	Threshold float64 `yaml:"threshold" jsonschema:"minimum=0,maximum=1,default=0.85" only:"strategy=summary_buffer"`
	// Target is the share of the budget that is left after summing up; less than `threshold`.
	Target float64 `yaml:"target" jsonschema:"minimum=0,maximum=1,default=0.7" only:"strategy=summary_buffer"`
	// PreserveRecent is how many of the last messages always stay.
	PreserveRecent int `yaml:"preserve_recent" jsonschema:"minimum=0,default=5" only:"strategy=token_window"`
	// SummarizerLLM is the model that sums up. Without it, it is the agent's own.
	SummarizerLLM string `yaml:"summarizer_llm" ref:"llms" only:"strategy=summary_buffer"`
}

// checkRules checks that a summary shortens the conversation.
func (con *Context) checkRules(c *validation, s document.Location) {
	if con.Strategy == "summary_buffer" && con.Target >= con.Threshold {
		c.addProblem(s.Child("target"), "must be less than threshold, or every answer would wait for a summary")
	}
}
