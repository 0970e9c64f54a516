package config

import (
	"reflect"
	"regexp"
	"strings"
	"time"

	"stoa/agentsvc/config/document"
)

// Agent is one agent: its instruction, what it may use, and how it is shown.
type Agent struct {
	// Name is the name shown to people. Without it, it is the agent's key.
	Name string `yaml:"name"`
	// Description says what the agent is for; the card shows it. Without it, it is derived from the rest.
	Description string `yaml:"description"`
	// Type is how the agent works: with a model (llm), by running its sub-agents one after the other, at once or
	// repeatedly (sequential, parallel, loop), by running tools without a model (runner), or on another server (remote).
	Type string `yaml:"type" jsonschema:"enum=llm,enum=sequential,enum=parallel,enum=loop,enum=runner,enum=remote,default=llm"`
	// Version is the agent's version on its card.
	Version string `yaml:"version" jsonschema:"default=1.0.0"`
	// LLM is the agent's model. Without it, it is `defaults.llm`.
	LLM string `yaml:"llm" ref:"llms" only:"type=llm"`
	// Instruction is the system prompt.
	Instruction string `yaml:"instruction" only:"type=llm"`
	// GlobalInstruction is put before the instruction of this agent and of all agents below it.
	GlobalInstruction string `yaml:"global_instruction" only:"type=llm|sequential|parallel|loop"`
	// Prompt shapes the system prompt in more detail.
	Prompt *Prompt `yaml:"prompt" only:"type=llm"`
	// Tools are the tools the agent may use; a runner runs them all, in this order.
	Tools []string `yaml:"tools" ref:"tools" only:"type=llm|runner"`
	// Streaming sends the answer token by token.
	Streaming bool `yaml:"streaming" jsonschema:"default=true"`
	// Visibility is who sees the agent: everyone (public), only authenticated callers (internal), or no caller at all
	// (private).
	Visibility string `yaml:"visibility" jsonschema:"enum=public,enum=internal,enum=private,default=public"`
	// Skills are what the card says the agent can do. Without them, they are made from the rest.
	Skills []*Skill `yaml:"skills"`
	// InputModes are the MIME types the agent reads. Without them, it reads text/plain, and images if its model does.
	InputModes []string `yaml:"input_modes"`
	// OutputModes are the MIME types the agent writes.
	OutputModes []string `yaml:"output_modes" jsonschema:"default=text/plain"`
	// MaxIterations is how often a loop agent runs its sub-agents at most; 0 is a hundred times.
	MaxIterations int `yaml:"max_iterations" jsonschema:"minimum=0,maximum=1000" only:"type=loop"`
	// Reasoning bounds and ends the agent's own loop of thinking and calling tools.
	Reasoning *Reasoning `yaml:"reasoning" only:"type=llm"`
	// SubAgents are the agents that a sequential, parallel or loop agent runs, and those that an llm agent can hand
	// control over to; these may hand it back.
	SubAgents []string `yaml:"sub_agents" ref:"agents" only:"type=llm|sequential|parallel|loop"`
	// AgentTools are agents that this one uses like tools.
	AgentTools []string `yaml:"agent_tools" ref:"agents" only:"type=llm"`
	// Guardrails names the checks on this agent's input, output and tool calls. Those of an agent made of others judge
	// what the whole is asked and answers.
	Guardrails string `yaml:"guardrails" ref:"guardrails"`
	// DocumentStores are the documents the agent can search, each by a tool `search_<store>`.
	DocumentStores []string `yaml:"document_stores" ref:"document_stores" only:"type=llm"`
	// IncludeContext puts the passages that match a message before the model without being asked.
	IncludeContext bool `yaml:"include_context" jsonschema:"default=false" only:"type=llm"`
	// IncludeContextLimit is how many passages are put before the model, of all stores together; 0 is 5.
	IncludeContextLimit int `yaml:"include_context_limit" jsonschema:"minimum=0,maximum=100" only:"type=llm"`
	// IncludeContextMaxLength is how long each of them may be, in characters; 0 is 1,000.
	IncludeContextMaxLength int `yaml:"include_context_max_length" jsonschema:"minimum=0,maximum=100000" only:"type=llm"`
	// StructuredOutput makes the agent answer in JSON of a given schema.
	StructuredOutput *StructuredOutput `yaml:"structured_output" only:"type=llm"`
	// Context says how much of a long conversation the model gets to see, which is for agents with a model alone, and
	// what happens to a message that arrives while the conversation is at work on another.
	Context *Context `yaml:"context"`
	// Trigger starts the agent on a schedule or from a webhook.
	Trigger *Trigger `yaml:"trigger"`
	// Notifications send the progress of the agent's tasks to other services.
	Notifications []*Notification `yaml:"notifications"`
	// Security names the credentials that callers of this agent need.
	Security *Security `yaml:"security"`
	// URL is the base address of a remote agent's server.
	URL string `yaml:"url" only:"type=remote"`
	// AgentCardURL is the address of a remote agent's card. Without it, it follows from `url`.
	AgentCardURL string `yaml:"agent_card_url" only:"type=remote"`
	// AgentCardFile is a local file with a remote agent's card.
	AgentCardFile string `yaml:"agent_card_file" only:"type=remote" grant:"filesystem"`
	// Headers are sent with every call of a remote agent, to the server that is named here and to no other.
	Headers map[string]string `yaml:"headers" only:"type=remote" secret:"true" to:"url,agent_card_url,agent_card_file,headers"`
	// Credentials are sent with every call of a remote agent, like headers.
	Credentials *Credentials `yaml:"credentials" only:"type=remote" to:"url,agent_card_url,agent_card_file,headers"`
	// Timeout is how long a call of a remote agent may take.
	Timeout time.Duration `yaml:"timeout" jsonschema:"default=30s" only:"type=remote"`
}

// Skill is one thing the card says an agent can do.
type Skill struct {
	// ID names the skill for programs.
	ID string `yaml:"id" jsonschema:"required"`
	// Name names the skill for people.
	Name string `yaml:"name"`
	// Description says what the skill does.
	Description string `yaml:"description"`
	// Tags are words to find the skill by.
	Tags []string `yaml:"tags"`
}

// agentNameForm is the form of an agent's name. It is part of URLs and file names.
var agentNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// checkRules checks the rules of an agent that its tags cannot express.
func (a *Agent) checkRules(c *validation, s document.Location) {
	if !agentNameForm.MatchString(s.Path.Part) {
		c.addProblem(s, "the name of an agent is 1 to 63 letters, digits, '_', '.' or '-', and starts with a letter or digit")
	}
	if a.Type == "llm" && a.LLM == "" && !c.doc.HasValue(s.Value, "llm") && c.defaultLLMMissing {
		c.addProblem(s, `has no model: set llm here or defaults.llm, or name one of llms "default"`)
	}
	if a.Type == "remote" && a.URL == "" && a.AgentCardURL == "" && a.AgentCardFile == "" {
		c.addProblem(s, "a remote agent needs url, agent_card_url or agent_card_file")
	}
	a.checkRemote(c, s)
	a.checkDocumentStores(c, s)
	a.checkGuardrail(c, s)
	a.checkMembers(c, s)
	a.checkTermination(c, s)
	a.checkContext(c, s.Child("context"))
	a.checkNotifications(c, s.Child("notifications"))
}

// checkDocumentStores checks that the keys of include_context have an effect.
func (a *Agent) checkDocumentStores(c *validation, s document.Location) {
	switch {
	case a.IncludeContext && len(a.DocumentStores) == 0:
		c.addProblem(s.Child("include_context"), "needs document_stores: there is nothing to include")
	case a.IncludeContext:
	case a.IncludeContextLimit > 0:
		c.addProblem(s.Child("include_context_limit"), "has no effect without include_context: true")
	case a.IncludeContextMaxLength > 0:
		c.addProblem(s.Child("include_context_max_length"), "has no effect without include_context: true")
	}
}

// checkContext checks that an agent without a model changes only the key of context that does not concern one: on_busy.
func (a *Agent) checkContext(c *validation, s document.Location) {
	if a.Context == nil || a.Type == "" || a.Type == "llm" {
		return
	}
	x := reflect.ValueOf(a.Context).Elem()
	for _, f := range document.FieldsOf(x.Type()) {
		if f.Name != "on_busy" && !isDefault(x.Field(f.Index), x, &f) {
			c.addProblem(s.Child(f.Name), "belongs to type llm only")
		}
	}
}

// checkRemote checks the address of a remote agent and the headers sent to it.
func (a *Agent) checkRemote(c *validation, s document.Location) {
	if a.AgentCardFile != "" && a.AgentCardURL != "" {
		c.addProblem(s.Child("agent_card_file"), "stands in for agent_card_url: leave either out")
	}
	c.checkAddress(s.Child("url"), a.URL)
	c.checkAddress(s.Child("agent_card_url"), a.AgentCardURL)
	c.checkHeaders(s.Child("headers"), a.Headers)
	for name := range a.Headers {
		if a.Credentials != nil && strings.EqualFold(name, "Authorization") {
			c.addProblem(s.Child("headers"), "holds Authorization, which credentials stand for: leave either out")
		}
	}
}

// checkGuardrail refuses a guardrail with tool.authorization for an agent that calls no tools itself: it would have
// no effect, and the author would believe that it protects.
func (a *Agent) checkGuardrail(c *validation, s document.Location) {
	g := c.guardrails[a.Guardrails]
	if a.Type == "llm" || a.Type == "runner" || g == nil || !g.Enabled || g.Tool == nil {
		return
	}
	if t := g.Tool.Authorization; t != nil && t.Enabled {
		c.addProblem(s.Child("guardrails"), "holds tool.authorization, and an agent of type "+a.Type+
			" calls no tools itself: name a guardrail without it here, and one with it at the agents that call tools")
	}
}

// applyDefaults sets what follows from other parts of the document: the display name, the model and the webhook's
// path. key is the agent's name.
func (a *Agent) applyDefaults(key string, d Defaults) {
	if a.Name == "" {
		a.Name = key
	}
	if a.LLM == "" && a.Type == "llm" {
		a.LLM = d.LLM
	}
	a.Trigger.applyDefaults(key)
}
